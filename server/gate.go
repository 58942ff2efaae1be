package server

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
	"fetchd/internal/door"
	"fetchd/internal/rejections"
	"fetchd/server/internal/admission"
	"fetchd/server/internal/calls"
	"fetchd/server/internal/wire"
)

// maxLongStreams and maxLongStreamsOfCaller limit the streams without a time limit:
// FetchMany and reflection.
const maxLongStreams, maxLongStreamsOfCaller = 1024, 64

// gate is the interceptor of every call: it checks the caller and the request, charges memory and
// logs a line. It is one interceptor instead of five, because 10,000 calls may wait, each with the
// stack of its interceptors.
type gate struct {
	*calls.Shared
	receiving *wire.Receiving
	streams   *admission.Slots // for streams that are not one fetch; a single fetch is admitted after its request is read
	probes    *door.Probes
	methods   map[string]bool                        // that are served, by their full names
	share     func(context.Context) *admission.Share // of the caller of a call
}

func newGate(s *calls.Shared, refused admission.Refusals) *gate {
	return &gate{Shared: s, receiving: wire.NewReceiving(s.Budget, refused),
		probes:  door.NewProbes(s.Budget.Limit()/probesOfBudget, wire.CallBytes+wire.StreamWindow, s.Callers.Ask != nil),
		streams: admission.New(s.Budget, &admission.Limits{Fetches: maxLongStreams, PerCaller: maxLongStreamsOfCaller}, "TOO_MANY_STREAMS", "TOO_MANY_STREAMS_OF_CALLER", "long streams", refused)}
}

// interceptors returns the interceptors, and the codec that encodes what they return.
func (g *gate) interceptors() []grpc.ServerOption {
	// The default handler would send the panic's value to the caller.
	panics := recovery.WithRecoveryHandlerContext(func(ctx context.Context, p any) error {
		return g.LogPanic(ctx, "panic in a call", p)
	})
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(wire.NewCodec()),
		grpc.ChainUnaryInterceptor(g.unary(recovery.UnaryServerInterceptor(panics))),
		grpc.ChainStreamInterceptor(g.stream(recovery.StreamServerInterceptor(panics))),
	}
}

// unary returns the interceptor of unary calls. guarded recovers panics and calls the handler.
func (g *gate) unary(guarded grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		began := time.Now()
		if err = g.received(ctx, req); err == nil {
			resp, err = guarded(ctx, req, info, handler)
		}
		var out *wire.Outgoing
		if err == nil {
			out, err = wire.PayMessage(ctx, g.streams, resp)
		}
		g.Callers.Leave(ctx, &err)
		g.logCall(ctx, info.FullMethod, began, err)
		if err != nil {
			if c := wire.CallOf(ctx); c != nil && c.Ticket != nil {
				c.Ticket.Release() // the answer is not sent
			}
			return nil, err
		}
		return out, nil
	}
}

// received records that a request has arrived, and checks the caller and the request.
func (g *gate) received(ctx context.Context, req any) error {
	g.receiving.Received(ctx)
	if err := ctx.Err(); err != nil { // the call ended while the end of the request arrived
		return status.FromContextError(err).Err()
	}
	if err := g.Callers.Enter(ctx, wire.CallOf(ctx)); err != nil {
		return err
	}
	return wire.CheckElements(req)
}

// stream returns the interceptor of streams. guarded recovers panics and calls the handler.
func (g *gate) stream(guarded grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		began := time.Now()
		ctx := stream.Context()
		c, err := g.begin(ctx, info.FullMethod)
		defer g.end(c, info.FullMethod)
		if public(info.FullMethod) { // its request is not read
			if err == nil {
				err = guarded(srv, stream, info, handler)
			}
			g.logCall(ctx, info.FullMethod, began, err)
			return err
		}
		if err == nil {
			err = refuseCompressed(ctx)
		}
		if err == nil && info.FullMethod != pb.FetchService_Fetch_FullMethodName {
			var t *admission.Ticket
			if t, err = g.streams.Enter(ctx, nil, admission.Charge{Kind: budget.Receiving, Bytes: wire.ReservedBytes}); err == nil { // for the one request that it may hold at a time
				defer t.Release()
				if c != nil {
					c.Reserved = t.Memory
				}
			}
		}
		if strings.HasPrefix(info.FullMethod, "/grpc.reflection.") { // any of its messages may be the last one
			defer time.AfterFunc(reflectionTime, func() { c.Cancel(status.FromContextError(context.Canceled).Err()) }).Stop()
		}
		if err == nil {
			err = guarded(srv, &callStream{stream, g}, info, handler)
		}
		g.Callers.Leave(ctx, &err)
		g.logCall(ctx, info.FullMethod, began, err)
		return err
	}
}

// fetches are the methods that a drain waits for.
var fetches = map[string]bool{
	pb.FetchService_Fetch_FullMethodName: true, pb.FetchService_FetchUnary_FullMethodName: true,
	pb.FetchService_FetchMany_FullMethodName: true, pb.FetchService_Explain_FullMethodName: true,
}

// errGivenUp is the status of a call whose handler started much too late.
var errGivenUp = status.Error(codes.Unavailable, "the service was too busy to start the call")

// begin records that the handler of a call starts, and counts the call. It returns nil for a call that was given up,
// and for one that gRPC did not make. [gate.end] must be called when the handler returns.
func (g *gate) begin(ctx context.Context, method string) (*wire.Call, error) {
	c := wire.CallOf(ctx)
	if c == nil {
		return nil, nil
	}
	if !c.Start(ctx) {
		return nil, errGivenUp
	}
	if fetches[method] {
		g.InFlight.Add(1)
	}
	return c, nil
}

// end releases what a call holds since its headers arrived. c may be nil.
func (g *gate) end(c *wire.Call, method string) {
	if c == nil {
		return
	}
	c.End()
	if fetches[method] {
		g.InFlight.Add(-1)
	}
}

// refuseCompressed refuses a call with compressed requests by its headers. A few bytes
// could become megabytes. gRPC would also compress the answers, into a copy that cannot
// be charged.
func refuseCompressed(ctx context.Context) error {
	s, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
	if !ok {
		return status.Error(codes.Internal, "internal error")
	}
	if name := s.RecvCompress(); name != "" && name != encoding.Identity {
		return status.Errorf(codes.Unimplemented, "the request is compressed with %.20q: send it without grpc-encoding", name)
	}
	return nil
}

// description returns the description of s, with [unary] methods.
func (g *gate) description(s *service) *grpc.ServiceDesc {
	desc := pb.FetchService_ServiceDesc
	desc.Methods = []grpc.MethodDesc{
		unary(g, "FetchUnary", pb.FetchService_FetchUnary_FullMethodName, s.FetchUnary),
		unary(g, "Explain", pb.FetchService_Explain_FullMethodName, s.Explain),
	}
	return &desc
}

// unary describes a method that checks the headers of a call before its request is read. The generated handler does
// not, and makes three objects for each call.
func unary[In, Out any](g *gate, name, full string, method func(context.Context, *In) (*Out, error)) grpc.MethodDesc {
	info := &grpc.UnaryServerInfo{FullMethod: full}
	handler := func(ctx context.Context, in any) (any, error) {
		m, _ := in.(*In)
		return method(ctx, m)
	}
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, _ func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		c, err := g.begin(ctx, full)
		defer g.end(c, full)
		if err == nil {
			err = refuseCompressed(ctx)
		}
		in := new(In)
		if err == nil {
			err = g.receiving.Message(ctx, in, true)
		}
		if err != nil {
			return nil, err
		}
		return interceptor(ctx, in, info, handler)
	}}
}

// callStream limits the requests of a stream, and charges its messages.
type callStream struct {
	grpc.ServerStream
	gate *gate
}

// RecvMsg implements grpc.ServerStream.
func (s *callStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.gate.received(s.Context(), m)
}

// SendMsg implements grpc.ServerStream.
func (s *callStream) SendMsg(m any) error {
	o, ok := m.(*wire.Outgoing)
	if !ok {
		var err error
		if o, err = wire.PayMessage(s.Context(), s.gate.streams, m); err != nil {
			return err
		}
	}
	return o.Send(s.ServerStream)
}

// logCall logs the end of a gRPC call. The logging interceptor of the middleware would hold a
// kilobyte of fields for each call in flight.
func (g *gate) logCall(ctx context.Context, method string, began time.Time, err error) {
	st := status.Convert(err)
	level := calls.Level(st.Code())
	if public(method) && level < slog.LevelError { // anyone may call it as often as they like
		level = slog.LevelDebug
	}
	g.LogEnd(ctx, level, slog.String("grpc.method", method), admission.Name(ctx), began, st, st.Message())
}

// public reports whether a method needs no credentials: health checks, because orchestrators
// have none.
func public(method string) bool {
	return strings.HasPrefix(method, "/"+healthpb.Health_ServiceDesc.ServiceName+"/")
}

// Limits on the connections of callers. They limit memory and time, and do not affect callers that
// behave well.
const (
	maxMetadataBytes = 16 << 10
	maxStreams       = 1000             // calls in flight on one connection
	callWorkers      = 128              // goroutines that run calls one after another, so that stacks do not grow for each call
	reflectionTime   = time.Minute      // of a whole reflection call
	idleTime         = 15 * time.Minute // of a connection without calls
	pingAfter        = 30 * time.Second // of silence, to notice a caller that is gone
	pingTimeout      = 20 * time.Second
	minPingInterval  = 10 * time.Second // between pings of a caller
	connWindow       = 1 << 20          // of a connection
	readBuffer       = 8 << 10          // of a connection; it also limits how many calls arrive at once
)

// options returns the options of gRPC: the interceptors, outermost first, and the limits.
func (g *gate) options(cfg *Config) []grpc.ServerOption {
	receive := grpc.ChainStreamInterceptor(g.receiving.Stream) // outermost, so that messages are counted
	limits := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(wire.MaxRequestBytes), // of calls that [wire.Receiving] does not receive
		grpc.MaxHeaderListSize(maxMetadataBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.NumStreamWorkers(callWorkers),
		grpc.StaticStreamWindowSize(wire.StreamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.ConnectionTimeout(wire.HandshakeTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout, MaxConnectionIdle: idleTime}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingInterval, PermitWithoutStream: true}),
		grpc.ReadBufferSize(readBuffer),
		door.Tap(g.tapped),
	}
	identity := door.Credentials(cfg.TLS, g.Callers.ByCertificate)
	if cfg.TLS != nil {
		identity = cfg.Handshakes.Credentials(identity)
	}
	limits = append(limits, grpc.Creds(identity))
	return slices.Concat([]grpc.ServerOption{receive}, cfg.Observe.ServerOptions(), g.interceptors(), limits)
}

// tapped returns the context of a call when its headers have arrived, before gRPC starts a goroutine for
// its handler. What is refused here costs no more than the refusal. Everything else is charged until its handler
// returns: see [gate.begin]. It must not wait, because gRPC holds locks.
func (g *gate) tapped(ctx context.Context, info *tap.Info) (context.Context, error) {
	from := wire.ConnOf(ctx)
	if err := door.FromContext(ctx).MayCall(); err != nil {
		go from.Drop() // it waits for locks
		return ctx, status.Errorf(codes.ResourceExhausted, "%v", err)
	}
	named, err := g.Callers.Identify(ctx, wire.CredentialsIn(ctx, info.Header))
	switch {
	case err != nil && !public(info.FullMethodName):
		g.Stranger(ctx, err)
		return ctx, err
	case !g.methods[info.FullMethodName]:
		return ctx, status.Errorf(codes.Unimplemented, "there is no method %.100q", info.FullMethodName)
	case ctx.Err() != nil:
		return ctx, status.FromContextError(ctx.Err()).Err()
	case public(info.FullMethodName):
		return g.probe(named, info.FullMethodName)
	}
	c, err := g.receiving.Expect(named, info.Header, func(memory *budget.Lease) error {
		return g.Fetches.NoMemoryOf(named, g.share(named), memory, wire.CallBytes+wire.StreamWindow)
	})
	if err != nil {
		return ctx, err
	}
	return c, nil
}

// probesOfBudget is the divisor of the memory budget that gives the memory of health calls. They are not
// charged to it: a probe must be answered when it is used up.
const probesOfBudget = 8

// probe admits a health check, or refuses it with RESOURCE_EXHAUSTED.
func (g *gate) probe(ctx context.Context, method string) (context.Context, error) {
	call, crowd := g.probes.Enter(door.FromContext(ctx), admission.Caller(ctx), method == healthpb.Health_Watch_FullMethodName)
	switch crowd {
	case door.NoCrowd:
		return wire.Probe(ctx, call), nil
	case door.OfConn:
		return ctx, g.Fetches.Refused.Refuse(ctx, "TOO_MANY_STREAMS_OF_CALLER", "this connection has as many health calls in flight as it may")
	default:
		return ctx, g.Fetches.Refused.Refuse(ctx, "TOO_MANY_STREAMS", "the server has as many health calls in flight as it may")
	}
}

// dropped counts and logs a connection that is closed for what it did.
func (g *gate) dropped(caller string, cause door.Cause) {
	reason := strings.ToUpper(string(cause))
	g.Fetches.Refused(caller, reason)
	g.Rejected.Add(rejections.Call{Caller: caller, Reason: reason, Error: "the connection was closed: " + cause.Text()})
}
