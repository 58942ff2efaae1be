// Package relay is the lower bound for fetchd: a server of the same API that makes one
// request with net/http and returns the response. It has no policy, retries, events, guard,
// metrics or log. Its transports have the settings of fetchd's, so that a difference comes
// from the work and not from buffers.
package relay

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
)

// A chunk and its frame fit into a 32 KiB buffer of gRPC.
const chunkBytes, maxInline = 31 << 10, 1 << 20

// Config configures a relay.
type Config struct {
	// RootCAs verifies origins. Nil means the system's roots.
	RootCAs *x509.CertPool
	// Wait makes Fetch send one message and then wait on a timer instead of fetching. Zero
	// means that it fetches.
	Wait time.Duration
}

type relay struct {
	pb.UnimplementedFetchServiceServer
	client *http.Client
	wait   time.Duration
	chunks sync.Pool // of *[]byte
}

// New returns a server. Call Serve to start it.
func New(cfg Config) *grpc.Server {
	r := &relay{wait: cfg.Wait, client: &http.Client{Transport: &http.Transport{ // the settings of package fetch
		TLSClientConfig:     &tls.Config{RootCAs: cfg.RootCAs, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(1024)},
		TLSHandshakeTimeout: 10 * time.Second,
		DialContext:         (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true,
		MaxIdleConns:        1024, MaxIdleConnsPerHost: 512, IdleConnTimeout: 90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 128 << 10, SendPingTimeout: 15 * time.Second,
			PingTimeout: 15 * time.Second, WriteByteTimeout: 5 * time.Second},
	}}}
	r.chunks.New = func() any { p := make([]byte, chunkBytes); return &p }
	s := grpc.NewServer(grpc.MaxRecvMsgSize(4<<20), grpc.MaxHeaderListSize(16<<10), // the settings of package server
		grpc.MaxConcurrentStreams(1000), grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second, MaxConnectionIdle: 15 * time.Minute}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}))
	pb.RegisterFetchServiceServer(s, r)
	return s
}

// FetchUnary implements fetchd.v1.FetchService.FetchUnary.
func (r *relay) FetchUnary(ctx context.Context, in *pb.FetchRequest) (*pb.FetchUnaryResponse, error) {
	resp, err := r.get(ctx, in.GetUrl())
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body := make([]byte, min(max(resp.ContentLength, 0), maxInline))
	if _, err := io.ReadFull(resp.Body, body); err != nil {
		return nil, status.Errorf(codes.Unavailable, "read the body: %v", err)
	}
	return &pb.FetchUnaryResponse{Outcome: &pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS,
		FinalUrl: resp.Request.URL.String(), Response: head(resp), AttemptCount: 1, Body: &pb.FetchOutcome_InlineBody{InlineBody: body}}}, nil
}

// Fetch implements fetchd.v1.FetchService.Fetch. Each message has one event, so a body of one chunk
// needs four. For a longer one the last message has the SHA-256.
func (r *relay) Fetch(in *pb.FetchRequest, stream grpc.ServerStreamingServer[pb.FetchResponse]) error {
	err := stream.Send(&pb.FetchResponse{Events: []*pb.FetchEvent{{Event: &pb.FetchEvent_Admitted{Admitted: &pb.Admitted{}}}}})
	if err != nil || r.wait > 0 {
		return errors.Join(err, r.pause(stream.Context()))
	}
	resp, err := r.get(stream.Context(), in.GetUrl())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	started := &pb.ResponseStarted{Response: head(resp)}
	if err := stream.Send(&pb.FetchResponse{Events: []*pb.FetchEvent{{Event: &pb.FetchEvent_ResponseStarted{ResponseStarted: started}}}}); err != nil {
		return err
	}
	chunk, _ := r.chunks.Get().(*[]byte) // it holds nothing else
	defer r.chunks.Put(chunk)
	digest, sum := sha256.New(), new(pb.BodySummary)
	for more := true; more; {
		n, err := io.ReadFull(resp.Body, *chunk)
		if more = err == nil; !more && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return status.Errorf(codes.Unavailable, "read the body: %v", err)
		}
		if n == 0 {
			break
		}
		event := &pb.BodyChunk{OffsetBytes: sum.SizeBytes, Data: (*chunk)[:n]}
		if err := stream.Send(&pb.FetchResponse{Events: []*pb.FetchEvent{{Event: &pb.FetchEvent_BodyChunk{BodyChunk: event}}}}); err != nil {
			return err
		}
		if sum.SizeBytes += int64(n); resp.ContentLength > chunkBytes {
			_, _ = digest.Write(event.Data) // it never fails
		}
	}
	if resp.ContentLength > chunkBytes {
		sum.Sha256 = hex.EncodeToString(digest.Sum(nil))
	}
	return stream.Send(&pb.FetchResponse{Events: []*pb.FetchEvent{{Event: &pb.FetchEvent_Outcome{Outcome: &pb.FetchOutcome{
		Kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS, FinalUrl: resp.Request.URL.String(), Response: started.Response, AttemptCount: 1, BodySummary: sum}}}}})
}

func (r *relay) pause(ctx context.Context) error {
	select {
	case <-time.After(r.wait):
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (r *relay) get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "url %q: %v", url, err)
	}
	return r.client.Do(req)
}

func head(resp *http.Response) *pb.HttpResponse {
	out := &pb.HttpResponse{StatusCode: int32(resp.StatusCode), ContentLength: &resp.ContentLength, Protocol: resp.Proto}
	for name, values := range resp.Header {
		for _, value := range values {
			out.Headers = append(out.Headers, &pb.Header{Name: name, Value: value})
		}
	}
	return out
}
