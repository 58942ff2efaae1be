package frontier

import (
	"context"
	"io"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server/fetchdtest"
)

// manyStream is the service's side of FetchMany.
type manyStream = grpc.BidiStreamingServer[pb.FetchManyRequest, pb.FetchManyResponse]

// script is a service that a test controls, for behaviour that the real one cannot be made to show.
type script struct {
	pb.UnimplementedFetchServiceServer
	many func(n int, s manyStream) error // n counts the streams from 1

	mu      sync.Mutex
	streams int
}

func (s *script) Explain(context.Context, *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	return new(pb.ExplainResponse), nil
}

func (s *script) FetchMany(stream manyStream) error {
	s.mu.Lock()
	s.streams++
	n := s.streams
	s.mu.Unlock()
	return s.many(n, stream)
}

// start serves in memory until the test ends.
func (s *script) start(t *testing.T, name string) Service {
	t.Helper()
	return Service{Name: name, Client: client.New(fetchdtest.Start(t, fetchdtest.Options{Fake: s, InMemory: true}).Conn)}
}

// told returns a message with one outcome.
func told(tag string, o *pb.FetchOutcome) *pb.FetchManyResponse {
	return &pb.FetchManyResponse{Events: []*pb.TaskEvent{{Tag: tag, Event: &pb.FetchEvent{Event: &pb.FetchEvent_Outcome{Outcome: o}}}}}
}

// fetchedAll answers every task with a page.
func fetchedAll(s manyStream, seen func(*pb.FetchRequest)) error {
	return answerAll(s, func(r *pb.FetchRequest) *pb.FetchOutcome {
		if seen != nil {
			seen(r)
		}
		return page(r.GetUrl())
	})
}

// answerAll answers every task with an outcome.
func answerAll(s manyStream, outcome func(*pb.FetchRequest) *pb.FetchOutcome) error {
	for {
		m, err := s.Recv()
		if err == io.EOF { //nolint:errorlint // as gRPC tells it
			return nil
		}
		if err != nil {
			return err
		}
		for _, task := range m.GetTasks() {
			if err := s.Send(told(task.GetTag(), outcome(task.GetRequest()))); err != nil {
				return err
			}
		}
	}
}

// page returns the outcome of a successful fetch.
func page(url string) *pb.FetchOutcome {
	return &pb.FetchOutcome{Kind: success, FinalUrl: url, AttemptCount: 1, Response: &pb.HttpResponse{StatusCode: 200},
		Hops: []*pb.Hop{{Url: url, StatusCode: 200}}, TotalDuration: durationpb.New(1), BodySummary: new(pb.BodySummary)}
}

// afterTask calls f with the tag of the first task.
func afterTask(f func(s manyStream, tag string) error) func(int, manyStream) error {
	return func(_ int, s manyStream) error {
		for {
			m, err := s.Recv()
			if err != nil {
				return nil // the caller left
			}
			if len(m.GetTasks()) > 0 {
				return f(s, m.GetTasks()[0].GetTag())
			}
		}
	}
}

func silent(s manyStream) error {
	<-s.Context().Done()
	return nil
}
