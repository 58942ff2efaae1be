package server

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "fetchd/gen/fetchd/v1"
)

// TestShorten: what an origin can put into eleven attempts does not outgrow an
// answer, and the last attempts keep all they have.
func TestShorten(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300<<10)
	var attempts []*pb.AttemptFinished
	for n := range int32(11) {
		attempts = append(attempts, &pb.AttemptFinished{Attempt: n + 1, Error: &pb.FetchError{Rule: "H1"},
			Response: &pb.HttpResponse{StatusCode: 503, Headers: []*pb.Header{{Name: "X", Value: long}}},
			Hops:     []*pb.Hop{{Url: long[:8<<10]}}, Exchange: &pb.Exchange{Protocol: "HTTP/1.1"}})
	}
	shorten(attempts)
	total := 0
	for i, a := range attempts {
		total += proto.Size(a)
		whole := len(a.GetHops()) == 1 && len(a.GetResponse().GetHeaders()) == 1
		if kept := i >= 5; whole != kept { // six times 308 KiB fit into 2 MiB
			t.Errorf("attempt %d: headers and hops kept: %t, want %t", i+1, whole, kept)
		}
		if a.GetAttempt() != int32(i+1) || a.GetResponse().GetStatusCode() != 503 || a.GetError().GetRule() != "H1" {
			t.Errorf("attempt %d lost more than headers and hops", i+1)
		}
	}
	if total > maxAttemptsBytes+16<<10 {
		t.Errorf("%d bytes left", total)
	}
	short := []*pb.AttemptFinished{{Hops: []*pb.Hop{{}}}}
	if shorten(short); len(short[0].GetHops()) != 1 {
		t.Error("a short answer was shortened")
	}
}
