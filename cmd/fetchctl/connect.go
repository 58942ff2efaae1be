package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // only to silence it: net/http writes there
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/dial"
	"fetchd/internal/version"
	"fetchd/server"
)

// embeddedMaximum is the time limit of a fetch of the service inside. It is long because the
// user can interrupt the program.
const embeddedMaximum = 24 * time.Hour

// stopTime is how long the service inside may take to shut down.
const stopTime = 2 * time.Second

// connection has the flags of every command that calls a service.
type connection struct {
	Server string `variable:"FETCHD_SERVER" placeholder:"HOST:PORT" group:"Service:" help:"Use the fetchd at this address instead of the service inside fetchctl ($$FETCHD_SERVER). The connection is plaintext unless a TLS flag is given."`
	dial.Flags
}

// service is a connection to a fetchd. The caller closes it.
type service struct {
	pb.FetchServiceClient
	conn *grpc.ClientConn
	stop func()
}

// close ends the connection, and stops the service if it runs inside.
func (s *service) close() {
	_ = s.conn.Close()
	s.stop()
}

// connect connects to the service that the flags name. It does not wait for the service: an
// error means that the flags are not usable.
func (c connection) connect(more ...grpc.DialOption) (*service, error) {
	if c.Server == "" {
		return embed(more...)
	}
	opts, err := c.Options()
	if err != nil {
		return nil, err
	}
	return dialTo("--server", c.Server, func() {}, append(opts, more...)...)
}

// plaintext is the transport to a service inside this process.
var plaintext = grpc.WithTransportCredentials(insecure.NewCredentials())

// embed runs the service inside this process, over an in-memory connection.
func embed(more ...grpc.DialOption) (*service, error) {
	l := bufconn.Listen(256 << 10)
	opts := append(more, plaintext, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return l.DialContext(ctx)
	}))
	return serve(server.Config{
		Fetch:  fetch.Config{Egress: fetch.Egress{Unrestricted: true}, UserAgent: "fetchd/" + version.String()},
		Limits: server.Limits{MaxTotalTimeout: embeddedMaximum},
	}, l, "passthrough:///inside", opts...)
}

// serve runs a service on l and connects to it at target.
func serve(cfg server.Config, l net.Listener, target string, opts ...grpc.DialOption) (*service, error) {
	log.SetOutput(io.Discard) // net/http logs bytes of origins
	srv, err := server.New(cfg)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the service: %w", err), l.Close())
	}
	served := make(chan struct{})
	go func() { // ends with stop
		defer close(served)
		_ = srv.Serve(l) // a failure also ends the calls
	}()
	stop := func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		_ = srv.Shutdown(ctx) // the calls that it interrupts have no reader
		<-served
	}
	s, err := dialTo("--server", target, stop, opts...)
	if err != nil {
		stop()
	}
	return s, err
}

func dialTo(flag, target string, stop func(), opts ...grpc.DialOption) (*service, error) {
	conn, err := grpc.NewClient(target, opts...)
	if err != nil {
		return nil, cli.UsageError(flag, fmt.Sprintf("%v", err))
	}
	return &service{pb.NewFetchServiceClient(conn), conn, stop}, nil
}
