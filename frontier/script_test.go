package frontier

import (
	"context"
	"io"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server/fetchdtest"
)

// manyStream is the service's side of FetchMany.
type manyStream = grpc.BidiStreamingServer[pb.FetchManyRequest, pb.FetchManyResponse]

// script is a service that does what a test says, where the real one cannot be
// made to.
type script struct {
	pb.UnimplementedFetchServiceServer
	many  func(n int, s manyStream) error // n counts the streams from 1
	hello error
	hang  bool // says nothing to a hello

	mu      sync.Mutex
	streams int
}

func (s *script) Explain(ctx context.Context, _ *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	if s.hang {
		<-ctx.Done()
	}
	return new(pb.ExplainResponse), s.hello
}

func (s *script) FetchMany(stream manyStream) error {
	s.mu.Lock()
	s.streams++
	n := s.streams
	s.mu.Unlock()
	return s.many(n, stream)
}

func (s *script) opened() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams
}

// start serves in memory until the test ends.
func (s *script) start(t *testing.T, name string) Service {
	t.Helper()
	return Service{Name: name, Client: fetchdtest.Start(t, fetchdtest.Options{Fake: s, InMemory: true}).Client}
}

// told is a message with one outcome.
func told(tag string, o *pb.FetchOutcome) *pb.FetchManyResponse {
	return &pb.FetchManyResponse{Responses: []*pb.TaskResponse{{Tag: tag, Response: &pb.FetchResponse{Event: &pb.FetchResponse_Outcome{Outcome: o}}}}}
}

// fetchedAll answers every task with a page.
func fetchedAll(s manyStream, seen func(*pb.FetchRequest)) error {
	for {
		m, err := s.Recv()
		if err == io.EOF { //nolint:errorlint // as gRPC tells it
			return nil
		}
		if err != nil {
			return err
		}
		for _, task := range m.GetTasks() {
			if seen != nil {
				seen(task.GetRequest())
			}
			if err := s.Send(told(task.GetTag(), page(task.GetRequest().GetUrl()))); err != nil {
				return err
			}
		}
	}
}

// page is the outcome of a fetch that went well.
func page(url string) *pb.FetchOutcome {
	return &pb.FetchOutcome{Kind: success, FinalUrl: url, Attempts: 1, Response: &pb.HttpResponse{StatusCode: 200},
		Hops: []*pb.Hop{{Url: url, StatusCode: 200}}, TotalDuration: durationpb.New(1), BodySummary: new(pb.BodySummary)}
}
