package client

import (
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // performs the health checks that the service config asks for
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/address"
)

// Client calls one fetchd service. It is safe for concurrent use.
type Client struct {
	rpc pb.FetchServiceClient
}

// New returns a client that makes its calls over conn. The caller closes conn.
func New(conn grpc.ClientConnInterface) *Client {
	return Wrap(pb.NewFetchServiceClient(conn))
}

// Wrap returns a client that makes its calls with rpc, for example a fake in a test.
func Wrap(rpc pb.FetchServiceClient) *Client { return &Client{rpc} }

// Option changes one call of [Client.Get] or [Client.Do].
type Option func(*body)

// OnEvent calls f for each event as it arrives, except body chunks and heartbeats; the outcome
// is included. The event_level of the request says which events the service sends. f runs within Do until that returns, and then within reads of the body. It must
// not read the body itself.
func OnEvent(f func(*pb.FetchEvent)) Option {
	return func(b *body) { b.event = f }
}

// Get fetches url with the service's defaults, like [Client.Do] with a request that sets only
// the URL.
func (c *Client) Get(ctx context.Context, url string, options ...Option) (*Response, error) {
	return c.Do(ctx, &pb.FetchRequest{Url: url}, options...)
}

// Do runs a fetch. It returns when the first bytes of the body arrive, or when the fetch has
// ended without any. The service has made all retries that precede the body by then.
//
// If the error is nil, the caller must close the body of the response. The outcomes REDIRECT
// and NOT_MODIFIED are not errors. A fetch that failed returns an [*Error], from Do or from a
// read of the body. See the package documentation for other errors.
//
// If a quota of the caller is used up, Do waits as long as the service asks for, and returns the
// status RESOURCE_EXHAUSTED only if ctx has a deadline before that.
//
// Do sends the request as it is, and does not keep it. The end of ctx also ends reads of the
// body.
func (c *Client) Do(ctx context.Context, request *pb.FetchRequest, options ...Option) (*Response, error) {
	r, err := c.fetch(ctx, request)
	if err != nil {
		return nil, err
	}
	b := &body{reader: r, event: func(*pb.FetchEvent) {}}
	for _, o := range options {
		o(b)
	}
	return b.open()
}

// Ping asks the service for a decision that needs no fetch. It returns nil if the service
// answers.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.rpc.Explain(ctx, &pb.ExplainRequest{Response: &pb.HttpResponse{StatusCode: 200}})
	return statusError(ctx, err)
}

// statusError adds the error of ctx to a gRPC status that it caused, and to that of a wrong port which one to
// use.
func statusError(ctx context.Context, err error) error {
	if st, ok := status.FromError(err); ok && address.Remedy(st.Message()) != "" {
		p := st.Proto()
		p.Message += "; " + address.Remedy(st.Message())
		err = status.ErrorProto(p)
	}
	code := status.Code(err)
	if cause := context.Cause(ctx); cause != nil && (code == codes.Canceled || code == codes.DeadlineExceeded) {
		return &contextError{err, cause}
	}
	return err
}

// contextError is a gRPC status that the end of a context caused.
type contextError struct{ status, cause error }

// Error implements error.
func (e *contextError) Error() string { return fmt.Sprintf("%v: %v", e.cause, e.status) }

// Unwrap makes the error match both of its parts.
func (e *contextError) Unwrap() []error { return []error{e.cause, e.status} }

// Timeout reports whether a deadline was exceeded, as [net.Error] does.
func (e *contextError) Timeout() bool { return errors.Is(e.cause, context.DeadlineExceeded) }

// GRPCStatus returns the status as the service or gRPC sent it.
func (e *contextError) GRPCStatus() *status.Status { return status.Convert(e.status) }

// Copies of the service configs of deploy/grpc, which explains them.
var (
	//go:embed service-config.json
	anyMethod string
	//go:embed service-config-idempotent.json
	idempotent string
)

const (
	pingAfter   = 30 * time.Second // of silence; the service allows one ping each 10 s
	pingTimeout = 10 * time.Second
)

// Dial connects to the service at an address: HOST:PORT, http://HOST:PORT, https://HOST:PORT or
// dns:///HOST:PORT. The error for any other address says what to give. No connection is made before the
// first call.
//
// The connection is plaintext, or uses TLS with the authorities of the system for https://. Transport
// credentials in options replace that. Dial adds [DialOptions], which options may replace too. The
// caller closes the connection.
func Dial(service string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	parsed, err := address.Parse(service)
	if err != nil {
		return nil, fmt.Errorf("the address of the service %w", err)
	}
	transport := insecure.NewCredentials()
	if parsed.Security == address.TLS {
		transport = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	return grpc.NewClient(parsed.Target, slices.Concat(DialOptions(), []grpc.DialOption{grpc.WithTransportCredentials(transport)}, options)...)
}

// DialOptions returns the published service config and a keepalive that the service accepts.
// Calls are spread over the healthy replicas, and calls that certainly reached no origin are
// retried. It suits all HTTP methods. The caller adds credentials. The target must name all
// replicas, for example dns:///HOST:PORT.
func DialOptions() []grpc.DialOption { return dialOptions(anyMethod) }

// IdempotentDialOptions returns [DialOptions] for callers that send only GET, HEAD, PUT, DELETE
// and OPTIONS. Calls to a replica that died are retried too, so the origin may receive a
// request twice.
func IdempotentDialOptions() []grpc.DialOption { return dialOptions(idempotent) }

func dialOptions(config string) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultServiceConfig(config),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
	}
}

// Token sends a token of the service with each call, such as one that "fetchd token NAME" makes.
// [Dial] fails if the connection has no TLS.
func Token(token string) grpc.DialOption { return grpc.WithPerRPCCredentials(bearer{token}) }

type bearer struct{ token string }

var _ credentials.PerRPCCredentials = bearer{}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return true }
