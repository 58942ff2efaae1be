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

	"fetchd/bench/profile"
	"fetchd/bench/relay"
)

type relayFlags struct {
	Authority string        `help:"Authority that origins may be signed by, in PEM." placeholder:"FILE"`
	Wait      time.Duration `help:"Have streams wait on a timer, and fetch nothing."`
	Profiles  string        `env:"BENCH_PROFILES"`
}

// serve runs a relay until ctx ends. It first writes a line of JSON that says where
// it is, and where its heap is told.
func (f *relayFlags) serve(ctx context.Context, stdout, stderr io.Writer) error {
	cfg := relay.Config{Wait: f.Wait}
	if f.Authority != "" {
		text, err := os.ReadFile(f.Authority)
		if err != nil {
			return err
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("--authority=%s holds no certificate in PEM", f.Authority)
		}
	}
	calls, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	heap, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, calls.Close())
	}
	metrics := &http.Server{Handler: http.HandlerFunc(tellHeap), ReadHeaderTimeout: time.Minute}
	go func() { _ = metrics.Serve(heap) }() // ends with the process
	if f.Profiles != "" {
		profile.OnSignal(ctx, f.Profiles, profileBegin, profileEnd, stderr)
	}
	s := relay.New(cfg)
	context.AfterFunc(ctx, s.Stop)
	if err := json.NewEncoder(stdout).Encode(map[string]string{"grpc": calls.Addr().String(), "metrics": heap.Addr().String()}); err != nil {
		return err
	}
	return s.Serve(calls)
}

// tellHeap tells what the process has allocated, by the names that Prometheus' own
// collector has for it.
func tellHeap(w http.ResponseWriter, _ *http.Request) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	_, _ = fmt.Fprintf(w, "go_memstats_mallocs_total %d\ngo_memstats_alloc_bytes_total %d\n", m.Mallocs, m.TotalAlloc) // the client is gone then
}
