package server

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
	"fetchd/server/internal/admission"
	"fetchd/server/internal/calls"
	"fetchd/server/internal/wire"
)

// TestHeartbeats checks that no silence is longer than the interval, that sequence numbers have no
// gaps, and that nothing follows the outcome.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	const silence = 10 * time.Second
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			var slow time.Duration
			var last time.Time
			var n int64
			ended := false
			e := newEventStream(t.Context(), func(m *wire.Outgoing) error {
				message, _ := m.Message.(*pb.FetchResponse)
				resp := message.GetEvents()[0]
				if n++; len(message.GetEvents()) != 1 || resp.GetSequence() != n || ended {
					t.Errorf("seed %d: message %d has the number %d, behind the outcome: %v", seed, n, resp.GetSequence(), ended)
				}
				quiet := time.Since(last)
				if n > 1 && (quiet > silence || resp.GetHeartbeat() != nil && quiet < silence) {
					t.Errorf("seed %d: message %d, %T, after %s", seed, n, resp.GetEvent(), quiet)
				}
				if resp.GetHeartbeat() == nil { // a goroutine that waits for a lock stops the bubble's clock
					<-time.After(slow)
				}
				ended = resp.GetOutcome() != nil
				last = time.Now()
				return nil
			}, calls.Mode{Unblocked: int(seed%2) << 20, Copies: 1}, newTicket(t), 30*time.Second)
			e.startHeartbeats(newHeartbeats(silence))
			for range 30 {
				if slow = 0; r.IntN(4) == 0 {
					slow = time.Duration(r.IntN(25000)) * time.Millisecond
				}
				// Half a millisecond more, so that no two timers of the bubble fire at once.
				wait := time.Duration([]int{r.IntN(40_000), r.IntN(5), int(silence.Milliseconds()) - 1}[r.IntN(3)]) * time.Millisecond
				<-time.After(wait + 500*time.Microsecond)
				if err := e.sink(fetch.AttemptStarted{Attempt: 1}); err != nil {
					t.Fatal(err)
				}
			}
			if err := e.finish(&pb.FetchEvent{Event: &pb.FetchEvent_Outcome{Outcome: new(pb.FetchOutcome)}}); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Duration(r.IntN(2)) * 3 * silence)
			e.close()
			<-time.After(3 * silence)
		})
	}
}

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
	a := admission.New(budget.New(1<<30), &admission.Limits{Fetches: 1, PerCaller: 1}, "", "", "", func(string, string) {})
	made, err := a.Enter(t.Context(), nil, admission.Charge{Kind: budget.Fetch, Bytes: admission.FetchBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.Release)
	return made
}
