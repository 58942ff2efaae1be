// Package origin is the origin of the benchmarks: a plain net/http server that costs little.
// The URL selects the response:
//
//	/b/SIZE          SIZE bytes
//	/f/PERCENT/SIZE  SIZE bytes, or a 503 for PERCENT of 100 requests, by a counter
//	/w/DELAY/SIZE    SIZE bytes after DELAY, such as 30s
//	/state           a [State] as JSON
//
// It listens on loopback only: HTTP/1.1 without TLS, HTTP/1.1 over TLS, and HTTP/2 over TLS.
package origin

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"fetchd/test/selfsigned"
)

// MaxSize is the maximum size of a body in bytes.
const MaxSize = 64 << 20

// State is the response to GET /state.
type State struct {
	// Busy is the number of 503 responses so far.
	Busy int64 `json:"busy"`
	// Waiting is the number of requests for /w/ in flight.
	Waiting int64 `json:"waiting"`
}

// Origin is a running origin. It is safe for concurrent use.
type Origin struct {
	addrs         map[string]string // HOST:PORT of the listeners http, https and h2
	servers       []*http.Server
	authority     []byte
	block         []byte // bodies repeat it
	asked         atomic.Int64
	busy, waiting atomic.Int64
}

// Start listens on free ports and serves until [Origin.Close].
func Start() (*Origin, error) {
	certificate, authority, _, err := selfsigned.New()
	if err != nil {
		return nil, fmt.Errorf("origin: %w", err)
	}
	o := &Origin{authority: authority, block: bytes.Repeat([]byte("0123456789abcdef"), 4<<10), addrs: make(map[string]string)}
	handler := o.handler()
	for _, name := range []string{"http", "https", "h2"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(err, o.Close())
		}
		s := &http.Server{Handler: handler, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), ReadHeaderTimeout: time.Minute,
			Protocols: new(http.Protocols), TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}}
		s.Protocols.SetHTTP1(name != "h2")
		s.Protocols.SetHTTP2(name == "h2")
		o.addrs[name] = l.Addr().String()
		o.servers = append(o.servers, s)
		serve := s.Serve
		if name != "http" {
			serve = func(l net.Listener) error { return s.ServeTLS(l, "", "") }
		}
		go func() { _ = serve(l) }() // ends with Close
	}
	return o, nil
}

// Close closes the listeners and all connections.
func (o *Origin) Close() error {
	var err error
	for _, s := range o.servers {
		err = errors.Join(err, s.Close())
	}
	return err
}

// Addr returns the HOST:PORT of the listener http, https or h2, and "" for any other name.
func (o *Origin) Addr(listener string) string { return o.addrs[listener] }

// URL returns the URL of a path on a listener; see [Origin.Addr].
func (o *Origin) URL(listener, path string) string { return URL(listener, o.Addr(listener), path) }

// URL returns the URL of a path on a listener with the given address.
func URL(listener, addr, path string) string {
	if listener == "http" {
		return "http://" + addr + path
	}
	return "https://" + addr + path
}

// Authority returns the root certificate that clients must trust, in PEM.
func (o *Origin) Authority() []byte { return o.authority }

func (o *Origin) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /b/{size}", o.body)
	mux.HandleFunc("GET /f/{percent}/{size}", o.faulty)
	mux.HandleFunc("GET /w/{delay}/{size}", o.late)
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(State{Busy: o.busy.Load(), Waiting: o.waiting.Load()}) // fails if the client has gone
	})
	return mux
}

func (o *Origin) body(w http.ResponseWriter, r *http.Request) {
	size, err := strconv.Atoi(r.PathValue("size"))
	if err != nil || size < 0 || size > MaxSize {
		http.Error(w, fmt.Sprintf("SIZE must be a number of bytes from 0 to %d", MaxSize), http.StatusBadRequest)
		return
	}
	h := w.Header()
	h.Set("Content-Length", strconv.Itoa(size))
	h.Set("Content-Type", "application/octet-stream")
	for size > 0 {
		n := min(size, len(o.block))
		if _, err := w.Write(o.block[:n]); err != nil {
			return // the client has gone
		}
		size -= n
	}
}

func (o *Origin) faulty(w http.ResponseWriter, r *http.Request) {
	percent, err := strconv.ParseInt(r.PathValue("percent"), 10, 64)
	if err != nil || percent < 0 || percent > 100 {
		http.Error(w, "PERCENT must be a number from 0 to 100", http.StatusBadRequest)
		return
	}
	if o.asked.Add(1)*percent%100 < percent { // evenly spread
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusServiceUnavailable)
		o.busy.Add(1)
		return
	}
	o.body(w, r)
}

func (o *Origin) late(w http.ResponseWriter, r *http.Request) {
	delay, err := time.ParseDuration(r.PathValue("delay"))
	if err != nil || delay < 0 {
		http.Error(w, "DELAY must be a duration such as 30s", http.StatusBadRequest)
		return
	}
	o.waiting.Add(1)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		o.waiting.Add(-1)
		o.body(w, r)
	case <-r.Context().Done():
		o.waiting.Add(-1)
	}
}

// Ask returns the state of the origin whose listener http has the given address.
func Ask(ctx context.Context, addr string) (State, error) {
	var s State
	text, err := Get(ctx, new(http.Transport), URL("http", addr, "/state"))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, err
}

// Get returns the body of a page. It makes one request on its own connection.
func Get(ctx context.Context, t *http.Transport, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	t.DisableKeepAlives = true
	resp, err := t.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", url, resp.StatusCode, body)
	}
	return body, err
}

// Serve runs an origin until ctx ends. It first writes a line of JSON with the addresses of
// the listeners and the root certificate.
func Serve(ctx context.Context, stdout io.Writer) error {
	o, err := Start()
	if err != nil {
		return err
	}
	line := maps.Clone(o.addrs)
	line["authority"] = string(o.authority)
	if err := json.NewEncoder(stdout).Encode(line); err != nil {
		return errors.Join(err, o.Close())
	}
	<-ctx.Done()
	return o.Close()
}
