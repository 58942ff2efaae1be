//go:build linux

package replicas

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

// TestHistory makes calls of every kind while one replica is stopped and another is killed,
// and checks the recorded history.
func TestHistory(t *testing.T) {
	t.Parallel()
	const (
		callers = 24
		between = 2 * time.Second // time before, between and after the faults
		leastOf = 3               // minimum of calls of each kind
	)
	ctx := rig.Long(t, 50*time.Second)
	clock := rig.StartClock(t) // for the origin, which runs in this process
	o := rig.Origin(t)
	s := newService(t, o)
	replicas, addresses := startReplicas(ctx, t, s)
	r := &recorder{caller: dialAll(t, anyMethod, addresses...), origin: o, at: make(map[*call]string)}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() { r.work(running, i) })
	}
	wait.For(ctx, between)
	replicas[1].Signal(syscall.SIGTERM)
	if code := replicas[1].exit(ctx); code != 0 {
		t.Errorf("exit code after SIGTERM %d, want 0", code)
	}
	s.start(ctx, addresses[1])
	wait.For(ctx, between)
	killedAt := replicas[2].Signal(syscall.SIGKILL)
	replicas[2].exit(ctx)
	if err := wait.Until(ctx, time.Millisecond, func() bool { return r.caller.lostAt(addresses[2]).After(killedAt) }); err != nil {
		t.Fatal(err)
	}
	lost := r.caller.lostAt(addresses[2])
	s.start(ctx, addresses[2])
	wait.For(ctx, between)
	stop()
	group.Wait()
	wait.For(ctx, 2*quietAfter) // late requests must be recorded too
	h := r.history(addresses[2], killedAt, lost)
	h.late = clock.Late()
	h.summarize(t)
	for _, v := range check(h) {
		t.Errorf("%s: call %s: %s", v.property, v.call, v.text)
	}
	for _, c := range h.calls {
		if !c.left && !c.killed && c.code != codes.OK {
			t.Errorf("call %s (%s) ended %s, want OK: only a cancellation or a killed replica may end a call without an outcome", c.id, c.kind, c.code)
		}
	}
	kinds := make(map[string]int)
	for _, c := range h.calls {
		kinds[c.kind]++
	}
	for _, row := range rows {
		rig.AtLeast(t, "calls of the kind "+row.name, kinds[row.name], leastOf)
	}
}

// summarize logs what the run consisted of and checks that it was enough, because an empty
// history has no violations.
func (h *history) summarize(t *testing.T) {
	t.Helper()
	var unaries, left, killed, withChunks, retried, shut int
	for _, c := range h.calls {
		for _, n := range []struct {
			count *int
			yes   bool
		}{{&unaries, c.unary}, {&left, c.left}, {&killed, c.killed && c.code != codes.OK}} {
			if n.yes {
				*n.count++
			}
		}
		for _, e := range c.events {
			if e.GetBodyChunk() != nil {
				withChunks++
				break
			}
		}
		for _, o := range c.outcomes() {
			if o.GetAttemptCount() > 1 {
				retried++
			}
			if o.GetError().GetErrorClass() == pb.ErrorClass_ERROR_CLASS_SHUTDOWN {
				shut++
			}
		}
	}
	t.Logf("%d calls, %d of them unary, %d streams with a body, %d of more than one attempt; %d left by their callers, %d lost with the killed replica, %d ended as SHUTDOWN; %d requests at the origin",
		len(h.calls), unaries, withChunks, retried, left, killed, shut, len(h.requests))
	rig.AtLeast(t, "calls", len(h.calls), 500)
	rig.AtLeast(t, "calls left", left, 10)
	rig.AtLeast(t, "calls of more than one attempt", retried, 100)
	rig.AtLeast(t, "streams with a body", withChunks, 100)
	rig.AtLeast(t, "calls lost with the killed replica", killed, 1)
}
