//go:build linux

package crawls

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"fetchd/test/rig"
)

func TestMain(m *testing.M) { rig.Main(m, "fetchd", "frontier") }

// limit ends a test that hangs. A test without a fault needs much less.
const limit = 4 * time.Minute

// long is [rig.Long] for tests that run in parallel. Most of their time they wait for
// leases to expire.
func long(t *testing.T) context.Context {
	t.Helper()
	t.Parallel() // first: the time of other tests does not count
	return rig.Long(t, rig.Pick("FETCHD_CRAWLS", limit, 2*limit))
}

// process is one run of a program.
type process struct {
	*testing.T
	*rig.Process
	name string
	log  rig.Log
}

// start runs a program until the test ends. A name without a slash is a program of the module.
func start(t *testing.T, name, program string, args ...string) *process {
	t.Helper()
	p := &process{T: t, name: name}
	var err error
	if !strings.Contains(program, "/") {
		program = rig.Program(program)
	}
	p.Process, err = rig.Start(append([]string{program}, args...), nil, p.log.Add)
	must(t, err)
	t.Cleanup(p.end)
	return p
}

// end stops the process and checks its log for crashes.
func (p *process) end() {
	p.Stop()
	text := p.log.String()
	for _, bad := range []string{"panic:", "fatal error:", "SIGBUS", "Traceback"} {
		if strings.Contains(text, bad) {
			p.Errorf("%s logged %q:\n%s", p.name, bad, text)
		}
	}
	if p.Failed() && !strings.HasPrefix(p.name, "fetchd") { // fetchd logs a line for each fetch
		p.Logf("the end of the log of %s (%v):\n%s", p.name, p.State, last(text, 10))
	}
}

// last returns the last n lines of text.
func last(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// kill ends the process as a power failure would.
func (p *process) kill() { p.Signal(syscall.SIGKILL) }

// suspend stops the process until SIGCONT.
func (p *process) suspend() {
	p.Helper()
	if err := p.Suspend(); err != nil {
		p.Fatalf("%s cannot be stopped: %v", p.name, err)
	}
}

// seconds returns the seconds in which a log has errors.
func seconds(log string) map[string]bool {
	found := make(map[string]bool)
	for line := range strings.Lines(log) {
		if at, rest, ok := strings.Cut(line, "."); ok && (strings.Contains(rest, "level=ERROR") || strings.Contains(rest, "level=DEBUG") && strings.Contains(rest, " error=")) {
			found[at] = true
		}
	}
	return found
}

// wrote waits until the log contains all of texts.
func (p *process) wrote(ctx context.Context, texts ...string) {
	p.Helper()
	rig.Until(ctx, p.T, p.name+" logs "+strings.Join(texts, " and "), func() bool {
		text := p.log.String()
		for _, want := range texts {
			if !strings.Contains(text, want) {
				return false
			}
		}
		return true
	})
}

// exits waits for the end and compares the exit code with want, which is -1 for a signal.
func (p *process) exits(ctx context.Context, want int) {
	p.Helper()
	got, err := p.ExitCode(ctx)
	if err != nil {
		p.Fatalf("%s: %v", p.name, err)
	}
	if got != want {
		p.Errorf("%s: exit code %d, want %d", p.name, got, want)
	}
}

// all reports whether the long form was asked for.
func all() bool { return os.Getenv("FETCHD_CRAWLS") == "all" }

// peak returns the peak of the process's resident memory in KiB.
func (p *process) peak() int {
	p.Helper()
	_, peak, err := p.Resident()
	must(p, err)
	return int(peak >> 10)
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
