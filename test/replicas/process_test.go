//go:build linux

package replicas

import (
	"context"
	"net"
	"os"
	"path/filepath"
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
}

// listeners are the listeners of the origin from which the tests fetch.
var listeners = []string{"http", "http-other", "https", "https1", "h2fault", "refused"}

func newService(t *testing.T, origins ...*origin.Origin) *service {
	t.Helper()
	s := &service{T: t, args: []string{"--egress-allow-cidr", "127.0.0.0/8"}}
	var authorities []byte
	for _, o := range origins {
		authorities = append(authorities, o.CAPEM()...)
		for _, name := range listeners {
			_, port, err := net.SplitHostPort(o.Addr(name))
			if err != nil {
				t.Fatal(err)
			}
			s.args = append(s.args, "--egress-allow-port", port)
		}
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, authorities, 0o600); err != nil {
		t.Fatal(err)
	}
	s.args = append(s.args, "--egress-ca-file", file)
	return s
}

// process is one run of the service.
type process struct {
	*testing.T
	*rig.Process
	addr    string
	metrics string // address of the HTTP API, if it is open
	started time.Time
}

// start runs the service at address until the test ends, and waits until it serves.
func (s *service) start(ctx context.Context, address string, args ...string) *process {
	s.Helper()
	if !slices.Contains(args, "--http-addr") {
		args = append(args, "--http-addr=") // all replicas would use the same default port
	}
	p := &process{T: s.T}
	var err error
	p.Process, err = rig.Start(slices.Concat([]string{rig.Program("fetchd"), "--grpc-addr", address}, s.args, args), s.env, nil)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		p.Stop()
		if p.Failure != "" {
			p.Errorf("the service at %s logged: %s", p.addr, p.Failure)
		}
	})
	at, err := p.Serving(ctx)
	if err != nil {
		s.Fatalf("the service at %s: %v", address, err)
	}
	p.addr, p.metrics, p.started = at.GRPC, at.HTTP, time.Now()
	return p
}

// exit waits for the end and returns the exit code, or -1 for a signal.
func (p *process) exit(ctx context.Context) int {
	p.Helper()
	code, err := p.ExitCode(ctx)
	if err != nil {
		p.Fatalf("the service at %s: %v", p.addr, err)
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
