//go:build linux

package replicas

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/stats"

	pb "fetchd/gen/fetchd/v1"
)

// caller is a client of all replicas with a service config of deploy/grpc. It records when
// it loses a connection.
type caller struct {
	pb.FetchServiceClient

	mu   sync.Mutex
	lost map[string]time.Time // last loss, by the replica's address
}

// dialAll connects to the replicas with a published service config.
func dialAll(t *testing.T, config string, addresses ...string) *caller {
	t.Helper()
	var state resolver.State
	for _, a := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: a})
	}
	names := manual.NewBuilderWithScheme("replicas")
	names.InitialState(state)
	c := &caller{lost: make(map[string]time.Time)}
	conn, err := grpc.NewClient("replicas:///fetchd", grpc.WithResolvers(names), grpc.WithDefaultServiceConfig(read(t, config)),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(), grpc.WithStatsHandler(watch{c}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c.FetchServiceClient = pb.NewFetchServiceClient(conn)
	return c
}

// lostAt returns when the client noticed that its connection to a replica had ended.
func (c *caller) lostAt(address string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost[address]
}

// watch receives gRPC's events about connections for a caller.
type watch struct{ caller *caller }

type remote struct{}

// TagConn implements stats.Handler.
func (watch) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, remote{}, info.RemoteAddr)
}

// HandleConn implements stats.Handler.
func (w watch) HandleConn(ctx context.Context, s stats.ConnStats) {
	addr, ok := ctx.Value(remote{}).(net.Addr)
	if _, end := s.(*stats.ConnEnd); !end || !ok {
		return
	}
	w.caller.mu.Lock()
	defer w.caller.mu.Unlock()
	w.caller.lost[addr.String()] = time.Now()
}

// TagRPC implements stats.Handler.
func (watch) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (watch) HandleRPC(context.Context, stats.RPCStats) {}
