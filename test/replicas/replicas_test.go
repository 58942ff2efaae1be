//go:build linux

package replicas

import (
	"context"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"fetchd/test/rig"
	"fetchd/test/wait"
)

const (
	workers      = 20              // fetches of 5 to 50 ms each: 500 to 700 a second if the machine can
	leastFlow    = 3 * workers     // minimum of fetches in a second; during a stall each worker ends one
	away         = time.Second     // how long a replica is away
	goalReturn   = 3 * time.Second // until it has load again; gRPC dials again after 1 s, then after 1.6 s
	limitReturn  = 8 * time.Second
	steadyBefore = 1500 * time.Millisecond // time under load before a fault
)

// TestReplicas stops one of three replicas under load, and kills another.
func TestReplicas(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, config string
		repeats      bool // calls that were in flight on a replica that died are repeated
	}{
		{"config for every method", anyMethod, false},
		{"config for idempotent methods", idempotent, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			ctx := rig.Long(t, 50*time.Second)
			f := startFleet(ctx, t, row.config)
			stopped := f.fault(ctx, 1, syscall.SIGTERM)
			if code := stopped.code; code != 0 {
				t.Errorf("exit code after SIGTERM %d, want 0", code)
			}
			killed := f.fault(ctx, 2, syscall.SIGKILL)
			wait.For(ctx, steadyBefore)
			calls := f.load.finish()
			stopped.judgeFlow(t, calls)
			killed.judgeFlow(t, calls)
			f.judgeFailures(calls, killed, row.repeats)
			f.judgeShares(calls, killed.loaded)
		})
	}
}

// fleet is three replicas under load.
type fleet struct {
	*testing.T
	service  *service
	replicas []*process
	caller   *caller
	load     *load
	clock    *rig.Clock
}

// hosts are the addresses of the replicas.
var hosts = []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}

// startReplicas starts a replica on each host.
func startReplicas(ctx context.Context, t *testing.T, s *service) (replicas []*process, addresses []string) {
	t.Helper()
	for _, host := range hosts {
		p := s.start(ctx, rig.FreeAddress(t, host), "--drain-time", "10s")
		replicas, addresses = append(replicas, p), append(addresses, p.GRPC)
	}
	return replicas, addresses
}

func startFleet(ctx context.Context, t *testing.T, config string) *fleet {
	t.Helper()
	o := rig.Origin(t)
	f := &fleet{T: t, service: newService(t, o), clock: rig.StartClock(t)}
	var addresses []string
	f.replicas, addresses = startReplicas(ctx, t, f.service)
	f.caller = dialAll(t, config, addresses...)
	f.load = startLoad(ctx, f.caller, o, workers)
	t.Cleanup(func() { f.load.finish() })
	for _, p := range f.replicas {
		if _, err := f.load.serves(ctx, p.GRPC, time.Time{}); err != nil {
			t.Fatalf("no fetch goes to %s: %v", p.GRPC, err)
		}
	}
	return f
}

// fault is a signal to a replica and its consequences.
type fault struct {
	signal   syscall.Signal
	replica  string
	at       time.Time
	code     int       // exit code
	gone     time.Time // the process has ended
	lost     time.Time // the client has noticed
	returned time.Time // it serves
	loaded   time.Time // it has load again
}

// fault signals a replica under load and restarts it.
func (f *fleet) fault(ctx context.Context, i int, sig syscall.Signal) fault {
	f.Helper()
	wait.For(ctx, steadyBefore)
	p := f.replicas[i]
	r := fault{signal: sig, replica: p.GRPC, at: p.Signal(sig)}
	r.code = p.exit(ctx)
	r.gone = p.EndedAt
	if err := wait.Until(ctx, time.Millisecond, func() bool { return f.caller.lostAt(p.GRPC).After(r.at) }); err != nil {
		f.Fatalf("the client does not notice that %s is gone: %v", p.GRPC, err)
	}
	r.lost = f.caller.lostAt(p.GRPC)
	wait.For(ctx, away)
	f.replicas[i] = f.service.start(ctx, p.GRPC, "--drain-time", "10s")
	r.returned = f.replicas[i].started
	loaded, err := f.load.serves(ctx, p.GRPC, r.returned)
	if err != nil {
		f.Fatalf("%s is back but gets no load: %v", p.GRPC, err)
	}
	r.loaded = loaded
	f.Logf("%s: the process ended after %v, the client noticed after %v; after the restart it had load again after %v", sig,
		r.gone.Sub(r.at).Round(time.Millisecond), r.lost.Sub(r.at).Round(time.Millisecond), r.loaded.Sub(r.returned).Round(time.Millisecond))
	f.clock.AtMost("time from the return to load", r.loaded.Sub(r.returned), goalReturn, limitReturn)
	return r
}

// judgeFlow checks that there was enough load around the fault.
func (r *fault) judgeFlow(t *testing.T, calls []fetched) {
	t.Helper()
	before, after := flow(calls, r.at.Add(-time.Second)), flow(calls, r.at)
	t.Logf("%s: %d fetches succeeded in the second before, %d in the second after", r.signal, before, after)
	rig.AtLeast(t, "fetches in the second before the fault", before, leastFlow)
	rig.AtLeast(t, "fetches in the second after the fault", after, leastFlow)
}

// judgeFailures checks that calls failed only if they were in flight on the killed replica
// before the client could know of the kill.
func (f *fleet) judgeFailures(calls []fetched, killed fault, repeats bool) {
	f.Helper()
	under, failed := 0, 0
	for _, c := range calls {
		if c.began.Before(killed.lost) && c.ended.After(killed.at) && c.replica == killed.replica {
			under++
		}
		switch {
		case c.err == nil && c.success:
			continue
		case c.err == nil:
			f.Errorf("a call on %s has an unsuccessful outcome", c.replica)
		case repeats || c.code() != codes.Unavailable || c.replica != killed.replica:
			f.Error(c.failed())
		case c.began.After(killed.lost):
			f.Errorf("%s; it started after the client had lost that connection", c.failed())
		case c.ended.Before(killed.at):
			f.Errorf("%s; it ended before the kill", c.failed())
		}
		failed++
	}
	f.Logf("%d calls in total; %d ended on the killed replica after the kill, %d calls failed", len(calls), under, failed)
}

// judgeShares checks that each replica has its share of the load at the end.
func (f *fleet) judgeShares(calls []fetched, from time.Time) {
	f.Helper()
	shares, all := make(map[string]int), 0
	for _, c := range calls {
		if c.success && c.began.After(from) {
			shares[c.replica]++
			all++
		}
	}
	for _, p := range f.replicas {
		f.Logf("%s served %d of the last %d fetches", p.GRPC, shares[p.GRPC], all)
		rig.AtLeast(f.T, "fetches of "+p.GRPC, shares[p.GRPC], all/5)
	}
}
