//go:build linux

package load

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
)

func TestMain(m *testing.M) { rig.Main(m, "fetchd") }

// process is the shipped service as a process, and an origin that it may reach.
type process struct {
	*testing.T
	*rig.Fetchd
	origin   *origin.Origin
	finished atomic.Int64 // fetches that have ended, by the log
}

// start runs the service until the test ends. env is all of its environment.
func start(ctx context.Context, t *testing.T, env ...string) *process {
	t.Helper()
	p := &process{T: t, origin: rig.Origin(t)}
	p.Fetchd = rig.StartFetchd(ctx, t, rig.FetchdOptions{
		Args: append(rig.Reach(t, []string{"http", "https", "h2fault"}, p.origin),
			"--max-fetches", "11635", "--memory-budget", "1073741824", // of these slots a single caller gets 10,000
			"--max-connections-per-caller", "2000", "--drain-time", "2s"),
		Env: env,
		Line: func(line []byte) {
			if bytes.Contains(line, []byte(`"msg":"fetch finished"`)) {
				p.finished.Add(1)
			}
		},
	})
	return p
}

// peak returns the peak of the resident memory in MiB.
func (p *process) peak() int64 {
	p.Helper()
	_, peak, err := p.Resident()
	if err != nil {
		p.Error(err)
	}
	return peak >> 20
}

// cpu returns the CPU time that the service has used.
func (p *process) cpu() time.Duration {
	p.Helper()
	used, err := p.CPU()
	if err != nil {
		p.Fatal(err)
	}
	return used
}

// memory describes the memory that the process uses.
func (p *process) memory() string {
	now, peak, err := p.Resident()
	if err != nil {
		p.Error(err)
	}
	return fmt.Sprintf("resident %d MiB (peak %d)", now>>20, peak>>20)
}

// dial opens n connections to the service.
func (p *process) dial(n int) []pb.FetchServiceClient {
	p.Helper()
	clients := make([]pb.FetchServiceClient, n)
	for i := range clients {
		clients[i] = pb.NewFetchServiceClient(rig.Dial(p, p.GRPC))
	}
	return clients
}
