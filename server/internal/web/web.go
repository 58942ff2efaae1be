// Package web serves the HTTP API: calls of the contract as JSON, as lines of JSON and as raw bodies,
// and the pages for programs and people.
package web

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
	"fetchd/fetch/auth/httpsig"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
	"fetchd/internal/door"
	"fetchd/internal/secure"
	"fetchd/internal/tlswatch"
	"fetchd/internal/version"
	"fetchd/internal/webapi"
	"fetchd/server/internal/admission"
	"fetchd/server/internal/calls"
	"fetchd/server/internal/conversion"
	"fetchd/server/internal/wire"
	"fetchd/server/observe"
)

const (
	// maxHead limits the head of a request. net/http allows 4 KiB more. Short fields use
	// twenty times their length in memory.
	maxHead = 4 << 10
	// maxStreams is the number of requests in flight on one HTTP/2 connection.
	maxStreams = 32
	// idleTime is how long a connection may wait for its next request.
	idleTime = 2 * time.Minute
	// buffering is a header. With the value no it makes a proxy such as nginx pass on each piece as it comes.
	buffering = "X-Accel-Buffering"
)

// Config configures the HTTP API.
type Config struct {
	*calls.Shared
	// Fetch and FetchUnary are the methods of the service.
	Fetch      func(ctx context.Context, in *pb.FetchRequest, send func(*wire.Outgoing) error, mode calls.Mode) error
	FetchUnary func(ctx context.Context, in *pb.FetchRequest, mode calls.Mode, deliver func(*pb.FetchUnaryResponse, int, *admission.Ticket) error) (*pb.FetchUnaryResponse, error)
	Metrics    http.Handler // serves /metrics; nil means no metrics
	Console    http.Handler // serves the console; nil means none
	Hosts      []string     // names of the service that a browser may use
	TLS        *tls.Config  // nil means plaintext
	Handshakes *tlswatch.Handshakes
	Descriptor []byte // the contract
	Directory  *Directory
}

// New returns the server of the HTTP API.
func New(cfg *Config) *http.Server {
	w := &api{Config: cfg, guard: webapi.Guard{Hosts: cfg.Hosts, Flag: "--console-host"}}
	routes := webapi.NewRoutes()
	routes.Add("POST", "/v1/fetch", handle(w, readMessage[pb.FetchRequest], w.fetch))
	routes.Add("POST", "/v1/fetch:unary", handle(w, readMessage[pb.FetchRequest], w.fetchUnary))
	routes.Add("POST", "/v1/explain", handle(w, readMessage[pb.ExplainRequest], w.explain))
	routes.Add("GET POST", rawPath, handle(w, (*answer).readRaw, w.raw))
	for _, method := range []string{http.MethodPut, http.MethodPatch, http.MethodDelete} {
		routes.HandleFunc(method+" "+rawPath, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Allow", "GET, HEAD, POST")
			webapi.SendStatus(rw, http.StatusMethodNotAllowed, status.Newf(codes.Unimplemented, `%q does not allow the method %q: use POST with the header Fetchd-Request: {"method":%[2]q}`, rawPath, method))
		})
	}
	routes.AddDescriptor("fetchd.binpb", cfg.Descriptor)
	routes.Add("GET", "/openapi.json", webapi.Cached(http.HandlerFunc(serveOpenAPI)))
	routes.AddHealth(cfg.Draining)
	routes.Add("GET", httpsig.DirectoryPath, cfg.Directory.ServeHTTP)
	if cfg.Metrics != nil {
		routes.Add("GET", "/metrics", webapi.Cached(cfg.Metrics))
	}
	if cfg.Console != nil {
		routes.Add("GET", "/{$}", w.guard.Page(cfg.Console))
		routes.Add("GET", "/console/", w.guard.Page(cfg.Console))
	} else {
		routes.Mention("GET /console/ if fetchd is started with --console")
	}
	routes.Rest()
	return &http.Server{
		Handler: w.bounded(routes), TLSConfig: door.TLS(cfg.TLS), HTTP2: &http.HTTP2Config{
			MaxReadFrameSize:              16 << 10, // the default, 1 MiB, is kept as a buffer by each connection
			MaxReceiveBufferPerConnection: wire.StreamWindow, MaxReceiveBufferPerStream: wire.StreamWindow,
			MaxConcurrentStreams: maxStreams,
		},
		ReadHeaderTimeout: wire.HandshakeTime, ReadTimeout: wire.FirstMessageTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHead,
		ConnContext: door.ConnContext,
		ConnState:   cfg.Handshakes.ConnState,
		ErrorLog:    log.New(io.Discard, "", 0), // its lines would quote requests of unauthenticated clients
	}
}

// api serves calls of the contract.
type api struct {
	*Config
	guard webapi.Guard
}

// handle returns the handler of a method, whose request read returns. It logs a line.
func handle[M any](w *api, read func(*answer, *http.Request, *budget.Lease) (M, error), method func(context.Context, M, *answer) error) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		out := &answer{rw: rw, control: http.NewResponseController(rw), stall: w.Stall,
			noMemory: func(things string) error { return w.Fetches.NoMemory(r.Context(), things) },
			noAnswer: func() error { return w.Fetches.NoAnswer(r.Context()) }}
		began := time.Now()
		w.InFlight.Add(1)
		defer w.InFlight.Add(-1)
		err := runGuarded(w, read, method, r, out)
		if out.stalled { // net/http then cancels the context, as if the caller had left
			err = calls.Stalled(out.stall)
		}
		st := status.Convert(err)
		if err != nil {
			out.fail(st)
		}
		text := st.Message()
		if out.quotes {
			text = "not logged: it may quote the request"
		}
		level := calls.Level(st.Code())
		if w.Callers.Ask != nil && !out.admitted && level < slog.LevelError {
			level = slog.LevelDebug // unauthenticated clients must not fill the log
		}
		w.LogEnd(r.Context(), level, slog.String("http.path", r.URL.Path), out.caller, began, st, text)
		out.abort()
	}
}

// runGuarded admits a request, reads it and calls method. A panic ends only this call.
func runGuarded[M any](w *api, read func(*answer, *http.Request, *budget.Lease) (M, error), method func(context.Context, M, *answer) error, r *http.Request, out *answer) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = w.LogPanic(r.Context(), "panic in a call", p)
		}
	}()
	ctx, err := w.admit(r)
	if err != nil {
		return err
	}
	out.admitted, out.caller = true, admission.Name(ctx)
	ctx, release := context.WithCancel(ctx)
	defer release()
	defer w.Callers.Leave(ctx, &err)
	if err := w.Callers.Enter(ctx, admission.RevokeFunc(release)); err != nil {
		return err
	}
	in, err := readCharging(w, read, r, out, admission.Caller(ctx))
	if err != nil {
		return err
	}
	return method(ctx, in, out)
}

// readCharging reads a request, and charges its memory meanwhile.
func readCharging[M any](w *api, read func(*answer, *http.Request, *budget.Lease) (M, error), r *http.Request, out *answer, caller string) (M, error) {
	memory := w.Budget.Lease(caller)
	defer memory.Close() // even after a panic
	return read(out, r, memory)
}

// admit identifies the caller. It refuses a browser that calls for a page of another origin:
// otherwise any page could reach the network of the service.
func (w *api) admit(r *http.Request) (context.Context, error) {
	if w.Draining.Err() != nil {
		return nil, status.Error(codes.Unavailable, "the server is shutting down: call another replica")
	}
	if err := w.guard.Check(r); err != nil {
		return nil, err
	}
	ctx := observe.FromHeader(r.Context(), r.Header)
	if sent := r.Header.Values(fetch.HopsHeader); len(sent) > 0 {
		ctx = metadata.NewIncomingContext(ctx, metadata.MD{strings.ToLower(fetch.HopsHeader): sent})
	}
	named, err := w.Callers.Identify(ctx, shownBy(r))
	if err != nil {
		w.Stranger(ctx, err)
	}
	return named, err
}

// fetch sends the messages, one JSON object per line.
func (w *api) fetch(ctx context.Context, in *pb.FetchRequest, out *answer) error {
	out.contentType, out.filename = "application/x-ndjson", "fetch.ndjson"
	outcomeOnly := in.GetEventLevel() == pb.EventLevel_EVENT_LEVEL_OUTCOME
	return w.Fetch(ctx, in, func(o *wire.Outgoing) error {
		defer o.Release()
		out.ran = out.ran || outcomeOnly // the first message may be a heartbeat
		err := out.write(o.Message, o.Size, o.Lease(), true)
		out.ran = true // after the first message, which is sent before the first request unless it has the outcome
		return err
	}, jsonMode)
}

// fetchUnary sends the answer as one JSON object.
func (w *api) fetchUnary(ctx context.Context, in *pb.FetchRequest, out *answer) error {
	_, err := w.FetchUnary(ctx, in, jsonMode, func(resp *pb.FetchUnaryResponse, size int, t *admission.Ticket) error {
		defer t.Release()
		out.ran = true
		out.contentType, out.filename = "application/json", "fetch.json"
		return out.write(resp, size, t.Memory, false)
	})
	return err
}

// explain sends the decision as one JSON object.
func (w *api) explain(ctx context.Context, in *pb.ExplainRequest, out *answer) error {
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
func (w *api) raw(ctx context.Context, in *pb.FetchRequest, out *answer) error {
	a, mode := newRaw(in, out), rawMode
	mode.ID = &a.id
	return w.Fetch(ctx, in, a.send, mode)
}

// shownBy returns the credentials of a request.
func shownBy(r *http.Request) admission.Credentials {
	return admission.Credentials{Token: secure.Bearer(r.Header.Values("Authorization")), TLS: r.TLS}
}

// maxFreeOfConn is the number of uncharged requests in flight on a connection.
const maxFreeOfConn = 4

// bounded charges the memory of a request from its start, except for small public pages, and limits the
// requests of unauthenticated clients.
func (w *api) bounded(routes http.Handler) http.Handler {
	next := door.Limit(routes, w.identifies)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			webapi.Protect(rw.Header())
		}
		switch r.URL.Path {
		case "/healthz", "/readyz", "/metrics", httpsig.DirectoryPath: // always answered
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
func (w *api) identifies(r *http.Request) bool {
	_, err := w.Callers.Identify(r.Context(), shownBy(r))
	return err == nil
}

// openapi describes the HTTP API. Command server/openapi makes it.
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
