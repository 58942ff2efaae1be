package server

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
	"fetchd/server/internal/admission"
	"fetchd/server/internal/calls"
	"fetchd/server/internal/wire"
)

// TestStalledMessage checks that a message that the caller has not read is not changed by later
// events and heartbeats, because gRPC may still read it.
func TestStalledMessage(t *testing.T) {
	t.Parallel()
	stop, gone := make(chan struct{}), make(chan struct{})
	e := newEventStream(t.Context(), func(m *wire.Outgoing) error {
		defer close(gone)
		first := make([]byte, m.Size)
		for begun := false; ; begun = true {
			now, err := proto.Marshal(m.Message)
			if err != nil || begun && !bytes.Equal(first, now) {
				t.Errorf("the message has become another: %v", err)
			}
			first = now
			select {
			case <-stop:
				return nil
			default:
				runtime.Gosched()
			}
		}
	}, calls.Mode{Copies: 1}, newTicket(t), 3*time.Millisecond)
	e.startHeartbeats(newHeartbeats(time.Hour))
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for i := range 40 {
				_ = e.sink(fetch.BodyChunk{Attempt: 1, Offset: int64(i), Data: make([]byte, 100)})
				_ = e.sink(fetch.AttemptFinished{Attempt: i, Response: &fetch.Response{StatusCode: i}})
				e.beat()
			}
		})
	}
	all.Wait()
	if err := e.finish(&pb.FetchEvent{Event: &pb.FetchEvent_Outcome{Outcome: new(pb.FetchOutcome)}}); err == nil {
		t.Error("finish = nil, want an error: the caller reads nothing")
	}
	e.close()
	close(stop)
	<-gone
}

// newTicket returns the ticket of an admitted fetch. Nothing may be charged at the end of
// the test.
func newTicket(t *testing.T) *admission.Ticket {
	t.Helper()
	a := admission.New(budget.New(1<<30), &admission.Limits{Fetches: 1, PerCaller: 1}, "", "", func(string, string) {})
	made, err := a.Enter(t.Context(), nil, admission.Charge{Kind: budget.Fetch, Bytes: admission.FetchBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.Release)
	return made
}
