package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/client"
	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
	"fetchd/server/fetchdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is an origin, a service that may reach it, and a client of that service, all
// on loopback.
type rig struct {
	*testing.T
	origin *origin.Origin
	server *server.Server
	addr   string
	client *client.Client
}

// in returns r for a subtest.
func (r *rig) in(t *testing.T) *rig {
	c := *r
	c.T = t
	return &c
}

// newRig starts it.
func newRig(t *testing.T) *rig {
	t.Helper()
	s := fetchdtest.Start(t, fetchdtest.Options{DialOptions: client.DialOptions()})
	return &rig{t, s.Origin, s.Service, s.Addr, client.New(s.Conn)}
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	return l
}

// dial connects to one address.
func dial(t testing.TB, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr,
		append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())...)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// request asks the origin's plain listener for path, and retries at once.
func (r *rig) request(path string) *pb.FetchRequest {
	return &pb.FetchRequest{Url: r.origin.URL("http", path), RetryPolicy: &pb.RetryPolicy{BaseDelay: durationpb.New(0)}}
}

// do calls Do, which must succeed.
func (r *rig) do(in *pb.FetchRequest, options ...client.Option) *client.Response {
	r.Helper()
	resp, err := r.client.Do(r.Context(), in, options...)
	if err != nil {
		r.Fatalf("Do(%s) = %v, want no error", in.GetUrl(), err)
	}
	r.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// fake is a service whose answers a test chooses.
type fake struct {
	pb.UnimplementedFetchServiceServer
	fetch func(grpc.ServerStreamingServer[pb.FetchResponse]) error
	many  func(manyServer) error
	ping  func(context.Context) error // nil: answers
}

// manyServer is the service's side of FetchMany.
type manyServer = grpc.BidiStreamingServer[pb.FetchManyRequest, pb.FetchManyResponse]

func (f *fake) Explain(ctx context.Context, _ *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	if f.ping != nil {
		return nil, f.ping(ctx)
	}
	return new(pb.ExplainResponse), nil
}

func (f *fake) Fetch(_ *pb.FetchRequest, s grpc.ServerStreamingServer[pb.FetchResponse]) error {
	return f.fetch(s)
}

func (f *fake) FetchMany(s manyServer) error { return f.many(s) }

// client serves f in memory until the test ends.
func (f *fake) client(t testing.TB) *client.Client {
	t.Helper()
	return client.New(fetchdtest.Start(t, fetchdtest.Options{Fake: f, InMemory: true}).Conn)
}

// events is a Fetch that sends these. A successful outcome gets the response and the size that it needs.
func events(all ...*pb.FetchEvent) func(grpc.ServerStreamingServer[pb.FetchResponse]) error {
	return func(s grpc.ServerStreamingServer[pb.FetchResponse]) error {
		var size int64
		for _, m := range all {
			switch {
			case m.GetResponseStarted() != nil:
				size = m.GetResponseStarted().GetBodyOffsetBytes()
			case m.GetBodyChunk() != nil:
				size = m.GetBodyChunk().GetOffsetBytes() + int64(len(m.GetBodyChunk().GetData()))
			case m.GetOutcome().GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS:
				m = proto.CloneOf(m)
				m.GetOutcome().BodySummary = &pb.BodySummary{SizeBytes: size}
			}
			if err := s.Send(&pb.FetchResponse{Events: []*pb.FetchEvent{m}}); err != nil {
				return err
			}
		}
		return nil
	}
}

func head(offset int64, status int32) *pb.FetchEvent {
	return &pb.FetchEvent{Event: &pb.FetchEvent_ResponseStarted{ResponseStarted: &pb.ResponseStarted{
		Attempt: 1, BodyOffsetBytes: offset, Response: &pb.HttpResponse{StatusCode: status}}}}
}

func chunk(offset int64, data string) *pb.FetchEvent {
	return &pb.FetchEvent{Event: &pb.FetchEvent_BodyChunk{BodyChunk: &pb.BodyChunk{OffsetBytes: offset, Data: []byte(data)}}}
}

func success() *pb.FetchEvent {
	return ended(&pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS, Response: &pb.HttpResponse{StatusCode: 200}})
}

func ended(o *pb.FetchOutcome) *pb.FetchEvent {
	return &pb.FetchEvent{Event: &pb.FetchEvent_Outcome{Outcome: o}}
}

// readAll reads a body as one does that can start over, and counts how often it
// had to.
func readAll(body io.Reader) (data []byte, restarts int, err error) {
	p := make([]byte, 1000)
	for {
		n, err := body.Read(p)
		data = append(data, p[:n]...)
		restart, ok := errors.AsType[*client.RestartError](err)
		switch {
		case ok && restart.Offset > int64(len(data)):
			return data, restarts, fmt.Errorf("a restart beyond the end: %w", err)
		case ok:
			data = data[:restart.Offset]
			restarts++
		case errors.Is(err, io.EOF):
			return data, restarts, nil
		case err != nil:
			return data, restarts, err
		}
	}
}

// answerAll answers every task of a message in one message.
func answerAll(s manyServer) error {
	for {
		in, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		out := new(pb.FetchManyResponse)
		for _, task := range in.GetTasks() {
			out.Events = append(out.Events, &pb.TaskEvent{Tag: task.GetTag(), Event: success()})
		}
		if err := s.Send(out); err != nil {
			return err
		}
	}
}
