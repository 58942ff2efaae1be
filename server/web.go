package server

import (
	"context"
	"io"
	"log" //nolint:depguard // http.Server.ErrorLog has this type
	"log/slog"
	"math"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
	"fetchd/internal/door"
	"fetchd/internal/webapi"
	"fetchd/server/observe"
)

const (
	// maxJSONBytes limits a request. Base64 makes a body of 1 MiB longer by a third.
	maxJSONBytes = 3 << 20
	// maxWebHead limits the head of a request. net/http allows 4 KiB more. Short fields use
	// twenty times their length in memory.
	maxWebHead = 4 << 10
	// maxWebStreams is the number of requests in flight on one HTTP/2 connection.
	maxWebStreams = 32
	// webIdleTime is how long a connection may wait for its next request.
	webIdleTime = 2 * time.Minute
)

// web serves the HTTP API: calls of the contract as JSON, health and metrics.
type web struct {
	service *service
	logger  *slog.Logger
	guard   webapi.Guard
}

// newWeb returns the server of the HTTP API. metrics serves /metrics; nil means no metrics.
func newWeb(s *service, cfg *Config, metrics http.Handler) *http.Server {
	w := &web{service: s, logger: cfg.Logger, guard: webapi.Guard{Hosts: cfg.Hosts, Flag: "--console-host"}}
	routes := webapi.NewRoutes()
	routes.Add("POST", "/v1/fetch", handle(w, readMessage[pb.FetchRequest], w.fetch))
	routes.Add("POST", "/v1/fetch:unary", handle(w, readMessage[pb.FetchRequest], w.fetchUnary))
	routes.Add("POST", "/v1/explain", handle(w, readMessage[pb.ExplainRequest], w.explain))
	routes.Add("GET POST", rawPath, handle(w, (*webAnswer).readRaw, w.raw))
	routes.AddDescriptor("fetchd.binpb", descriptor)
	routes.Add("GET", "/openapi.json", webapi.Cached(http.HandlerFunc(serveOpenAPI)))
	routes.AddHealth(s.draining)
	if metrics != nil {
		routes.Add("GET", "/metrics", webapi.Cached(metrics))
	}
	if cfg.Console != nil {
		routes.Add("GET", "/{$}", w.guard.Page(cfg.Console))
		routes.Add("GET", "/console/", w.guard.Page(cfg.Console))
	}
	routes.Rest()
	return &http.Server{
		Handler: w.bounded(routes), TLSConfig: door.TLS(cfg.TLS), HTTP2: &http.HTTP2Config{
			MaxReadFrameSize:              16 << 10, // the default, 1 MiB, is kept as a buffer by each connection
			MaxReceiveBufferPerConnection: streamWindow, MaxReceiveBufferPerStream: streamWindow,
			MaxConcurrentStreams: maxWebStreams,
		},
		ReadHeaderTimeout: handshakeTime, ReadTimeout: firstMessageTime, IdleTimeout: webIdleTime, MaxHeaderBytes: maxWebHead,
		ConnContext: door.ConnContext,
		ConnState:   cfg.Handshakes.ConnState,
		ErrorLog:    log.New(io.Discard, "", 0), // its lines would quote requests of unauthenticated clients
	}
}

type (
	readFunc[M any] func(*webAnswer, *http.Request, *budget.Lease) (M, error)
	callFunc[M any] func(context.Context, M, *webAnswer) error
)

// handle returns the handler of a method, whose request read returns. It logs a line.
func handle[M any](w *web, read readFunc[M], method callFunc[M]) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		out := &webAnswer{rw: rw, control: http.NewResponseController(rw), stall: w.service.stall,
			noMemory: func(things string) error { return w.service.admission.noMemory(r.Context(), things) }}
		began := time.Now()
		w.service.calls.Add(1)
		defer w.service.calls.Add(-1)
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
		if w.service.callers.ask != nil && !out.admitted && level < slog.LevelError {
			level = slog.LevelDebug // unauthenticated clients must not fill the log
		}
		w.service.finished.finished(r.Context(), level, slog.String("http.path", r.URL.Path), out.caller, began, st, text)
		out.abort()
	}
}

// runGuarded admits a request, reads it and calls method. A panic ends only this call.
func runGuarded[M any](w *web, read readFunc[M], method callFunc[M], r *http.Request, out *webAnswer) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = logPanic(r.Context(), w.logger, "panic in a call", p)
		}
	}()
	ctx, err := w.admit(r)
	if err != nil {
		return err
	}
	out.admitted, out.caller = true, nameOf(ctx)
	ctx, release := cancellable(ctx)
	defer release(nil)
	defer w.service.callers.leave(ctx, &err)
	if err := w.service.callers.enter(ctx); err != nil {
		return err
	}
	memory := w.service.budget.Lease(callerOf(ctx))
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
	if w.service.draining.Err() != nil {
		return nil, status.Error(codes.Unavailable, "the server is shutting down: call another replica")
	}
	if err := w.guard.Check(r); err != nil {
		return nil, err
	}
	ctx := observe.FromHeader(r.Context(), r.Header)
	if sent := r.Header.Values(fetch.HopsHeader); len(sent) > 0 {
		ctx = metadata.NewIncomingContext(ctx, metadata.MD{hopsKey: sent})
	}
	return w.service.callers.identify(ctx, shownBy(r))
}

// webMode is for HTTP: a message is held as itself and as JSON, where bytes are a third longer.
var webMode = sendMode{unblocked: math.MaxInt, copies: 3}

// fetch sends the events, one JSON object per line.
func (w *web) fetch(ctx context.Context, in *pb.FetchRequest, out *webAnswer) error {
	out.contentType, out.filename = "application/x-ndjson", "fetch.ndjson"
	return w.service.fetch(ctx, in, func(o *outgoing) error {
		defer o.release()
		return out.write(o.message, o.size, o.lease(), true)
	}, webMode)
}

// fetchUnary sends the answer as one JSON object.
func (w *web) fetchUnary(ctx context.Context, in *pb.FetchRequest, out *webAnswer) error {
	_, err := w.service.fetchUnary(ctx, in, "", webMode.copies, func(resp *pb.FetchUnaryResponse, t *ticket) error {
		defer t.release()
		out.contentType, out.filename = "application/json", "fetch.json"
		return out.write(resp, sizeOf(resp), t.memory, false)
	})
	return err
}

// explain sends the decision as one JSON object.
func (w *web) explain(ctx context.Context, in *pb.ExplainRequest, out *webAnswer) error {
	memory := w.service.budget.Lease(callerOf(ctx))
	defer memory.Close()
	if !memory.Grow(budget.Request, int64(sizeOf(in))) {
		return out.noMemory("requests")
	}
	resp, err := w.service.Explain(ctx, in)
	if err != nil {
		return err
	}
	out.contentType, out.filename = "application/json", "explain.json"
	return out.write(resp, sizeOf(resp), memory, false)
}
