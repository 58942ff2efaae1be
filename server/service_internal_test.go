package server

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
)

// TestKeptAttempts checks that eleven attempts exceed neither the size of an answer nor
// the caller's memory, whatever the origin sends, and that the last attempts stay whole.
func TestKeptAttempts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100<<10)
	for _, row := range []struct {
		name   string
		budget int64
		whole  int // the first attempt that keeps headers and hops
	}{
		{"enough memory: as many as fit into an answer", 1 << 30, 2},
		{"memory for three", 800 << 10, 9},
		{"no memory for any", 64 << 10, 11},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := budget.New(row.budget)
			kept := newKeptAttempts(b.Lease("caller"))
			for n := range int32(11) {
				kept.add(&pb.AttemptFinished{Attempt: n + 1, Error: &pb.FetchError{ClassRule: "H1"},
					Response: &pb.HttpResponse{StatusCode: 503, Headers: []*pb.Header{{Name: "X", Value: long}}},
					Hops:     []*pb.Hop{{Url: long[:8<<10]}}, Exchange: &pb.Exchange{Protocol: "HTTP/1.1"}})
			}
			total := 0
			for i, a := range kept.attempts {
				total += proto.Size(a)
				whole := len(a.GetHops()) == 1 && len(a.GetResponse().GetHeaders()) == 1
				if want := i >= row.whole; whole != want {
					t.Errorf("attempt %d: headers and hops kept: %t, want %t", i+1, whole, want)
				}
				if a.GetAttempt() != int32(i+1) || a.GetResponse().GetStatusCode() != 503 || a.GetError().GetClassRule() != "H1" {
					t.Errorf("attempt %d lost more than headers and hops", i+1)
				}
			}
			if total > maxAttemptsBytes || int64(total) > b.Usage().Total()+16<<10 {
				t.Errorf("%d bytes left, %d are charged", total, b.Usage().Total())
			}
			kept.memory.Close()
			if n := b.Usage().Total(); n != 0 {
				t.Errorf("%d bytes are still charged", n)
			}
		})
	}
}
