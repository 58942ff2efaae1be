package main

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/test/rig"
)

// TestDrain checks that fetches that outlast --drain-time end as SHUTDOWN, and that the process is gone
// soon after, with the exit code for fetches that did not end in time. Package server has every API and
// phase.
func TestDrain(t *testing.T) {
	t.Parallel()
	const (
		drain, fetches = time.Second, 32
		margin         = 10 * time.Second // after the drain time; the goal is 1 s, a busy machine gets more
	)
	o := rig.Origin(t)
	p := startProcess(t, append(open(o), "--drain-time", drain.String())...)
	client := pb.NewFetchServiceClient(rig.Dial(p, p.grpc))
	type end struct {
		outcome *pb.FetchOutcome
		err     error
		at      time.Time
	}
	ends := make(chan end, fetches)
	for i := range fetches {
		go func() {
			out, err := client.FetchUnary(p.Context(), &pb.FetchRequest{Url: o.URL("http", fmt.Sprintf("/s/k%d/silent", i))})
			ends <- end{out.GetOutcome(), err, time.Now()}
		}()
	}
	for i := range fetches {
		if _, err := o.Await(t.Context(), fmt.Sprintf("k%d", i), 1); err != nil {
			t.Fatal(err)
		}
	}
	clock, asked := rig.StartClock(t), time.Now()
	p.signal(syscall.SIGTERM)
	if state := p.end(); state.ExitCode() != cli.ExitFailed {
		t.Errorf("%v, want exit code %d", state, cli.ExitFailed)
	}
	if gone := time.Since(asked); gone > drain+margin {
		t.Errorf("gone after %s, want %s at most", gone, drain+margin)
	}
	for range fetches {
		d := <-ends
		switch e := d.outcome.GetError(); {
		case d.err != nil && clock.Busy(): // read too late: callers are disconnected 250 ms after the drain time
		case d.err != nil || e.GetErrorClass() != pb.ErrorClass_ERROR_CLASS_SHUTDOWN || !e.GetRetryable() || e.GetClassRule() != "P5":
			t.Errorf("a fetch ended with %v, %v; want SHUTDOWN, retryable, by P5", d.err, d.outcome)
		case d.at.Sub(asked) < drain/2:
			t.Errorf("a fetch ended after %s, want %s", d.at.Sub(asked), drain/2)
		}
	}
}
