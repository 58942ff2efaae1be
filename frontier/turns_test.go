package frontier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/frontier/work"
)

// searchFor searches documents of a host one after the other until ctx ends, and returns how many. A
// document takes a nanosecond for each unit of its work; between two the host is idle for a time.
func searchFor(ctx context.Context, q *turns, host string, size int, idle time.Duration) (n int) {
	for {
		t, err := q.enter(ctx, host)
		if err != nil {
			return n
		}
		sleep(context.WithoutCancel(ctx), time.Duration(size))
		q.leave(t, size)
		n++
		sleep(ctx, idle)
	}
}

// TestTurns checks what hosts get next to hosts that send expensive documents.
func TestTurns(t *testing.T) {
	t.Parallel()
	const (
		honest, hostile = 8, 64
		cheap           = 1_000_000 // a millisecond
		idle            = 50 * time.Millisecond
	)
	for _, row := range []struct {
		name   string
		size   int // of the documents of hostile hosts
		visits int // of each hostile host at once
		least  int // percent of what the honest hosts get next to others
	}{
		{"4 times as expensive", 4 * cheap, 1, 90},
		{"20 times", 20 * cheap, 1, 75}, // a search is not interrupted
		{"many at once", 4 * cheap, 10, 90},
		{"cheap, and many at once", cheap, 10, 90},
	} {
		for _, slots := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s, %d slots", row.name, slots), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					crawl := func(size, visits int) int {
						q := newTurns(slots)
						ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
						defer cancel()
						var all sync.WaitGroup
						var found atomic.Int64
						for i := range honest {
							all.Go(func() { found.Add(int64(searchFor(ctx, q, fmt.Sprint("honest", i), cheap, idle))) })
						}
						for i := range hostile * visits {
							all.Go(func() { searchFor(ctx, q, fmt.Sprint("hostile", i%hostile), size+size*(i%7)/20, idle) })
						}
						all.Wait()
						if q.free != slots || len(q.waiting) != 0 || len(q.shares) != 0 {
							t.Errorf("%d free, %d waiting, %d shares", q.free, len(q.waiting), len(q.shares))
						}
						return int(found.Load())
					}
					fair, got := crawl(cheap, 1), crawl(row.size, row.visits)
					if got*100 < fair*row.least {
						t.Errorf("%d documents next to hostile hosts, %d next to others: want %d%%", got, fair, row.least)
					}
				})
			})
		}
	}
}

// TestTurnsOfOneHost checks the order of searches that wait: those of a host do not go before the
// first ones of others, and hosts that caused less go first.
func TestTurnsOfOneHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newTurns(1)
		running, err := q.enter(t.Context(), "x")
		must(t, err)
		var order []string
		for _, name := range []string{"a1", "a2", "a3", "b1", "x2", "c1", "b2"} {
			go func() {
				w, err := q.enter(t.Context(), name[:1])
				if err != nil {
					t.Error(err)
				}
				order = append(order, name)
				q.leave(w, work.Quantum)
			}()
			synctest.Wait()
		}
		q.leave(running, 100*work.Quantum)
		synctest.Wait()
		if want := strings.Fields("a1 b1 c1 a2 b2 a3 x2"); !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
	})
}

// TestTurnsPause checks that a long search lets short ones of other hosts run.
func TestTurnsPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newTurns(1)
		long, err := q.enter(t.Context(), "long")
		must(t, err)
		ran := false
		go func() {
			short, err := q.enter(t.Context(), "short")
			if err != nil {
				t.Error(err)
			}
			ran = true
			q.leave(short, 1)
		}()
		synctest.Wait()
		if ran {
			t.Error("two searches ran at once")
		}
		for range 2 {
			if err := q.pause(t.Context(), long, 10*work.Quantum); err != nil {
				t.Error(err)
			}
		}
		if !ran {
			t.Error("the short search did not run while the long one paused")
		}
		q.leave(long, 1)
		if q.free != 1 {
			t.Errorf("%d slots free, want 1", q.free)
		}
	})
}

// TestTurnsEnded checks that the end of a context ends the wait for a turn, and costs no slot.
func TestTurnsEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, cause := newTurns(1), errors.New("drained")
		first, err := q.enter(t.Context(), "a")
		must(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		waits := make(chan error, 2)
		go func() {
			w, err := q.enter(ctx, "b")
			q.leave(w, 5)
			waits <- err
		}()
		go func() {
			err := q.pause(ctx, first, 1)
			q.leave(first, 5)
			waits <- err
		}()
		synctest.Wait() // the pause lets b run, which leaves, and goes on
		for range 2 {
			if err := <-waits; err != nil {
				t.Errorf("a turn: %v", err)
			}
		}
		held, err := q.enter(t.Context(), "c")
		must(t, err)
		go func() {
			w, err := q.enter(ctx, "d")
			q.leave(w, 5)
			waits <- err
		}()
		synctest.Wait()
		cancel(cause)
		if err := <-waits; !errors.Is(err, cause) {
			t.Errorf("enter = %v, want %v", err, cause)
		}
		q.leave(held, 1)
		q.leave(held, 1) // does nothing
		if q.free != 1 || len(q.waiting) != 0 || len(q.shares) != 0 {
			t.Errorf("%d free, %d waiting, %d shares", q.free, len(q.waiting), len(q.shares))
		}
	})
}

// TestTurnsForgetsHosts checks that hosts that are never idle together do not use memory for ever.
func TestTurnsForgetsHosts(t *testing.T) {
	t.Parallel()
	q := newTurns(2)
	if _, err := q.enter(t.Context(), "always"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * maxShares {
		w, err := q.enter(t.Context(), fmt.Sprint(i))
		must(t, err)
		q.leave(w, 1000)
	}
	if len(q.shares) > maxShares+1 {
		t.Errorf("%d shares, want at most %d", len(q.shares), maxShares)
	}
}
