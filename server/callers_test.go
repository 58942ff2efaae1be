package server_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"fetchd/server"
)

// TestConnectionsOfOneCaller checks that connections over the limit of an address are closed if the
// others have made calls, and that other addresses are served meanwhile.
func TestConnectionsOfOneCaller(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *server.Config) { c.MaxConnections, c.MaxConnectionsPerCaller = 4, 2 })
	call := func() net.Conn {
		conn := r.dialFrom(2)
		c := r.raw(conn)
		c.open(1, healthpb.Health_Check_FullMethodName)
		if _, _, _, err := c.read(1); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	first, _ := call(), call()
	another := func() bool {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		conn, err := d.DialContext(t.Context(), "tcp", r.Addr)
		if err != nil {
			return false // it is reset at once
		}
		defer conn.Close()
		return served(conn)
	}
	for range 2 {
		if another() {
			t.Error("a connection over the limit is served")
		}
	}
	r.mustUnary(r.request("/s/k/200"))
	_ = first.Close()
	for began := time.Now(); !another(); {
		if time.Since(began) > 10*time.Second {
			t.Fatal("no connection is accepted after one was closed")
		}
	}
}

// TestStreamsOfOneCaller checks the separate limit on streams that are not a fetch.
func TestStreamsOfOneCaller(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	reflection := reflectv1.NewServerReflectionClient(r.Conn)
	ask := func() error {
		stream, err := reflection.ServerReflectionInfo(t.Context())
		if err == nil {
			_ = stream.Send(&reflectv1.ServerReflectionRequest{MessageRequest: &reflectv1.ServerReflectionRequest_ListServices{}}) // Recv returns the error
			_, err = stream.Recv()
		}
		return err
	}
	for i := range 64 {
		if err := ask(); err != nil {
			t.Fatalf("stream %d: %v", i+1, err)
		}
	}
	wantCode(t, "the 65th stream", ask(), codes.ResourceExhausted)
	r.mustUnary(r.request("/s/k/200"))
}

// TestReflectionThatIsHeldOpen checks that a reflection stream ends after a minute, even while it
// is used.
func TestReflectionThatIsHeldOpen(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		began := time.Now()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		stream, err := reflectv1.NewServerReflectionClient(r.Conn).ServerReflectionInfo(ctx)
		for err == nil {
			err = stream.Send(&reflectv1.ServerReflectionRequest{MessageRequest: &reflectv1.ServerReflectionRequest_ListServices{}})
			if err == nil {
				_, err = stream.Recv()
			}
			<-time.After(7 * time.Second)
		}
		if took := time.Since(began); took < time.Minute || took > time.Minute+14*time.Second { // it looks every 7 s
			r.Errorf("ended after %s with %v, want a minute", took, err)
		}
	})
}
