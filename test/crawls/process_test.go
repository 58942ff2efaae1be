//go:build linux

package crawls

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// programs are built by the first test that needs them.
var programs struct {
	once sync.Once
	dir  string
	why  string // they are not there
}

func TestMain(m *testing.M) {
	code := m.Run()
	if programs.dir != "" {
		_ = os.RemoveAll(programs.dir)
	}
	os.Exit(code) //nolint:forbidigo // TestMain is a main.
}

// program is the path of one of the two that ship.
func program(t *testing.T, name string) string {
	t.Helper()
	programs.once.Do(func() {
		dir, err := os.MkdirTemp("", "crawls")
		if err != nil {
			programs.why = fmt.Sprint(err)
			return
		}
		programs.dir = dir
		cmd := exec.Command("go", "build", "-o", dir, "fetchd/cmd/fetchd", "fetchd/cmd/frontier")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			programs.why = "go build: " + string(out)
		}
	})
	if programs.why != "" {
		t.Fatal(programs.why)
	}
	return filepath.Join(programs.dir, name)
}

// process is one run of a program.
type process struct {
	*testing.T
	name string
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended and its log is read

	mu  sync.Mutex
	log bytes.Buffer
}

// start runs a program until the test ends.
func start(t *testing.T, name, path string, args ...string) *process {
	t.Helper()
	p := &process{T: t, name: name, cmd: exec.Command(path, args...), gone: make(chan struct{})}
	p.cmd.Env = []string{}                                               // nothing of the environment sets a flag
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test that is killed leaves nothing behind
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.gone)
		lines := bufio.NewReader(stderr)
		for {
			line, err := lines.ReadBytes('\n')
			p.mu.Lock()
			p.log.Write(line)
			p.mu.Unlock()
			if err != nil {
				break
			}
		}
		_ = p.cmd.Wait() // the state says how it ended
	}()
	t.Cleanup(p.end)
	return p
}

// end ends the process in order, and by force if that takes too long.
func (p *process) end() {
	p.signal(syscall.SIGCONT) // it may be stopped
	p.signal(syscall.SIGTERM)
	force := time.AfterFunc(3*time.Second, p.kill)
	<-p.gone
	force.Stop()
	text := p.text()
	for _, bad := range []string{"panic:", "fatal error:", "SIGBUS"} {
		if strings.Contains(text, bad) {
			p.Errorf("%s wrote %q:\n%s", p.name, bad, text)
		}
	}
	if p.Failed() && !strings.HasPrefix(p.name, "fetchd") { // a line for each fetch
		p.Logf("the end of the log of %s (%v):\n%s", p.name, p.cmd.ProcessState, last(text, 30))
	}
}

func last(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// signal sends one. To a process that is gone it does nothing.
func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// kill ends the process as a power cut would.
func (p *process) kill() { p.signal(syscall.SIGKILL) }

// text is what the process has written to standard error.
func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// seconds are those in which a log tells of errors.
func seconds(log string) map[string]bool {
	found := make(map[string]bool)
	for line := range strings.Lines(log) {
		if at, rest, ok := strings.Cut(line, "."); ok && strings.Contains(rest, "level=ERROR") {
			found[at] = true
		}
	}
	return found
}

// wrote waits until standard error has all of texts.
func (p *process) wrote(ctx context.Context, texts ...string) {
	p.Helper()
	until(ctx, p.T, p.name+" writes "+strings.Join(texts, " and "), func() bool {
		text := p.text()
		for _, want := range texts {
			if !strings.Contains(text, want) {
				return false
			}
		}
		return true
	})
}

// exits waits for the end and holds the exit status against want, -1 for a signal.
func (p *process) exits(ctx context.Context, want int) {
	p.Helper()
	select {
	case <-p.gone:
	case <-ctx.Done():
		p.Fatalf("%s does not end: %v", p.name, context.Cause(ctx))
	}
	if got := p.cmd.ProcessState.ExitCode(); got != want {
		p.Errorf("%s: exit status %d, want %d", p.name, got, want)
	}
}

// freeAddress is one on loopback where nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
