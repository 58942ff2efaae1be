//go:build linux

package replicas

import (
	"context"
	"slices"
	"testing"
	"time"

	"fetchd/conformance/origin"
	"fetchd/test/rig"
)

func TestMain(m *testing.M) { rig.Main(m, "fetchd") }

// service is the shipped binary with settings that let it reach the origins of a test.
type service struct {
	*testing.T
	args []string
	env  []string
	http string // address of the HTTP API; empty: none, because all replicas would use the same port
}

func newService(t *testing.T, origins ...*origin.Origin) *service {
	t.Helper()
	return &service{T: t, args: rig.Reach(t, []string{"http", "http-other", "https", "https1", "h2fault", "refused"}, origins...)}
}

// process is one run of the service.
type process struct {
	*testing.T
	*rig.Fetchd
	started time.Time
}

// start runs the service at address until the test ends, and waits until it serves.
func (s *service) start(ctx context.Context, address string, args ...string) *process {
	s.Helper()
	p := &process{T: s.T}
	s.Cleanup(func() { // after its end
		if p.Fetchd != nil && p.Failure != "" {
			p.Errorf("the service at %s logged: %s", address, p.Failure)
		}
	})
	p.Fetchd = rig.StartFetchd(ctx, s, rig.FetchdOptions{GRPC: address, HTTP: s.http, Args: slices.Concat(s.args, args), Env: s.env})
	p.started = time.Now()
	return p
}

// exit waits for the end and returns the exit code, or -1 for a signal.
func (p *process) exit(ctx context.Context) int {
	p.Helper()
	code, err := p.ExitCode(ctx)
	if err != nil {
		p.Fatalf("the service at %s: %v", p.GRPC, err)
	}
	return code
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
