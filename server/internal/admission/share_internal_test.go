package admission

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	"fetchd/internal/budget"
	"fetchd/test/must"
)

// shares returns slots with a budget of 1 MiB, which counts what it refuses.
func shares(limit int) *Slots {
	a := New(budget.New(1<<20), &Limits{Fetches: limit, PerCaller: math.MaxInt}, "", "", "", func(string, string) {})
	a.Shares = true
	return a
}

func callOf(t *testing.T, name string) context.Context {
	return &callerContext{Context: t.Context(), name: name}
}

// waitsFor returns how many callers wait for a slot, and how many for a token.
func (a *Slots) waitsFor() (slot, token int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.waiting), max(len(a.paced.of), len(a.paced.order))
}

// wantQuota checks that an error names a quota, and returns how long to wait.
func wantQuota(t *testing.T, err error, quota string) time.Duration {
	t.Helper()
	var wait time.Duration
	var info *errdetails.ErrorInfo
	for _, detail := range status.Convert(err).Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			wait = d.GetRetryDelay().AsDuration()
		case *errdetails.ErrorInfo:
			info = d
		}
	}
	if info.GetReason() != ReasonQuota || info.GetMetadata()["quota"] != quota || info.GetMetadata()["policy"] != "p" || wait <= 0 {
		t.Fatalf("%v with %v and a wait of %s, want the quota %q of the policy p", err, info, wait, quota)
	}
	return wait
}

// TestRateOfCalls checks how many calls of a caller are admitted, and that a refused one is admitted after the wait that
// it was advised.
func TestRateOfCalls(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		share Share
		every time.Duration // between two calls
		want  int           // admitted of the calls of 100 s
	}{
		{"below the rate", Share{PerSecond: 10, Burst: 1}, 200 * time.Millisecond, 500},
		{"ten times the rate", Share{PerSecond: 10, Burst: 1}, 10 * time.Millisecond, 1000},
		{"with a burst", Share{PerSecond: 10, Burst: 50}, 10 * time.Millisecond, 1049},
		{"less than one a second", Share{PerSecond: 0.1, Burst: 2}, 100 * time.Millisecond, 11},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, admitted := shares(100), 0
				row.share.Policy = "p"
				for range 100 * time.Second / row.every {
					ticket, err := a.Enter(callOf(t, "a"), &row.share)
					if err == nil {
						admitted++
						ticket.Release()
					} else {
						wantQuota(t, err, QuotaRate)
					}
					time.Sleep(row.every) //nolint:forbidigo // in a bubble
				}
				if off := admitted - row.want; off < -row.want/50 || off > row.want/50 {
					t.Errorf("%d calls were admitted, want %d", admitted, row.want)
				}
				if _, err := a.Enter(callOf(t, "b"), &row.share); err != nil {
					t.Errorf("another caller: %v", err)
				}
			})
		})
	}
}

// TestRateAdvice checks that a call is admitted after the wait that its refusal advised, and not much earlier.
func TestRateAdvice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, s := shares(100), &Share{Policy: "p", PerSecond: 0.2, Burst: 1}
		for range 5 {
			if _, err := a.Enter(callOf(t, "a"), s); err != nil {
				t.Fatal(err)
			}
			_, err := a.Enter(callOf(t, "a"), s)
			wait := wantQuota(t, err, QuotaRate)
			if wait < 5*time.Second || wait > 5*time.Second+2*minPushback {
				t.Errorf("the advice is %s, want the 5 s until the next token and a little", wait)
			}
			time.Sleep(wait) //nolint:forbidigo // in a bubble
		}
	})
}

// TestRateOfTasks checks that tasks over the rate wait in order without a slot, that calls of the same caller come
// between them, and that other callers are not kept waiting.
func TestRateOfTasks(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{1, 7, 100} {
		t.Run(fmt.Sprint(slots, " slots"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, s, began := shares(slots), &Share{Policy: "p", PerSecond: 2, Burst: 1}, time.Now()
				var mu sync.Mutex
				var order []int
				ended := func() int {
					mu.Lock()
					defer mu.Unlock()
					return len(order)
				}
				for i := range 10 {
					place := a.Queue(a.NewTicket("a", s, nil))
					go func() {
						<-place.Admitted
						mu.Lock()
						order = append(order, i)
						mu.Unlock()
						place.Leave()
						place.ticket.Release()
					}()
					synctest.Wait()
				}
				if inFlight, _ := a.Load(); inFlight != 0 || ended() != 1 {
					t.Fatalf("%d in flight and %d admitted at once, want 0 and 1", inFlight, ended())
				}
				other, err := a.Enter(callOf(t, "b"), nil)
				if err != nil {
					t.Fatalf("another caller: %v", err)
				}
				other.Release()
				task := a.Queue(a.NewTicket("c", nil, nil))
				if !task.IsAdmitted() {
					t.Fatal("a task of another caller waits for the tokens of the first")
				}
				task.Leave()
				task.ticket.Release()
				own, err := a.Enter(callOf(t, "a"), s)
				if err != nil {
					t.Fatalf("a call between the tasks: %v", err)
				}
				own.Release()
				_, err = a.Enter(callOf(t, "a"), s)
				wantQuota(t, err, QuotaRate)
				for ended() < 10 {
					time.Sleep(10 * time.Millisecond) //nolint:forbidigo // in a bubble
				}
				if took := time.Since(began); took < 5*time.Second || took > 5100*time.Millisecond {
					t.Errorf("10 tasks and a call took %s at two a second, want 5 s", took)
				}
				if slot, token := a.waitsFor(); slot+token > 0 {
					t.Errorf("%d callers wait for a slot and %d for a token at the end", slot, token)
				}
				for i, n := range order {
					if i != n {
						t.Fatalf("the order is %v", order)
					}
				}
			})
		})
	}
}

// TestShareOfSlots checks the limit of fetches in flight, for calls and tasks.
func TestShareOfSlots(t *testing.T) {
	t.Parallel()
	a, s := shares(100), &Share{Policy: "p", Fetches: 2}
	var denied []string
	a.Denied = func(policy, quota string) { denied = append(denied, policy+" "+quota) }
	first, err := a.Enter(callOf(t, "a"), s)
	must.Succeed(t, err)
	second := a.Queue(a.NewTicket("a", s, nil))
	third := a.Queue(a.NewTicket("a", s, nil))
	if !second.IsAdmitted() || third.IsAdmitted() {
		t.Fatalf("admitted: the second %t, the third %t, want true and false", second.IsAdmitted(), third.IsAdmitted())
	}
	_, err = a.Enter(callOf(t, "a"), s)
	wantQuota(t, err, QuotaFetches)
	if len(denied) != 1 || denied[0] != "p fetches-in-flight" {
		t.Errorf("denied: %q", denied)
	}
	if first.Release(); !third.IsAdmitted() {
		t.Error("the third task waits although a slot of its caller is free")
	}
}

// TestShareOfMemory checks that the memory of one caller is limited, and that the error says by what.
func TestShareOfMemory(t *testing.T) {
	t.Parallel()
	a, s := shares(100), &Share{Policy: "p", Memory: 100 << 10}
	if _, err := a.Enter(callOf(t, "a"), s, Charge{budget.Fetch, 60 << 10}); err != nil {
		t.Fatal(err)
	}
	_, err := a.Enter(callOf(t, "a"), s, Charge{budget.Fetch, 60 << 10})
	wantQuota(t, err, QuotaMemory)
	if _, err := a.Enter(callOf(t, "b"), s, Charge{budget.Fetch, 60 << 10}); err != nil {
		t.Errorf("another caller: %v", err)
	}
	if _, err := a.Enter(callOf(t, "a"), nil, Charge{budget.Fetch, 60 << 10}); err != nil {
		t.Errorf("without the share: %v", err)
	}
}

// TestShareInReport checks that nothing is refused or kept waiting, and that each fetch names the quota that would have
// refused it.
func TestShareInReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			share Share
			want  []string // of a call, a task and a call
		}{
			{Share{Fetches: 1}, []string{"", QuotaFetches, QuotaFetches}},
			{Share{PerSecond: 1, Burst: 2}, []string{"", "", QuotaRate}},
			{Share{Memory: 100 << 10}, []string{"", QuotaMemory, QuotaMemory}},
		} {
			a, charge := shares(100), Charge{budget.Fetch, 60 << 10}
			row.share.Policy, row.share.Report = "p", true
			for i, want := range row.want {
				ticket := a.NewTicket("a", &row.share, nil)
				if i == 1 {
					if !ticket.Grow([]Charge{charge}) || !a.Queue(ticket).IsAdmitted() {
						t.Fatal("a task waits")
					}
				} else {
					var err error
					if ticket, err = a.Enter(callOf(t, "a"), &row.share, charge); err != nil {
						t.Fatal(err)
					}
				}
				if got := ticket.Over(); got != want {
					t.Errorf("%+v: fetch %d is over %q, want %q", row.share, i, got, want)
				}
			}
		}
	})
}

// TestBuckets checks that the buckets of many callers have a limit, and that those which are full are forgotten.
func TestBuckets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, s := shares(100), &Share{Policy: "p", PerSecond: 1, Burst: 1}
		enter := func(caller string) error {
			ticket, err := a.Enter(callOf(t, caller), s)
			if err == nil {
				ticket.Release()
			}
			return err
		}
		refused := 0
		for i := range maxBuckets + 100 {
			if enter(fmt.Sprint(i)) != nil {
				refused++
			}
		}
		if n := len(a.buckets.of); n > maxBuckets+1 || refused != 99 {
			t.Errorf("%d buckets, %d refused, want %d at most, 99 refused", n, refused, maxBuckets+1)
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // in a bubble
		if err := enter("one more"); err != nil {
			t.Error(err)
		}
		if n := len(a.buckets.of); n != 1 {
			t.Errorf("%d buckets when all are full again, want 1", n)
		}
		s = &Share{Policy: "p", PerSecond: 100, Burst: 2}
		if enter("one more") == nil {
			t.Error("a token was there at the old rate")
		}
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // in a bubble
		if err := enter("one more"); err != nil {
			t.Errorf("with the new rate of its policy: %v", err)
		}
	})
}

// TestPacedLeave checks that a task which waits for a token can leave, and that the order of the others stays.
func TestPacedLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := shares(100)
		places := make(map[string][]*Place)
		for i := range 20 {
			caller := fmt.Sprint(i)
			s := &Share{Policy: "p", PerSecond: 1 / float64(1+(i*7)%20), Burst: 1} // the next token in 1 to 20 s
			for range 3 {
				places[caller] = append(places[caller], a.Queue(a.NewTicket(caller, s, nil)))
			}
		}
		leave := func(p *Place) {
			p.Leave()
			p.ticket.Release()
		}
		for i := range 20 {
			all := places[fmt.Sprint(i)]
			if leave(all[0]); i%2 == 0 {
				leave(all[2])
				leave(all[1])
			}
		}
		if slot, token := a.waitsFor(); slot != 0 || token != 10 {
			t.Fatalf("%d callers wait for a slot and %d for a token, want 0 and 10", slot, token)
		}
		for second := range 20 {
			time.Sleep(time.Second + time.Millisecond) //nolint:forbidigo // in a bubble
			synctest.Wait()
			for i := 1; i < 20; i += 2 {
				if got, want := places[fmt.Sprint(i)][1].IsAdmitted(), (i*7)%20 <= second; got != want {
					t.Errorf("after %d s: caller %d is admitted: %t", second+1, i, got)
				}
			}
		}
	})
}

// TestShareStays checks that what is no fetch, such as a long stream, leaves the memory share of its caller as it is.
func TestShareStays(t *testing.T) {
	t.Parallel()
	a := shares(100)
	streams := New(a.Budget, &Limits{Fetches: 10, PerCaller: 10}, "", "", "", func(string, string) {})
	first, err := a.Enter(callOf(t, "a"), &Share{Policy: "p", Memory: 100 << 10}, Charge{budget.Fetch, 60 << 10})
	must.Succeed(t, err)
	if _, err := streams.Enter(callOf(t, "a"), nil, Charge{budget.Receiving, 10 << 10}); err != nil {
		t.Fatal(err)
	}
	if first.Memory.Grow(budget.Body, 60<<10) {
		t.Error("a fetch has more memory than the share of its caller since it opened a stream")
	}
}

// TestLeaveWithoutSlot checks that tasks which leave the queue take no slot, whatever becomes of their answers.
func TestLeaveWithoutSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, s := shares(10), &Share{Policy: "p", Fetches: 1, PerSecond: 1, Burst: 1}
		var places []*Place
		for range 100 {
			places = append(places, a.Queue(a.NewTicket("a", s, nil)))
		}
		for _, p := range places {
			p.Leave() // its answer is not read yet
		}
		if inFlight, _ := a.Load(); inFlight != 1 {
			t.Errorf("%d in flight, want the one that was admitted", inFlight)
		}
		if _, err := a.Enter(callOf(t, "b"), nil); err != nil {
			t.Errorf("another caller: %v", err)
		}
		for _, p := range places {
			p.ticket.Release()
		}
		if inFlight, _ := a.Load(); inFlight != 1 || a.callers["a"] != 0 || a.Budget.Usage().Total() != 0 {
			t.Errorf("%d in flight, %d of a, %d bytes at the end", inFlight, a.callers["a"], a.Budget.Usage().Total())
		}
	})
}

// TestCallsAndTasks checks that calls above the rate leave every other token to the tasks of their caller.
func TestCallsAndTasks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, s := shares(1000), &Share{Policy: "p", PerSecond: 10, Burst: 1}
		var places []*Place
		for range 1000 {
			places = append(places, a.Queue(a.NewTicket("a", s, nil)))
		}
		calls, tasks := 0, 0
		for range 60 * 100 {
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // in a bubble
			if ticket, err := a.Enter(callOf(t, "a"), s); err == nil {
				calls++
				ticket.Release()
			}
		}
		for _, p := range places {
			if p.IsAdmitted() {
				tasks++
			}
			p.Leave()
			p.ticket.Release()
		}
		if calls < 290 || tasks < 290 || calls+tasks > 610 {
			t.Errorf("%d calls and %d tasks in 60 s at 10 a second, want about 300 of each", calls, tasks)
		}
	})
}

// TestReportedQuotas checks that a policy in mode report names as many fetches as the same policy refuses in mode enforce.
func TestReportedQuotas(t *testing.T) {
	t.Parallel()
	for _, share := range []Share{{Fetches: 10}, {PerSecond: 50, Burst: 5}, {Fetches: 5, PerSecond: 60, Burst: 60}} {
		var refused [2]int
		for mode := range 2 {
			synctest.Test(t, func(t *testing.T) {
				a, s := shares(1000), share
				s.Policy, s.Report = "p", mode == 1
				for range 2000 { // 120 a second, of 100 ms each
					ticket, err := a.Enter(callOf(t, "a"), &s)
					if err != nil || ticket.Over() != "" {
						refused[mode]++
					}
					if err == nil {
						time.AfterFunc(100*time.Millisecond, ticket.Release)
					}
					time.Sleep(time.Second / 120) //nolint:forbidigo // in a bubble
				}
				time.Sleep(time.Second) //nolint:forbidigo // in a bubble
				if a.mu.Lock(); len(a.passed) != 0 || a.inFlight != 0 {
					t.Errorf("%d in flight, %v passed at the end", a.inFlight, a.passed)
				}
				a.mu.Unlock()
			})
		}
		if off := refused[1] - refused[0]; refused[0] == 0 || off*50 > refused[0] || -off*50 > refused[0] {
			t.Errorf("%+v: %d are refused and %d reported, want the same within 2 %%", share, refused[0], refused[1])
		}
	}
}

// TestRateOfReload checks that tasks which wait have the rate of the last task that arrived.
func TestRateOfReload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := shares(100)
		var places []*Place
		for i := range 7 {
			s := &Share{Policy: "p", PerSecond: 0.01, Burst: 1}
			if i == 6 {
				s = &Share{Policy: "p", PerSecond: 100, Burst: 1}
			}
			places = append(places, a.Queue(a.NewTicket("a", s, nil)))
		}
		time.Sleep(time.Second) //nolint:forbidigo // in a bubble
		for i, p := range places {
			if !p.IsAdmitted() {
				t.Errorf("task %d still waits a second after the rate was raised", i)
			}
			p.Leave()
			p.ticket.Release()
		}
	})
}

// TestTokenOfRefused checks that a call which is refused for want of memory costs no token.
func TestTokenOfRefused(t *testing.T) {
	t.Parallel()
	a, s := shares(100), &Share{Policy: "p", PerSecond: 0.001, Burst: 1, Memory: 10 << 10}
	for range 3 {
		_, err := a.Enter(callOf(t, "a"), s, Charge{budget.Fetch, 20 << 10})
		wantQuota(t, err, QuotaMemory)
	}
	if _, err := a.Enter(callOf(t, "a"), s, Charge{budget.Fetch, 5 << 10}); err != nil {
		t.Error(err)
	}
}
