package service

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"google.golang.org/grpc"

	pb "fetchd/gen/fetchd/v1"
)

// details are the whole errors of the service inside, from its log. The service leaves the addresses
// of resolvers and proxies out of its answers, because they are not for callers elsewhere.
type details struct {
	proxies proxies

	mu     sync.Mutex
	errors map[attemptKey]string
}

// maxDetails is the maximum number of errors that are kept. Each has at most 1 KiB, and at most 64
// fetches are in flight.
const maxDetails = 1024

// attemptKey identifies an attempt, or with number 0 the outcome of a fetch.
type attemptKey struct {
	fetchID string
	number  int32
}

// Enabled implements slog.Handler.
func (d *details) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// WithAttrs implements slog.Handler.
func (d *details) WithAttrs([]slog.Attr) slog.Handler { return d }

// WithGroup implements slog.Handler.
func (d *details) WithGroup(string) slog.Handler { return d }

// Handle implements slog.Handler. It keeps the error of a line about an attempt or a fetch.
func (d *details) Handle(_ context.Context, line slog.Record) error {
	var key attemptKey
	var text string
	line.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "fetch_id":
			key.fetchID = a.Value.String()
		case "attempt":
			key.number = int32(a.Value.Int64())
		case "error":
			text = a.Value.String()
		}
		return true
	})
	if key.fetchID != "" && text != "" {
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.errors) >= maxDetails {
			clear(d.errors) // of fetches whose events nothing reads any more
		}
		d.errors[key] = text
	}
	return nil
}

// intercept completes the errors in the events of a fetch.
func (d *details) intercept(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, conn, method, opts...)
	if err != nil {
		return nil, err
	}
	return &detailedStream{ClientStream: stream, details: d}, nil
}

// detailedStream is the stream of one fetch.
type detailedStream struct {
	grpc.ClientStream
	details *details
	fetchID string
}

// RecvMsg implements grpc.ClientStream.
func (s *detailedStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	resp, _ := m.(*pb.FetchResponse)
	for _, event := range resp.GetEvents() {
		switch e := event.GetEvent().(type) {
		case *pb.FetchEvent_Admitted:
			s.fetchID = e.Admitted.GetFetchId()
		case *pb.FetchEvent_AttemptFinished:
			s.details.complete(attemptKey{s.fetchID, e.AttemptFinished.GetAttempt()}, e.AttemptFinished.GetError())
		case *pb.FetchEvent_Outcome:
			s.details.complete(attemptKey{s.fetchID, 0}, e.Outcome.GetError())
		}
	}
	return nil
}

// complete replaces the transport's part of a detail by the whole error, if that names a resolver or
// a proxy.
func (d *details) complete(key attemptKey, e *pb.FetchError) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.GetReason() == "certificate_unknown_authority" {
		e.Message = strings.Replace(e.GetMessage(), "that this server trusts", "that is trusted here (--cacert FILE trusts those in FILE)", 1)
	}
	text := d.errors[key]
	delete(d.errors, key)
	proxy, proxied := d.proxies.of(e.GetUrl())
	if text == "" || !proxied && e.GetPhase() != pb.Phase_PHASE_RESOLVE {
		return
	}
	if proxied && e.GetPhase() == pb.Phase_PHASE_CONNECT && !strings.Contains(text, proxy.url.Host) {
		text = "proxy " + proxy.url.Host + ": " + text // the text of a CONNECT that the proxy refused does not name it
	}
	if strings.Contains(e.GetDetail(), text) {
		return
	}
	host, rest, _ := strings.Cut(e.GetDetail(), ": ")
	if status, _, ok := strings.Cut(rest, ": "); ok && strings.HasPrefix(status, "status ") {
		host += ": " + status
	}
	e.Detail = host + ": " + text
}
