//go:build linux

package load

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/urls"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

const (
	cancelled    = 200 // fetches for each phase
	cancelAfter  = 20 * time.Millisecond
	cancelWithin = 50 * time.Millisecond // limit of the 99th percentile
	leeway       = 10                    // how many goroutines and descriptors may remain
)

// TestCancel cancels fetches in every phase, and checks that the other end soon sees the
// socket closed.
func TestCancel(t *testing.T) {
	long(t)
	for _, row := range []struct {
		name  string
		phase classify.Phase // as reported in the outcome
		peers int            // each has one fetch at a time
		open  func(*testing.T) *peer
	}{
		{"resolve", classify.PhaseResolve, 8, openResolve},
		// One peer, because reading the system's table takes part of the measured time.
		{"dial", classify.PhaseConnect, 1, openDial},
		{"TLS", classify.PhaseTLS, 8, openTLS},
		{"head", classify.PhaseProcessing, 8, openHead},
		{"head over HTTP/2", classify.PhaseProcessing, 8, openHead2},
		{"body", classify.PhaseTransfer, 8, openBody},
		{"body over HTTP/2", classify.PhaseTransfer, 8, openBody2},
		{"between hops", classify.PhasePolicy, 8, openRedirect},
		{"backoff", classify.NoPhase, 8, openBackoff},
	} {
		t.Run(row.name, func(t *testing.T) {
			ctx := long(t)
			clock := rig.StartClock(t)
			before := settledAt(t)
			var all measured
			t.Run("fetches", func(t *testing.T) { // closes everything it opens at its end
				peers := make([]*peer, row.peers)
				for i := range peers {
					peers[i] = row.open(t)
				}
				var group sync.WaitGroup
				for _, p := range peers {
					group.Go(func() { p.cancelMany(ctx, t, cancelled/row.peers, row.phase, &all) })
				}
				group.Wait()
			})
			t.Logf("%-16s %d fetches: socket closed %s; fetch ended %s", row.name, len(all.closed), all.closed, all.ended)
			clock.AtMost("99th percentile of the time until the socket was closed", all.closed.Percentile(99), cancelWithin, cancelWithin)
			before.expect(ctx, t)
		})
	}
}

// peer is the other end of one worker's fetches, one fetch at a time.
type peer struct {
	config fetch.Config
	url    func() string // returns the URL of the next fetch
	sink   fetch.Sink
	// reached waits until the fetch is in the phase.
	reached func(context.Context) error
	// closed waits until the fetch's socket is closed, and returns when. Nil: the fetch has
	// no socket in this phase.
	closed func(context.Context) (time.Time, error)
}

// measured has the times of the fetches of a phase, counted from the cancellation.
type measured struct {
	mu            sync.Mutex
	closed, ended rig.Times
}

func (m *measured) add(closed, ended time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed, m.ended = append(m.closed, closed), append(m.ended, ended)
}

// cancelMany makes n fetches, one after the other.
func (p *peer) cancelMany(ctx context.Context, t *testing.T, n int, phase classify.Phase, all *measured) {
	client, err := fetch.New(p.config)
	if err != nil {
		t.Error(err)
		return
	}
	defer client.Close()
	for range n {
		out, err := p.cancelOne(ctx, client, all)
		if err != nil {
			t.Error(err)
			return
		}
		if f := out.Failure; f == nil || f.Class != classify.Cancelled || f.Phase != phase {
			t.Errorf("outcome %s, failure %+v, want %s in phase %s", out.Kind, f, classify.Cancelled, phase)
			return
		}
	}
}

// cancelOne cancels one fetch in the phase.
func (p *peer) cancelOne(ctx context.Context, client *fetch.Client, all *measured) (*fetch.Outcome, error) {
	u, err := urls.Parse(p.url())
	if err != nil {
		return nil, err
	}
	request := fetch.NewRequest(classify.Standard)
	request.URL = u
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx, give := context.WithTimeout(ctx, 5*time.Second) // a fetch that hangs must not block the others
	defer give()
	type end struct {
		out *fetch.Outcome
		at  time.Time
	}
	ends := make(chan end, 1)
	go func() {
		out := client.Fetch(own, request, p.sink)
		ends <- end{out, time.Now()}
	}()
	if err := p.reached(ctx); err != nil {
		return nil, fmt.Errorf("wait for the phase: %w", err)
	}
	wait.For(ctx, cancelAfter)
	began := time.Now()
	cancel()
	var closed time.Time
	if p.closed != nil {
		if closed, err = p.closed(ctx); err != nil {
			return nil, fmt.Errorf("wait for the socket to close: %w", err)
		}
	}
	e, err := await(ctx, ends)
	if err != nil {
		return nil, fmt.Errorf("wait for the outcome: %w", err)
	}
	if p.closed == nil {
		closed = e.at
	}
	all.add(closed.Sub(began), e.at.Sub(began))
	return e.out, nil
}

// held is the number of goroutines and descriptors in use.
type held struct{ goroutines, descriptors int }

func settledAt(t *testing.T) held {
	t.Helper()
	open, err := descriptors()
	if err != nil {
		t.Fatal(err)
	}
	return held{runtime.NumGoroutine(), open}
}

// expect waits up to 5 s until the numbers are back to h, within leeway.
func (h held) expect(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var now held
	err := wait.Poll(ctx, 20*time.Millisecond, func() (bool, error) {
		now = settledAt(t)
		return now.goroutines <= h.goroutines+leeway && now.descriptors <= h.descriptors+leeway, nil
	})
	t.Logf("goroutines %d, then %d; descriptors %d, then %d", h.goroutines, now.goroutines, h.descriptors, now.descriptors)
	if err != nil {
		t.Errorf("%d goroutines and %d descriptors more than before, want at most %d",
			now.goroutines-h.goroutines, now.descriptors-h.descriptors, leeway)
	}
}
