package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server/internal/wire"
	"fetchd/test/must"
)

// secret is in the values of the panics.
const secret = "s3cr3t-p4n1c"

// panicking implements the service behind the server's interceptors.
type panicking struct {
	pb.UnimplementedFetchServiceServer
	others sync.WaitGroup // calls that run while one panics
	leave  chan struct{}
}

// Explain panics before it answers, in the way that the method names.
func (*panicking) Explain(_ context.Context, in *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	switch in.GetMethod() {
	case "value":
		panic(secret)
	case "error":
		panic(errors.New(secret))
	}
	return &pb.ExplainResponse{Error: &pb.FetchError{Url: []string{secret}[len(in.GetMethod())]}}, nil
}

// Fetch panics after its first event.
func (*panicking) Fetch(_ *pb.FetchRequest, stream grpc.ServerStreamingServer[pb.FetchResponse]) error {
	if err := stream.Send(&pb.FetchResponse{Events: []*pb.FetchEvent{{Sequence: 1}}}); err != nil {
		return err
	}
	panic(secret)
}

// FetchUnary is a call that runs meanwhile.
func (p *panicking) FetchUnary(context.Context, *pb.FetchRequest) (*pb.FetchUnaryResponse, error) {
	p.others.Done()
	<-p.leave
	return &pb.FetchUnaryResponse{Outcome: &pb.FetchOutcome{FetchId: "other"}}, nil
}

// TestPanicCostsOneCall panics in handlers behind the server's interceptors.
func TestPanicCostsOneCall(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	around, err := New(Config{Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	must.Succeed(t, err)
	defer func() { _ = around.Shutdown(t.Context()) }()
	s := grpc.NewServer(newGate(around.service.Shared, func(string, string) {}).interceptors()...)
	impl := &panicking{leave: make(chan struct{})}
	pb.RegisterFetchServiceServer(s, impl)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	must.Succeed(t, err)
	client := pb.NewFetchServiceClient(conn)

	impl.others.Add(1)
	other := make(chan error, 1)
	go func() {
		_, err := client.FetchUnary(t.Context(), new(pb.FetchRequest))
		other <- err
	}()
	impl.others.Wait()
	for _, kind := range []string{"value", "error", "index"} {
		_, err := client.Explain(t.Context(), &pb.ExplainRequest{Method: kind})
		wantFixedText(t, "panic of "+kind, err)
	}
	stream, err := client.Fetch(t.Context(), new(pb.FetchRequest))
	must.Succeed(t, err)
	if first, err := stream.Recv(); err != nil || first.GetEvents()[0].GetSequence() != 1 {
		t.Errorf("first event %v, %v; want one that was sent before the panic", first, err)
	}
	_, err = stream.Recv()
	wantFixedText(t, "panic in a stream", err)
	close(impl.leave)
	if err := <-other; err != nil {
		t.Errorf("the call that ran meanwhile = %v, want OK", err)
	}

	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	s.GracefulStop()
	if err := <-served; err != nil {
		t.Errorf("Serve = %v, want nil", err)
	}
	if n := strings.Count(log.String(), `"panic in a call"`); n != 4 {
		t.Errorf("%d lines tell the operator of a panic, want 4", n)
	}
}

// wantFixedText checks that an error is INTERNAL and does not contain the panic.
func wantFixedText(t *testing.T, what string, err error) {
	t.Helper()
	want := status.New(codes.Internal, "internal error")
	if got := status.Convert(err); !proto.Equal(got.Proto(), want.Proto()) {
		t.Errorf("%s: status %v, want %v", what, got, want)
	}
}

// TestSendReturnsTheError checks that an error of the stream ends the fetch.
func TestSendReturnsTheError(t *testing.T) {
	t.Parallel()
	e := newEventStream(t.Context(), func(*wire.Outgoing) error { return io.ErrClosedPipe }, gRPCMode, newTicket(t), time.Minute)
	defer e.close()
	if err := e.sendLocked(new(pb.FetchEvent), false); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("send = %v, want %v", err, io.ErrClosedPipe)
	}
}
