package server

import (
	"context"
	"io"
	"log" //nolint:depguard // net/http takes no other
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/observe"
)

const (
	// maxJSONBytes is the longest request taken: JSON writes a body of 1 MiB in a
	// third more.
	maxJSONBytes = 3 << 20
	// maxWebHead is the longest request head, less the 4 KiB that net/http adds. Short
	// fields use twenty times that in memory.
	maxWebHead = 4 << 10
	// maxWebStreams is the number of requests in flight on one HTTP/2 connection.
	maxWebStreams = 32
	// webIdleTime is how long a connection may wait for its next request.
	webIdleTime = 2 * time.Minute
)

// web is the HTTP face: the calls of the contract as JSON, and what operators
// ask.
type web struct {
	service *service
	logger  *slog.Logger
	foreign *http.CrossOriginProtection
	hosts   []string // names of the service, besides localhost and addresses
}

// newWeb returns the server of the HTTP face. metrics answers /metrics.
func newWeb(s *service, cfg *Config, metrics http.Handler) *http.Server {
	w := &web{service: s, logger: cfg.Logger, foreign: http.NewCrossOriginProtection(),
		hosts: cfg.Hosts}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/fetch", w.call(w.fetch))
	mux.HandleFunc("POST /v1/fetch:unary", w.call(w.fetchUnary))
	mux.HandleFunc("GET /v1/descriptor", serveDescriptor)
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "ok\n") })
	mux.HandleFunc("GET /readyz", w.ready)
	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	if cfg.Console != nil {
		mux.HandleFunc("GET /{$}", w.page(cfg.Console))
		mux.HandleFunc("GET /console/", w.page(cfg.Console))
	}
	mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		writeStatus(rw, status.Newf(codes.NotFound, "there is no %s %.60q: see POST /v1/fetch, POST /v1/fetch:unary, /v1/descriptor, /metrics, /healthz, /readyz", r.Method, r.URL.Path))
	})
	return &http.Server{
		Handler: w.bounded(mux), TLSConfig: cfg.TLS.Clone(), HTTP2: &http.HTTP2Config{
			MaxReadFrameSize:              16 << 10, // the default, 1 MiB, is kept as a buffer by each connection
			MaxReceiveBufferPerConnection: streamWindow, MaxReceiveBufferPerStream: streamWindow,
			MaxConcurrentStreams: maxWebStreams,
		},
		ReadHeaderTimeout: handshakeTime, ReadTimeout: firstMessageTime, IdleTimeout: webIdleTime, MaxHeaderBytes: maxWebHead,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return peer.NewContext(ctx, &peer.Peer{Addr: c.RemoteAddr()})
		},
		ErrorLog: log.New(io.Discard, "", 0), // it would write what strangers send
	}
}

// ready tells a balancer whether to send calls.
func (w *web) ready(rw http.ResponseWriter, _ *http.Request) {
	if w.service.draining.Err() != nil {
		http.Error(rw, "draining", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(rw, "ok\n") // who asked is gone
}

// serveDescriptor gives the contract to clients that make their stubs themselves.
func serveDescriptor(rw http.ResponseWriter, _ *http.Request) {
	rw.Header().Set("Content-Type", "application/x-protobuf")
	rw.Header().Set("Content-Disposition", `attachment; filename="fetchd.binpb"`)
	_, _ = rw.Write(descriptor) // who asked is gone
}

// call wraps a method: who calls, the request, a line in the log, a panic.
func (w *web) call(method func(ctx context.Context, in *pb.FetchRequest, out *webAnswer) error) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		out := &webAnswer{rw: rw, control: http.NewResponseController(rw), patience: w.service.stall, admission: w.service.admission}
		began := time.Now()
		w.service.calls.Add(1)
		defer w.service.calls.Add(-1)
		err := w.guarded(method, r, out)
		if err != nil {
			out.fail(status.Convert(err))
		}
		code := status.Code(err)
		attrs := []slog.Attr{slog.String("http.path", r.URL.Path), slog.String("grpc.code", code.String()),
			slog.Float64("duration_seconds", time.Since(began).Round(time.Microsecond).Seconds()), slog.String("peer.address", r.RemoteAddr)}
		if err != nil && !out.quotes {
			attrs = append(attrs, slog.String("grpc.error", status.Convert(err).Message()))
		}
		level := callLevel(code)
		if w.service.callers.ask != nil && !out.admitted && level < slog.LevelError {
			level = slog.LevelDebug // unauthenticated clients must not fill the log
		}
		w.logger.LogAttrs(r.Context(), level, "finished call", attrs...)
	}
}

// guarded has a panic cost one call.
func (w *web) guarded(method func(context.Context, *pb.FetchRequest, *webAnswer) error, r *http.Request, out *webAnswer) (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.logger.ErrorContext(r.Context(), "panic in a call", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			err = status.Error(codes.Internal, "internal error")
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
	in, err := out.read(r, memory)
	memory.Close()
	if err != nil {
		return err
	}
	return method(ctx, in, out)
}

// admit says who calls. A browser must not call for a page of somebody else's:
// that would open the service's network to any page.
func (w *web) admit(r *http.Request) (context.Context, error) {
	if w.service.draining.Err() != nil {
		return nil, status.Error(codes.Unavailable, "the server is going away: ask another replica")
	}
	if err := w.foreign.Check(r); err != nil {
		return nil, status.Error(codes.PermissionDenied, "a page of another origin may not call this service")
	}
	if browser := r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""; !w.hostIsOurs(r, browser) {
		return nil, foreignHost(r).Err()
	}
	ctx := observe.FromHeader(r.Context(), r.Header)
	if sent := r.Header.Values(fetch.HopsHeader); len(sent) > 0 {
		ctx = metadata.NewIncomingContext(ctx, metadata.MD{hopsKey: sent})
	}
	return w.service.callers.identify(ctx, shownBy(r))
}

// page serves the console, to hosts that are the service's alone: what a foreign
// name shows to a browser is that name's, and so is what is typed there.
func (w *web) page(console http.Handler) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if !w.hostIsOurs(r, true) {
			writeStatus(rw, foreignHost(r))
			return
		}
		console.ServeHTTP(rw, r)
	}
}

func foreignHost(r *http.Request) *status.Status {
	return status.Newf(codes.PermissionDenied, "the host %.60q is not this service's: call it by localhost, its address or a name of --console-host", r.Host)
}

// hostIsOurs refuses names that lead to a listener on loopback, and in plaintext
// to any: a page whose name is made to point there is of our own origin to the
// browser. Over TLS the certificate tells such a name from the service's.
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

// webMode is for HTTP: a message is held as itself and as JSON, a third larger for bytes.
var webMode = sendMode{unblocked: math.MaxInt, copies: 3}

// fetch sends what happens, one JSON object a line.
func (w *web) fetch(ctx context.Context, in *pb.FetchRequest, out *webAnswer) error {
	out.contentType = "application/x-ndjson"
	return w.service.fetch(ctx, in, func(o *outgoing) error {
		defer o.release()
		return out.write(o.message, true)
	}, webMode)
}

// fetchUnary sends the outcome.
func (w *web) fetchUnary(ctx context.Context, in *pb.FetchRequest, out *webAnswer) error {
	_, err := w.service.fetchUnary(ctx, in, "", webMode.copies, func(resp *pb.FetchUnaryResponse, t *ticket) error {
		defer t.release()
		out.contentType = "application/json"
		return out.write(resp, false)
	})
	return err
}
