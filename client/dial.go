package client

import (
	"context"
	"crypto/tls"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // performs the health checks that the service config asks for
	"google.golang.org/grpc/keepalive"

	"fetchd/internal/address"
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
