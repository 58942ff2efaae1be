// Package embed runs a fetchd inside a program, for callers in the same program.
package embed

import (
	"context"
	"errors"
	"io"
	"log" //nolint:depguard // only to silence it: net/http writes there
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// stopTime is how long calls may take to end after they are canceled. A call that something else holds, such as a log that
// is not read, is then left behind.
const stopTime = 2 * time.Second

// Start starts a service that listens on l, or in memory if l is nil, and connects to it. stop
// ends both. Start silences package log, because net/http writes bytes of origins there.
func Start(cfg server.Config, l net.Listener, opts ...grpc.DialOption) (_ *grpc.ClientConn, stop func(), err error) {
	_, conn, stop, err := start(cfg, l, opts...)
	return conn, stop, err
}

// Inside starts a service that only this process can call. Its streams of FetchMany hand outcomes over as they are.
// Everything else is encoded, as between processes. stop ends all calls.
func Inside(cfg server.Config) (_ pb.FetchServiceClient, stop func(), err error) {
	srv, conn, stopService, err := start(cfg, nil)
	if err != nil {
		return nil, nil, err
	}
	c := &client{FetchServiceClient: pb.NewFetchServiceClient(conn), server: srv}
	over, end := context.WithCancel(context.Background())
	c.over = over
	return c, func() {
		c.mu.Lock()
		end()
		c.mu.Unlock()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.streams.Wait()
		}()
		select {
		case <-ended:
		case <-time.After(stopTime):
		}
		stopService()
	}, nil
}

func start(cfg server.Config, l net.Listener, opts ...grpc.DialOption) (srv *server.Server, _ *grpc.ClientConn, stop func(), err error) {
	log.SetOutput(io.Discard)
	target := "inside"
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if l == nil {
		memory := bufconn.Listen(1 << 20)
		l = memory
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return memory.DialContext(ctx)
		}))
	} else {
		target = l.Addr().String()
	}
	conn, err := grpc.NewClient("passthrough:///"+target, opts...)
	if err != nil {
		return nil, nil, nil, errors.Join(err, l.Close())
	}
	srv, err = server.New(cfg)
	if err != nil {
		return nil, nil, nil, errors.Join(err, conn.Close(), l.Close())
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(l) // calls return the errors
	}()
	return srv, conn, func() {
		_ = conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		_ = srv.Shutdown(ctx) // the calls that it cancels have no reader
		<-served
	}, nil
}
