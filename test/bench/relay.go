package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"time"

	"fetchd/internal/daemon"
	"fetchd/test/bench/relay"
)

type relayFlags struct {
	Authority string        `help:"Root certificate of the origin, in PEM." placeholder:"FILE"`
	Wait      time.Duration `help:"Make streams wait on a timer instead of fetching."`
	HoldHeap  bool          `help:"Let the heap grow first, as fetchd does."`
}

// serve runs a relay until ctx ends. It first writes a line of JSON with its addresses.
func (f *relayFlags) serve(ctx context.Context, stdout io.Writer) error {
	cfg := relay.Config{Wait: f.Wait}
	if f.HoldHeap {
		daemon.HoldHeap()
	}
	if f.Authority != "" {
		text, err := os.ReadFile(f.Authority)
		if err != nil {
			return err
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("--authority=%s has no certificate in PEM", f.Authority)
		}
	}
	calls, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	figures, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, calls.Close())
	}
	metrics := &http.Server{Handler: http.HandlerFunc(writeHeap), ReadHeaderTimeout: time.Minute}
	go func() { _ = metrics.Serve(figures) }() // ends with the process
	s := relay.New(cfg)
	context.AfterFunc(ctx, s.Stop)
	if err := json.NewEncoder(stdout).Encode(map[string]string{"grpc": calls.Addr().String(), "metrics": figures.Addr().String()}); err != nil {
		return err
	}
	return s.Serve(calls)
}

// writeHeap writes what the process has allocated, under the names of Prometheus's Go
// collector.
func writeHeap(w http.ResponseWriter, _ *http.Request) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	_, _ = fmt.Fprintf(w, "go_memstats_mallocs_total %d\ngo_memstats_alloc_bytes_total %d\n", m.Mallocs, m.TotalAlloc) // fails if the client has gone
}
