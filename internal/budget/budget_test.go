package budget_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/internal/budget"
)

// TestFairness checks which callers may grow in a budget of 800 bytes, by what each
// caller already holds.
func TestFairness(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		held  map[string]int64
		grow  int64 // bytes that caller a asks for
		grant bool
	}{
		{"a lone caller takes three quarters", nil, 600, true},
		{"a lone caller has three quarters already", map[string]int64{"a": 600}, 1, false},
		{"the last eighth, with more than little", map[string]int64{"b": 600}, 101, false},
		{"the last eighth, with little", map[string]int64{"b": 600, "c": 100}, 12, true},
		{"below half of the budget shares do not count", map[string]int64{"b": 1, "c": 1, "d": 1}, 397, true},
		{"above half the share counts: of four, 200 each", map[string]int64{"b": 100, "c": 100, "d": 100}, 201, false},
		{"above half, and just the share", map[string]int64{"b": 100, "c": 100, "d": 100}, 200, true},
		{"above half, one that has its share already", map[string]int64{"a": 400, "b": 1}, 1, false},
		{"above half, one below its share, another at its share", map[string]int64{"a": 100, "b": 400}, 200, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := budget.New(800)
			own := b.Lease("a")
			for _, caller := range slices.Sorted(maps.Keys(row.held)) {
				l, n := own, row.held[caller]
				if caller != "a" {
					l = b.Lease(caller)
				}
				if !l.Grow(budget.Head, n) {
					t.Fatalf("%s was not granted the first %d bytes", caller, n)
				}
			}
			if got := own.Grow(budget.Body, row.grow); got != row.grant {
				t.Errorf("Grow(%d) = %t, want %t", row.grow, got, row.grant)
			}
		})
	}
}

// TestGrowUpTo checks that it grants at most a sixteenth of what is free, and no error.
func TestGrowUpTo(t *testing.T) {
	t.Parallel()
	b := budget.New(1600)
	a := b.Lease("a")
	for _, row := range []struct{ want, grant int64 }{{1000, 75}, {10, 10}, {-5, 0}, {1000, 69}} {
		if got := a.GrowUpTo(budget.HoldBack, row.want); got != row.grant {
			t.Errorf("GrowUpTo(%d) = %d, want %d with %d held", row.want, got, row.grant, b.Usage().Total())
		}
	}
	if !a.Grow(budget.Body, 1200-154) {
		t.Fatal("the rest of three quarters was not granted")
	}
	if got := a.GrowUpTo(budget.HoldBack, 10); got != 0 {
		t.Errorf("GrowUpTo(10) = %d of a budget that this caller has used up, want 0", got)
	}
}

// TestReserve checks that nothing optional is granted from the memory in which fetches in flight send chunks.
func TestReserve(t *testing.T) {
	t.Parallel()
	b := budget.New(1600)
	fetches, a := b.Lease("a"), b.Lease("a")
	for _, row := range []struct{ fetches, grant int64 }{{0, 75}, {400, 25}, {200, 0}} {
		if !fetches.Grow(budget.Fetch, row.fetches) {
			t.Fatalf("%d more bytes for fetches were refused", row.fetches)
		}
		if got := a.GrowUpTo(budget.HoldBack, 1000); got != row.grant {
			t.Errorf("GrowUpTo = %d after %d more bytes for fetches, want %d", got, row.fetches, row.grant)
		}
		a.Shrink(budget.HoldBack, row.grant)
	}
	if fetches.Close(); a.GrowUpTo(budget.HoldBack, 1000) != 75 {
		t.Error("fetches that are over have a reserve")
	}
}

// TestPayUpTo checks who pays for a message: what is held back, and then the budget.
func TestPayUpTo(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name           string
		need           int64
		grant          bool
		heldBack, body int64 // afterwards
	}{
		{"the hold-back is enough", 50, true, 25, 50},
		{"the rest is charged", 100, true, 0, 100},
		{"there is no memory for the rest", 176, false, 75, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := budget.New(1600)
			from, to, stranger := b.Lease("a"), b.Lease("a"), b.Lease("b")
			from.GrowUpTo(budget.HoldBack, 75)
			if to.Grow(budget.Answer, 1025); from.PayUpTo(stranger, budget.HoldBack, budget.Body, 1) {
				t.Error("a lease has paid for another caller")
			}
			if got := from.PayUpTo(to, budget.HoldBack, budget.Body, row.need); got != row.grant {
				t.Errorf("PayUpTo(%d) = %t, want %t", row.need, got, row.grant)
			}
			if got := b.Usage(); got[budget.HoldBack] != row.heldBack || got[budget.Body] != row.body || to.Held(budget.Body) != row.body {
				t.Errorf("%d bytes are held back and %d paid, want %d and %d", got[budget.HoldBack], got[budget.Body], row.heldBack, row.body)
			}
			from.Close()
			to.Close()
			if got := b.Usage().Total(); got != 0 {
				t.Errorf("%d bytes are held at the end", got)
			}
		})
	}
}

// TestAwait checks when a charge that is refused waits for a hold-back, and how the wait ends.
func TestAwait(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		holder  string                            // the caller that has a hold-back; empty: none
		happens func(holder, other *budget.Lease) // while the charge waits; nil: it must not wait
		grant   bool
	}{
		{"nothing is held back", "", nil, false},
		{"another caller holds back", "b", nil, false},
		{"the hold-back is released", "a", func(holder, _ *budget.Lease) { holder.Shrink(budget.HoldBack, 75) }, true},
		{"the holder ends", "a", func(holder, _ *budget.Lease) { holder.Close() }, true},
		{"something else is released", "a", func(_, other *budget.Lease) { other.Close() }, true},
		{"the hold-back becomes a message, which is sent", "a", func(holder, _ *budget.Lease) {
			holder.Become(budget.Answer, 75)
			synctest.Wait()
			holder.Close()
		}, true},
		{"the hold-back becomes something that lasts", "a", func(holder, other *budget.Lease) {
			holder.PayUpTo(other, budget.HoldBack, budget.Body, 75)
			holder.Shrink(budget.HoldBack, 75)
		}, false},
		{"the holder waits as well, and fails", "a", func(holder, _ *budget.Lease) {
			defer holder.Close()
			if holder.Await(nil, func() bool { return holder.Grow(budget.Body, 100) }) {
				panic("the last one that waits was granted something")
			}
		}, true},
		{"the context ends", "a", func(_, _ *budget.Lease) {}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				b := budget.New(1600)
				needs, other := b.Lease("a"), b.Lease("a")
				other.Grow(budget.Body, 1125)
				holder, kind := b.Lease(cmp.Or(row.holder, "a")), budget.HoldBack
				if row.holder == "" {
					kind = budget.Body
				}
				holder.Grow(kind, 75)
				began := time.Now()
				done := make(chan bool)
				go func() {
					done <- needs.Await(func() context.Context { return ctx }, func() bool { return needs.Grow(budget.Body, 75) })
				}()
				synctest.Wait()
				select {
				case got := <-done:
					if row.happens != nil || got {
						t.Errorf("Await = %t at once", got)
					}
					return
				default:
				}
				if row.happens == nil {
					t.Fatal("Await waits for nothing")
				}
				row.happens(holder, other)
				if got := <-done; got != row.grant {
					t.Errorf("Await = %t after %v, want %t", got, time.Since(began), row.grant)
				}
			})
		})
	}
}

// TestLease checks what a lease gives back, and that closing it twice does so once.
func TestLease(t *testing.T) {
	t.Parallel()
	b := budget.New(1000)
	l, other, stranger := b.Lease("a"), b.Lease("a"), b.Lease("b")
	want := func(step string, fetch, body, answer int64) {
		t.Helper()
		if got := b.Usage(); got[budget.Fetch] != fetch || got[budget.Body] != body || got[budget.Answer] != answer || got.Total() != fetch+body+answer {
			t.Errorf("%s: %v, want fetch %d, body %d, answer %d", step, got, fetch, body, answer)
		}
	}
	l.Grow(budget.Fetch, 100)
	l.Grow(budget.Body, 200)
	want("grown", 100, 200, 0)
	l.Shrink(budget.Body, 50)
	l.Shrink(budget.Answer, 50)
	want("shrunk by what it holds", 100, 150, 0)
	if !l.Pay(other, budget.Fetch, budget.Answer, 30) || l.Pay(other, budget.Fetch, budget.Answer, 71) || l.Pay(stranger, budget.Fetch, budget.Answer, 1) {
		t.Error("Pay: want 30 of 100 paid, and neither more than is held nor to another caller")
	}
	want("paid", 70, 150, 30)
	if !l.Become(budget.Answer, 500) || l.Become(budget.Answer, 5000) {
		t.Error("Become: want 500 granted and 5,000 refused")
	}
	want("become an answer", 0, 0, 530)
	l.Become(budget.Body, 10)
	want("become less", 0, 10, 30)
	var more, empty budget.Lease
	if !l.OpenWith(&more, budget.Answer, 20) || l.OpenWith(&empty, budget.Answer, 5000) || !empty.Grow(budget.Answer, 1) {
		t.Error("OpenWith: want 20 granted, 5,000 refused, and then 1 granted")
	}
	empty.Close()
	want("another", 0, 10, 50)
	more.Close()
	l.Close()
	l.Close()
	other.Close()
	want("closed", 0, 0, 0)
	if l.OpenWith(&empty, budget.Answer, 1) || empty.Grow(budget.Answer, 1) || l.Grow(budget.Body, 1) || l.Become(budget.Body, 1) || l.GrowUpTo(budget.Body, 1) != 0 {
		t.Error("a closed lease was granted bytes")
	}
}

// TestIdle checks that what is idle has its limit, counts for nobody, and makes room for a lease.
func TestIdle(t *testing.T) {
	t.Parallel()
	b := budget.New(800)
	var freed []int64
	b.FreeIdleWith(func(n int64) {
		freed = append(freed, n)
		b.ShrinkIdle(50)
	})
	for _, row := range []struct {
		grow int64
		want bool
	}{{60, true}, {41, false}, {40, true}, {1, false}} {
		if got := b.GrowIdle(row.grow); got != row.want {
			t.Errorf("GrowIdle(%d) = %t, want %t", row.grow, got, row.want)
		}
	}
	one, other, third := b.Lease("a"), b.Lease("b"), b.Lease("c")
	if !one.Grow(budget.Body, 600) || len(freed) != 0 {
		t.Errorf("600 of 700: idle bytes %v were freed, want none", freed)
	}
	if !other.Grow(budget.Body, 100) || len(freed) != 0 {
		t.Errorf("the last 100: idle bytes %v were freed, want none", freed)
	}
	if !third.Grow(budget.Body, 10) || len(freed) != 1 || freed[0] != 10 {
		t.Errorf("10 more: idle bytes %v were freed, want 10", freed)
	}
	if got := b.Usage(); got[budget.Idle] != 50 || got.Total() != 760 {
		t.Errorf("%d bytes are idle of %d, want 50 of 760", got[budget.Idle], got.Total())
	}
	if b.GrowIdle(41) {
		t.Error("idle bytes took the room that is left for leases")
	}
	if third.Grow(budget.Body, 200) || len(freed) != 1 {
		t.Error("a lease was granted more than its caller may have, or idle bytes were freed for it")
	}
	one.Close()
	other.Close()
	third.Close()
}

// TestResize checks that a budget that has become too small grants nothing, and that it grows again.
func TestResize(t *testing.T) {
	t.Parallel()
	b := budget.New(800)
	l := b.Lease("a")
	defer l.Close()
	for _, row := range []struct {
		resize, grow int64
		grant        bool
	}{{0, 400, true}, {-500, 1, false}, {-400, 1, false}, {900, 200, true}, {0, 1, false}} {
		b.Resize(row.resize)
		if got := l.Grow(budget.Body, row.grow); got != row.grant {
			t.Errorf("Grow(%d) of %d with %d held = %t, want %t", row.grow, b.Limit(), l.Total(), got, row.grant)
		}
	}
	if l.Caller() != "a" {
		t.Errorf("the lease is of caller %q, want a", l.Caller())
	}
}

// TestNoBudget checks that a nil lease grants everything.
func TestNoBudget(t *testing.T) {
	t.Parallel()
	var l *budget.Lease
	if !l.Grow(budget.Body, 1<<60) || l.GrowUpTo(budget.HoldBack, 7) != 7 || !l.Become(budget.Answer, 1) || !l.Pay(nil, 0, 0, 1) || !l.PayUpTo(nil, 0, 0, 1) || l.Await(nil, nil) || l.Held(budget.Body) != 0 {
		t.Error("a nil lease refused something, or counted it")
	}
	l.Shrink(budget.Body, 1)
	l.Close()
}

// TestConcurrentUse checks that concurrent leases never exceed the limit, and leave
// nothing held at the end.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	b := budget.New(1 << 20)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 500 {
				l := b.Lease(fmt.Sprint(i % 5))
				for range 8 {
					switch n := random.Int64N(1 << 18); random.IntN(6) {
					case 0:
						l.Grow(budget.Body, n)
					case 1:
						l.GrowUpTo(budget.HoldBack, n)
					case 2:
						l.Shrink(budget.Body, n)
					case 3:
						l.Become(budget.Answer, n)
					case 4:
						l.Shrink(budget.HoldBack, n)
					case 5:
						l.Await(t.Context, func() bool { return l.Grow(budget.Body, n) })
					}
					if got := b.Usage().Total(); got < 0 || got > b.Limit() {
						t.Errorf("%d bytes are held, want 0 to %d", got, b.Limit())
					}
				}
				l.Close()
			}
		})
	}
	all.Wait()
	if got := b.Usage(); got.Total() != 0 {
		t.Errorf("%v are still held after every lease was closed", got)
	}
}

// TestAwaitMany checks that those that wait do not all try again at each of many releases.
func TestAwaitMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const waiters, releases = 200, 100
		b := budget.New(1 << 20)
		holder := b.Lease("a")
		holder.Grow(budget.HoldBack, 1)
		holder.Grow(budget.Body, releases)
		var tries atomic.Int64
		var all sync.WaitGroup
		for range waiters {
			l := b.Lease("a")
			all.Go(func() {
				defer l.Close()
				l.Await(t.Context, func() bool {
					tries.Add(1)
					return holder.Held(budget.Body) == 0
				})
			})
		}
		synctest.Wait()
		for range releases {
			holder.Shrink(budget.Body, 1)
			synctest.Wait() // those that were woken have tried
		}
		all.Wait()
		if n := tries.Load(); n > 4*waiters {
			t.Errorf("%d tries of %d waiters at %d releases, want at most four each", n, waiters, releases)
		}
		holder.Close()
	})
}
