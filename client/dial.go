package client

import (
	_ "embed"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/health" // without it the health that the service config asks for is not checked
	"google.golang.org/grpc/keepalive"
)

// The service configs of deploy/grpc, which says what they do.
var (
	//go:embed service-config.json
	anyMethod string
	//go:embed service-config-idempotent.json
	idempotent string
)

const (
	pingAfter   = 30 * time.Second // of silence; the service takes a ping each 10 s
	pingTimeout = 10 * time.Second
)

// DialOptions are the published service config and a keepalive that the service
// accepts, for callers of any method: calls are spread over the replicas that are
// healthy, and what surely reached no origin is tried again. Credentials are the
// caller's to add. The target must name all replicas, as dns:///HOST:PORT does.
func DialOptions() []grpc.DialOption { return dialOptions(anyMethod) }

// IdempotentDialOptions are [DialOptions] for callers that send only GET, HEAD,
// PUT, DELETE and OPTIONS: calls of a replica that died are made again too, which
// may ask the origin once more.
func IdempotentDialOptions() []grpc.DialOption { return dialOptions(idempotent) }

func dialOptions(config string) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultServiceConfig(config),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
	}
}
