package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	_ "embed"
	"fmt"
	"io"
	"log" //nolint:depguard // http.Server.ErrorLog has this type
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
	"fetchd/internal/door"
	"fetchd/internal/secure"
	"fetchd/internal/tlswatch"
	"fetchd/internal/version"
	"fetchd/internal/webapi"
	"fetchd/server/internal/admission"
	"fetchd/server/internal/conversion"
	"fetchd/server/internal/wire"
	"fetchd/server/observe"
)

const (
	// maxWebHead limits the head of a request. net/http allows 4 KiB more. Short fields use
	// twenty times their length in memory.
	maxWebHead = 4 << 10
	// maxWebStreams is the number of requests in flight on one HTTP/2 connection.
	maxWebStreams = 32
	// webIdleTime is how long a connection may wait for its next request.
	webIdleTime = 2 * time.Minute
)

// webConfig configures the HTTP API.
type webConfig struct {
	*shared
	// Fetch and FetchUnary are the methods of the service.
	Fetch      func(ctx context.Context, in *pb.FetchRequest, send func(*wire.Outgoing) error, mode sendMode) error
	FetchUnary func(ctx context.Context, in *pb.FetchRequest, prefix string, copies int64, deliver func(*pb.FetchUnaryResponse, *admission.Ticket) error) (*pb.FetchUnaryResponse, error)
	Metrics    http.Handler // serves /metrics; nil means no metrics
	Console    http.Handler // serves the console; nil means none
	Hosts      []string     // names of the service that a browser may use
	TLS        *tls.Config  // nil means plaintext
	Handshakes *tlswatch.Handshakes
	Descriptor []byte // the contract
}

// newWeb returns the server of the HTTP API.
func newWeb(cfg *webConfig) *http.Server {
	w := &web{webConfig: cfg, guard: webapi.Guard{Hosts: cfg.Hosts, Flag: "--console-host"}}
	routes := webapi.NewRoutes()
	routes.Add("POST", "/v1/fetch", handle(w, readMessage[pb.FetchRequest], w.fetch))
	routes.Add("POST", "/v1/fetch:unary", handle(w, readMessage[pb.FetchRequest], w.fetchUnary))
	routes.Add("POST", "/v1/explain", handle(w, readMessage[pb.ExplainRequest], w.explain))
	routes.Add("GET POST", rawPath, handle(w, (*webAnswer).readRaw, w.raw))
	routes.AddDescriptor("fetchd.binpb", cfg.Descriptor)
	routes.Add("GET", "/openapi.json", webapi.Cached(http.HandlerFunc(serveOpenAPI)))
	routes.AddHealth(cfg.Draining)
	if cfg.Metrics != nil {
		routes.Add("GET", "/metrics", webapi.Cached(cfg.Metrics))
	}
	if cfg.Console != nil {
		routes.Add("GET", "/{$}", w.guard.Page(cfg.Console))
		routes.Add("GET", "/console/", w.guard.Page(cfg.Console))
	}
	routes.Rest()
	return &http.Server{
		Handler: w.bounded(routes), TLSConfig: door.TLS(cfg.TLS), HTTP2: &http.HTTP2Config{
			MaxReadFrameSize:              16 << 10, // the default, 1 MiB, is kept as a buffer by each connection
			MaxReceiveBufferPerConnection: wire.StreamWindow, MaxReceiveBufferPerStream: wire.StreamWindow,
			MaxConcurrentStreams: maxWebStreams,
		},
		ReadHeaderTimeout: wire.HandshakeTime, ReadTimeout: wire.FirstMessageTime, IdleTimeout: webIdleTime, MaxHeaderBytes: maxWebHead,
		ConnContext: door.ConnContext,
		ConnState:   cfg.Handshakes.ConnState,
		ErrorLog:    log.New(io.Discard, "", 0), // its lines would quote requests of unauthenticated clients
	}
}

// web serves calls of the contract.
type web struct {
	*webConfig
	guard webapi.Guard
}

type (
	readFunc[M any] func(*webAnswer, *http.Request, *budget.Lease) (M, error)
	callFunc[M any] func(context.Context, M, *webAnswer) error
)

// handle returns the handler of a method, whose request read returns. It logs a line.
func handle[M any](w *web, read readFunc[M], method callFunc[M]) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		out := &webAnswer{rw: rw, control: http.NewResponseController(rw), stall: w.Stall,
			noMemory: func(things string) error { return w.Fetches.NoMemory(r.Context(), things) }}
		began := time.Now()
		w.InFlight.Add(1)
		defer w.InFlight.Add(-1)
		err := runGuarded(w, read, method, r, out)
		if out.stalled { // net/http then cancels the context, as if the caller had left
			err = stalledError(out.stall)
		}
		st := status.Convert(err)
		if err != nil {
			out.fail(st)
		}
		text := st.Message()
		if out.quotes {
			text = ""
		}
		level := callLevel(st.Code())
		if w.Callers.Ask != nil && !out.admitted && level < slog.LevelError {
			level = slog.LevelDebug // unauthenticated clients must not fill the log
		}
		w.finished(r.Context(), level, slog.String("http.path", r.URL.Path), out.caller, began, st, text)
		out.abort()
	}
}

// runGuarded admits a request, reads it and calls method. A panic ends only this call.
func runGuarded[M any](w *web, read readFunc[M], method callFunc[M], r *http.Request, out *webAnswer) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = w.logPanic(r.Context(), "panic in a call", p)
		}
	}()
	ctx, err := w.admit(r)
	if err != nil {
		return err
	}
	out.admitted, out.caller = true, admission.Name(ctx)
	ctx, release := admission.Cancellable(ctx)
	defer release(nil)
	defer w.Callers.Leave(ctx, &err)
	if err := w.Callers.Enter(ctx); err != nil {
		return err
	}
	memory := w.Budget.Lease(admission.Caller(ctx))
	in, err := read(out, r, memory)
	memory.Close()
	if err != nil {
		return err
	}
	return method(ctx, in, out)
}

// admit identifies the caller. It refuses a browser that calls for a page of another origin:
// otherwise any page could reach the network of the service.
func (w *web) admit(r *http.Request) (context.Context, error) {
	if w.Draining.Err() != nil {
		return nil, status.Error(codes.Unavailable, "the server is shutting down: call another replica")
	}
	if err := w.guard.Check(r); err != nil {
		return nil, err
	}
	ctx := observe.FromHeader(r.Context(), r.Header)
	if sent := r.Header.Values(fetch.HopsHeader); len(sent) > 0 {
		ctx = metadata.NewIncomingContext(ctx, metadata.MD{hopsKey: sent})
	}
	return w.Callers.Identify(ctx, shownBy(r))
}

// fetch sends the events, one JSON object per line.
func (w *web) fetch(ctx context.Context, in *pb.FetchRequest, out *webAnswer) error {
	out.contentType, out.filename = "application/x-ndjson", "fetch.ndjson"
	return w.Fetch(ctx, in, func(o *wire.Outgoing) error {
		defer o.Release()
		return out.write(o.Message, o.Size, o.Lease(), true)
	}, webMode)
}

// fetchUnary sends the answer as one JSON object.
func (w *web) fetchUnary(ctx context.Context, in *pb.FetchRequest, out *webAnswer) error {
	_, err := w.FetchUnary(ctx, in, "", webMode.Copies, func(resp *pb.FetchUnaryResponse, t *admission.Ticket) error {
		defer t.Release()
		out.contentType, out.filename = "application/json", "fetch.json"
		return out.write(resp, wire.SizeOf(resp), t.Memory, false)
	})
	return err
}

// explain sends the decision as one JSON object.
func (w *web) explain(ctx context.Context, in *pb.ExplainRequest, out *webAnswer) error {
	memory := w.Budget.Lease(admission.Caller(ctx))
	defer memory.Close()
	if !memory.Grow(budget.Request, int64(wire.SizeOf(in))) {
		return out.noMemory("requests")
	}
	resp, err := conversion.Explain(in)
	if err != nil {
		return err
	}
	out.contentType, out.filename = "application/json", "explain.json"
	return out.write(resp, wire.SizeOf(resp), memory, false)
}

// raw sends the body as bytes.
func (w *web) raw(ctx context.Context, in *pb.FetchRequest, out *webAnswer) error {
	a, mode := newRaw(in, out), rawMode
	mode.ID = &a.id
	return w.Fetch(ctx, in, a.send, mode)
}

// shownBy returns the credentials of a request.
func shownBy(r *http.Request) Credentials {
	return Credentials{Token: secure.Bearer(r.Header.Values("Authorization")), TLS: r.TLS}
}

// maxFreeOfConn is the number of uncharged requests in flight on a connection.
const maxFreeOfConn = 4

// bounded charges the memory of a request from its start, except health and metrics, and limits the
// requests of unauthenticated clients.
func (w *web) bounded(routes http.Handler) http.Handler {
	next := door.Limit(routes, w.identifies)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			webapi.Protect(rw.Header())
		}
		switch r.URL.Path {
		case "/healthz", "/readyz", "/metrics": // always answered
			if c := wire.ConnOf(r.Context()); c != nil {
				defer c.Free.Add(-1)
				if c.Free.Add(1) > maxFreeOfConn {
					panic(http.ErrAbortHandler) //nolint:forbidigo // net/http resets this request alone
				}
			}
			door.EndInTime(rw, r, func() { next.ServeHTTP(rw, r) })
			return
		}
		memory := w.Budget.Lease(admission.Caller(r.Context()))
		defer memory.Close()
		if !memory.Grow(budget.Receiving, admission.FetchBytes+wire.FieldBytes(r.Header, admission.HeaderBytes)) {
			webapi.WriteStatus(rw, status.Convert(w.Fetches.NoMemory(r.Context(), "requests")))
			return
		}
		if r.URL.Path != rawPath && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			door.EndInTime(rw, r, func() { next.ServeHTTP(rw, r) })
			return
		}
		next.ServeHTTP(rw, r)            // a fetch has a limit for each write
		door.EndInTime(rw, r, func() {}) // for the bytes that are still buffered
	})
}

// identifies reports whether a request has valid credentials.
func (w *web) identifies(r *http.Request) bool {
	_, err := w.Callers.Identify(r.Context(), shownBy(r))
	return err == nil
}

// openapi describes the HTTP API. Package server/openapi makes it.
//
//go:embed openapi.json
var openapi []byte

// openapiPage returns the description with the version of this build, and its ETag.
var openapiPage = sync.OnceValues(func() (page []byte, etag string) {
	page = bytes.Replace(openapi, []byte(`"version": "devel"`), fmt.Appendf(nil, `"version": %q`, version.String()), 1)
	return page, fmt.Sprintf(`"%x"`, sha256.Sum256(page))
})

// serveOpenAPI serves the description to programs that generate clients, and to people.
func serveOpenAPI(rw http.ResponseWriter, r *http.Request) {
	page, etag := openapiPage()
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("Etag", etag)
	http.ServeContent(rw, r, "", time.Time{}, bytes.NewReader(page))
}
