package server_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"fetchd/internal/policies"

	"fetchd/server"
)

// setQuota gives every caller the policy p with a share.
func (r *rig) setQuota(share string) {
	r.Helper()
	set, faults := policies.Parse(fmt.Appendf(nil, "policies: {p: {share: {%s}}}\ndefault: p\n", share))
	if len(faults) > 0 {
		r.Fatal(faults)
	}
	r.Service.SetPolicies(set)
}

// TestQuotas checks the refusal of each method over a quota, and that a task waits.
func TestQuotas(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, share, quota string }{
		{"fetches a second", "fetches-per-second: 0.5, burst: 1", "fetches-per-second"},
		{"fetches in flight", "fetches-in-flight: 1", "fetches-in-flight"},
		{"memory", "memory: 3%", "memory"}, // of two requests that arrive, and of one fetch
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			known := newRoster()
			bubble(t, func(r *rig) {
				r.setQuota(row.share)
				first, second := r.request("/s/k/200:delay=1500ms"), r.request("/s/k/200")
				first.Method, first.Body = "PUT", make([]byte, 90_000)
				second.Method, second.Body = first.Method, first.Body
				open := r.mustStream(as(r.Context(), "a"), first)
				if _, err := open.Recv(); err != nil {
					r.Fatal(err)
				}
				stream := r.mustStream(as(r.Context(), "a"), second)
				_, err := stream.Recv()
				wantQuota(r.T, "Fetch", err, stream.Trailer(), row.quota)
				var trailer metadata.MD
				_, err = r.Client.FetchUnary(as(r.Context(), "a"), second, grpc.Trailer(&trailer))
				wantQuota(r.T, "FetchUnary", err, trailer, row.quota)
				if row.quota != "fetches-per-second" {
					return
				}
				m := r.many(as(r.Context(), "a"))
				m.start(r.task("1", "/s/k/200"), r.task("2", "/s/k/200"))
				began := time.Now()
				m.finish("1", "2")
				if took := time.Since(began); took < 3900*time.Millisecond || took > 4*time.Second {
					r.Errorf("two tasks took %s at one in two seconds", took)
				}
				m.wantClass("1", ok)
				m.wantClass("2", ok)
			}, known.change, withMemory(8<<20))
		})
	}
}

// wantQuota checks a refusal over a quota of the policy p.
func wantQuota(t *testing.T, call string, err error, trailer metadata.MD, quota string) {
	t.Helper()
	longest := 500 * time.Millisecond
	if quota == "fetches-per-second" {
		longest += 2 * time.Second // for the next token
	}
	wantRefusedWithin(t, call, err, trailer, "QUOTA", longest)
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && (info.GetMetadata()["policy"] != "p" || info.GetMetadata()["quota"] != quota) {
			t.Errorf("%s: %v, want the quota %q of the policy p", call, info, quota)
		}
	}
}

// TestRunaway checks that a caller at ten times its quota leaves five others at theirs what they have without it: 95 %
// of their rate, and at most twice the time for 99 of 100.
func TestRunaway(t *testing.T) {
	t.Parallel()
	const perSecond, seconds = 20, 2
	var alone time.Duration
	for _, runaway := range []string{"", "calls", "tasks"} {
		known := newRoster()
		for i := range 5 {
			known.names[fmt.Sprint(i)] = fmt.Sprint("caller-", i)
		}
		bubble(t, func(r *rig) {
			r.setQuota(fmt.Sprint("burst: 1, fetches-per-second: ", perSecond))
			var mu sync.Mutex
			var took []time.Duration
			var calls sync.WaitGroup
			stopped := make(chan struct{})
			get := func(token string) {
				calls.Go(func() {
					began := time.Now()
					_, err := r.Client.FetchUnary(as(r.Context(), token), r.request("/s/k/200:delay=100ms"))
					mu.Lock()
					defer mu.Unlock()
					if err == nil && token != "a" {
						took = append(took, time.Since(began))
					}
				})
			}
			every := func(d time.Duration, do func()) {
				calls.Go(func() {
					for tick := time.NewTicker(d); ; do() {
						select {
						case <-tick.C:
						case <-stopped:
							return
						}
					}
				})
			}
			for i := range 5 {
				every(time.Second/perSecond, func() { get(fmt.Sprint(i)) })
			}
			switch runaway {
			case "calls":
				every(time.Second/perSecond/10, func() { get("a") })
			case "tasks":
				m := r.many(as(r.Context(), "a"))
				for i := range perSecond * seconds {
					m.start(r.task(fmt.Sprint(i), "/s/k/200:delay=100ms"))
				}
				calls.Go(func() {
					for len(m.outcomes) < perSecond*seconds {
						if m.next() != nil {
							return
						}
					}
				})
			}
			time.Sleep(seconds * time.Second) //nolint:forbidigo // in a bubble
			close(stopped)
			calls.Wait()
			slices.Sort(took)
			p99 := took[len(took)*99/100]
			if runaway == "" {
				alone = p99
			}
			if len(took) < 5*perSecond*seconds*95/100 || p99 > 2*alone {
				r.Errorf("with a runaway caller of %q: %d fetches and 99 of 100 within %s, want %d and %s", runaway, len(took), p99, 5*perSecond*seconds, alone)
			}
			synctest.Wait()
		}, known.change, func(c *server.Config) { c.MaxFetches = 24 })
	}
}
