package client

import (
	"context"
	_ "embed"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/health" // performs the health checks that the service config asks for
	"google.golang.org/grpc/keepalive"
)

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
// It fails without TLS.
func Token(token string) grpc.DialOption { return grpc.WithPerRPCCredentials(bearer{token}) }

type bearer struct{ token string }

var _ credentials.PerRPCCredentials = bearer{}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return true }
