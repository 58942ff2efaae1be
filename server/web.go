package server

import (
	"context"
	"io"
	"log" //nolint:depguard // http.Server.ErrorLog has this type
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
	"fetchd/observe"
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
	foreign *http.CrossOriginProtection
	hosts   []string // see [Config.Hosts]
}

// newWeb returns the server of the HTTP API. metrics serves /metrics; nil means no metrics.
func newWeb(s *service, cfg *Config, metrics http.Handler) *http.Server {
	w := &web{service: s, logger: cfg.Logger, foreign: http.NewCrossOriginProtection(),
		hosts: cfg.Hosts}
	routes := routes{ServeMux: http.NewServeMux()}
	routes.add("POST", "/v1/fetch", handle(w, readMessage[pb.FetchRequest], w.fetch))
	routes.add("POST", "/v1/fetch:unary", handle(w, readMessage[pb.FetchRequest], w.fetchUnary))
	routes.add("POST", "/v1/explain", handle(w, readMessage[pb.ExplainRequest], w.explain))
	routes.add("GET POST", rawPath, handle(w, (*webAnswer).readRaw, w.raw))
	routes.add("GET", "/v1/descriptor", serveDescriptor)
	routes.add("GET", "/openapi.json", serveOpenAPI)
	routes.add("GET", "/healthz", func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "ok\n") })
	routes.add("GET", "/readyz", w.ready)
	if metrics != nil {
		routes.add("GET", "/metrics", metrics.ServeHTTP)
	}
	if cfg.Console != nil {
		routes.add("GET", "/{$}", w.page(cfg.Console))
		routes.add("GET", "/console/", w.page(cfg.Console))
	}
	routes.rest()
	return &http.Server{
		Handler: w.bounded(routes), TLSConfig: cfg.TLS.Clone(), HTTP2: &http.HTTP2Config{
			MaxReadFrameSize:              16 << 10, // the default, 1 MiB, is kept as a buffer by each connection
			MaxReceiveBufferPerConnection: streamWindow, MaxReceiveBufferPerStream: streamWindow,
			MaxConcurrentStreams: maxWebStreams,
		},
		ReadHeaderTimeout: handshakeTime, ReadTimeout: firstMessageTime, IdleTimeout: webIdleTime, MaxHeaderBytes: maxWebHead,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return peer.NewContext(ctx, &peer.Peer{Addr: c.RemoteAddr()})
		},
		ErrorLog: log.New(io.Discard, "", 0), // its lines would quote requests of unauthenticated clients
	}
}

// ready reports to a load balancer whether to send calls.
func (w *web) ready(rw http.ResponseWriter, _ *http.Request) {
	if w.service.draining.Err() != nil {
		http.Error(rw, "draining", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(rw, "ok\n") // an error means that the client is gone
}

// serveDescriptor serves the contract to clients that generate stubs at run time.
func serveDescriptor(rw http.ResponseWriter, _ *http.Request) {
	rw.Header().Set("Content-Type", "application/x-protobuf")
	attach(rw.Header(), "fetchd.binpb")
	_, _ = rw.Write(descriptor) // an error means that the client is gone
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
		logCall(r.Context(), w.logger, level, slog.String("http.path", r.URL.Path), began, st, text)
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
	out.admitted = true
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
	unsafe := *r
	unsafe.Method = http.MethodPost // Check lets each GET pass, but a GET fetches too
	if err := w.foreign.Check(&unsafe); err != nil {
		return nil, status.Error(codes.PermissionDenied, "a page of another origin may not call this service")
	}
	if !w.hostIsOurs(r, fromBrowser(r)) {
		return nil, foreignHost(r).Err()
	}
	ctx := observe.FromHeader(r.Context(), r.Header)
	if sent := r.Header.Values(fetch.HopsHeader); len(sent) > 0 {
		ctx = metadata.NewIncomingContext(ctx, metadata.MD{hopsKey: sent})
	}
	return w.service.callers.identify(ctx, shownBy(r))
}

// page serves the console, but only under hosts of the service. Under another host, the page and
// what a user types there would belong to the owner of that host.
func (w *web) page(console http.Handler) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if !w.hostIsOurs(r, true) {
			writeStatus(rw, foreignHost(r))
			return
		}
		console.ServeHTTP(rw, r)
	}
}

// fromBrowser reports whether a page may have sent a request. A page cannot leave these headers out.
// Without TLS, a GET of a page to its own host has only Accept-Language. Node's fetch sends that too,
// but with Sec-Fetch-Mode, which a browser never sends without Sec-Fetch-Site.
func fromBrowser(r *http.Request) bool {
	if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return true
	}
	_, language := r.Header["Accept-Language"]
	return language && r.Method != http.MethodPost && r.Header.Get("Sec-Fetch-Mode") == ""
}

func foreignHost(r *http.Request) *status.Status {
	return status.Newf(codes.PermissionDenied, "the host %.60q is not a name of this service: use localhost, its address or a name of --console-host", r.Host)
}

// hostIsOurs reports whether the Host of a request may be a name of the service. It prevents DNS
// rebinding: a browser treats a foreign name that resolves to this server as the server's own
// origin. It is checked on loopback, and for browsers in plaintext. Over TLS the certificate
// protects the service.
func (w *web) hostIsOurs(r *http.Request, browser bool) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return true
	}
	at, err := netip.ParseAddrPort(local.String())
	if err != nil || !at.Addr().Unmap().IsLoopback() && (!browser || r.TLS != nil) {
		return true
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err = netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost") || slices.ContainsFunc(w.hosts, func(h string) bool { return strings.EqualFold(h, host) })
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
