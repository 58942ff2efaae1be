package embed

import (
	"cmp"
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
	"fetchd/server/internal/wire"
)

// client is a client of a service in this process.
type client struct {
	pb.FetchServiceClient // over gRPC
	server                *server.Server
	over                  context.Context // done when the service stops
	mu                    sync.Mutex      // held while a stream begins, and when over ends
	streams               sync.WaitGroup
}

// FetchMany implements fetchd.v1.FetchService.FetchMany without gRPC.
func (c *client) FetchMany(ctx context.Context, _ ...grpc.CallOption) (grpc.BidiStreamingClient[pb.FetchManyRequest, pb.FetchManyResponse], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over.Err() != nil {
		return nil, status.Error(codes.Canceled, "the service has stopped")
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{ctx: ctx, requests: make(chan *pb.FetchManyRequest), responses: make(chan *pb.FetchManyResponse), ended: make(chan struct{})}
	stop := context.AfterFunc(c.over, cancel)
	c.streams.Go(func() {
		defer close(s.ended)
		defer cancel()
		defer stop()
		err := c.server.FetchMany(serverEnd{stream: s})
		st, ok := status.FromError(err)
		if !ok {
			st = status.FromContextError(err)
		}
		s.err = st.Err()
	})
	return clientEnd{stream: s}, nil
}

// stream is a call of FetchMany. A message belongs to the end that has received it.
type stream struct {
	ctx       context.Context
	requests  chan *pb.FetchManyRequest // closed by the client
	responses chan *pb.FetchManyResponse
	ended     chan struct{} // closed when the service has returned
	err       error         // the status of the call, once it has ended
}

// clientEnd has the methods that package client calls. The others panic.
type clientEnd struct {
	grpc.ClientStream
	*stream
}

// Send implements grpc.BidiStreamingClient. The service does not change m.
func (c clientEnd) Send(m *pb.FetchManyRequest) error {
	select {
	case c.requests <- m:
		return nil
	case <-c.ended:
		return io.EOF // as in gRPC: Recv returns the status
	}
}

// CloseSend implements grpc.ClientStream.
func (c clientEnd) CloseSend() error {
	close(c.requests)
	return nil
}

// Recv implements grpc.BidiStreamingClient.
func (c clientEnd) Recv() (*pb.FetchManyResponse, error) {
	select {
	case m := <-c.responses:
		return m, nil
	case <-c.ended:
		return nil, cmp.Or(c.err, io.EOF)
	}
}

// serverEnd has the methods that package server calls. The others panic.
type serverEnd struct {
	grpc.ServerStream
	*stream
}

// Context implements grpc.ServerStream.
func (s serverEnd) Context() context.Context { return s.ctx }

// Recv implements grpc.BidiStreamingServer.
func (s serverEnd) Recv() (*pb.FetchManyRequest, error) {
	select {
	case m, more := <-s.requests:
		if !more {
			return nil, io.EOF
		}
		return m, nil
	case <-s.ctx.Done():
		return nil, status.FromContextError(s.ctx.Err()).Err()
	}
}

// Send implements grpc.BidiStreamingServer.
func (s serverEnd) Send(m *pb.FetchManyResponse) error { return s.SendMsg(m) }

// SendMsg implements grpc.ServerStream. From its return on, the message is the client's.
func (s serverEnd) SendMsg(message any) error {
	if o, ok := message.(*wire.Outgoing); ok {
		defer o.Release()
		message = o.Message
	}
	m, ok := message.(*pb.FetchManyResponse)
	if !ok {
		return status.Errorf(codes.Internal, "a message of FetchMany is %T", message)
	}
	for i, event := range m.GetEvents() {
		if event.GetEvent().GetBodyChunk() != nil { // the service uses it again
			m.Events[i] = proto.CloneOf(event)
		}
	}
	select {
	case s.responses <- m:
		return nil
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}
