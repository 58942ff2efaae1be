//go:build linux

package replicas

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fetchd/conformance/origin"
)

// service is the binary as it ships, and the settings under which it reaches the
// origins of a test.
type service struct {
	*testing.T
	binary string
	args   []string
	env    []string
	http   bool // it has --http-addr
}

// listeners are those of the origin that the tests fetch from.
var listeners = []string{"http", "http-other", "https", "https1", "h2fault", "refused"}

// newService builds the binary.
func newService(ctx context.Context, t *testing.T, origins ...*origin.Origin) *service {
	t.Helper()
	dir := t.TempDir()
	s := &service{T: t, binary: filepath.Join(dir, "fetchd")}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", s.binary, "fetchd/cmd/fetchd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	help, err := exec.CommandContext(ctx, s.binary, "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("fetchd --help: %v", err)
	}
	s.http = bytes.Contains(help, []byte("--http-addr"))
	var authorities []byte
	s.args = []string{"--egress-allow-cidr", "127.0.0.0/8"}
	for _, o := range origins {
		authorities = append(authorities, o.CAPEM()...)
		for _, name := range listeners {
			_, port, _ := strings.Cut(o.Addr(name), ":")
			s.args = append(s.args, "--egress-allow-port", port)
		}
	}
	file := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(file, authorities, 0o600); err != nil {
		t.Fatal(err)
	}
	s.args = append(s.args, "--egress-ca-file", file)
	return s
}

// newOrigin starts an origin until the test ends.
func newOrigin(t *testing.T) *origin.Origin {
	t.Helper()
	o, err := origin.Start(origin.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	return o
}

// process is one run of the service.
type process struct {
	*testing.T
	addr    string
	started time.Time
	cmd     *exec.Cmd
	gone    chan struct{} // closed when it has ended and its log is read

	endedAt     time.Time     // once gone is closed
	panics      string        // once gone is closed: a line that no run must write
	collections atomic.Int64  // of the heap, where GODEBUG=gctrace=1 tells
	live        atomic.Int64  // MiB of heap that the last one found in use
	stacks      atomic.Int64  // MiB of stacks that are used
	drains      chan struct{} // closed when the log says so
}

// start runs the service at address until the test ends, and waits until it serves.
func (s *service) start(ctx context.Context, address string, args ...string) *process {
	s.Helper()
	p := &process{T: s.T, gone: make(chan struct{}), drains: make(chan struct{})}
	if s.http && !slices.Contains(args, "--http-addr") {
		args = append(args, "--http-addr=") // its default is one port, and there are several replicas
	}
	p.cmd = exec.Command(s.binary, slices.Concat([]string{"--grpc-addr", address}, s.args, args)...)
	p.cmd.Env = append([]string{}, s.env...)                             // nothing of the environment sets a flag
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test that is killed leaves nothing behind
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		s.Fatal(err)
	}
	serving := make(chan string, 1)
	go p.follow(stderr, serving)
	s.Cleanup(p.stop)
	select {
	case p.addr = <-serving:
	case <-p.gone:
		s.Fatalf("the service at %s did not start: %s", address, p.cmd.ProcessState)
	case <-ctx.Done():
		s.Fatalf("the service at %s does not start: %v", address, context.Cause(ctx))
	}
	p.started = time.Now()
	return p
}

// stop ends the process in order, and by force if that takes too long.
func (p *process) stop() {
	p.signal(syscall.SIGTERM)
	force := time.AfterFunc(5*time.Second, func() { p.signal(syscall.SIGKILL) })
	<-p.gone
	force.Stop()
	if p.panics != "" {
		p.Errorf("the service at %s wrote: %s", p.addr, p.panics)
	}
}

// signal sends one, and says when. To a process that is gone it does nothing.
func (p *process) signal(sig syscall.Signal) time.Time {
	at := time.Now()
	_ = p.cmd.Process.Signal(sig) // it may have ended
	return at
}

// exit waits for the end and returns the exit code, -1 for a signal.
func (p *process) exit(ctx context.Context) int {
	p.Helper()
	select {
	case <-p.gone:
		return p.cmd.ProcessState.ExitCode()
	case <-ctx.Done():
		p.Fatalf("the service at %s does not end: %v", p.addr, context.Cause(ctx))
		return -1
	}
}

// collection is a line of gctrace.
var collection = regexp.MustCompile(`^gc \d+ .* \d+->\d+->(\d+) MB, \d+ MB goal, (\d+) MB stacks`)

// follow reads the log to its end, and then waits for the process.
func (p *process) follow(log io.Reader, serving chan<- string) {
	defer close(p.gone)
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.line(lines.Bytes(), serving)
	}
	_, _ = io.Copy(io.Discard, log) // past a line that is too long
	_ = p.cmd.Wait()                // the state says how it ended
	p.endedAt = time.Now()
}

func (p *process) line(line []byte, serving chan<- string) {
	if at := bytes.Index(line, []byte(`{"time"`)); at > 0 { // the collector writes its line in pieces
		line = line[at:]
	}
	switch {
	case bytes.HasPrefix(line, []byte("gc ")):
		if m := collection.FindSubmatch(line); m != nil {
			live, _ := strconv.ParseInt(string(m[1]), 10, 64)   // digits
			stacks, _ := strconv.ParseInt(string(m[2]), 10, 64) // digits
			p.live.Store(live)
			p.stacks.Store(stacks)
			p.collections.Add(1)
		}
	case bytes.Contains(line, []byte(`"msg":"serving"`)):
		var told struct {
			GRPCAddr string `json:"grpc_addr"`
		}
		if json.Unmarshal(line, &told) == nil {
			serving <- told.GRPCAddr
		}
	case bytes.Contains(line, []byte(`"msg":"draining"`)):
		close(p.drains)
	case bytes.Contains(line, []byte(`"level":"ERROR"`)), bytes.HasPrefix(line, []byte("panic:")), bytes.HasPrefix(line, []byte("fatal error:")):
		if p.panics == "" {
			p.panics = string(line)
		}
	}
}

// proc reads a file of the process under /proc.
func (p *process) proc(name string) string {
	p.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, name))
	if err != nil {
		p.Fatal(err)
	}
	return string(text)
}

// descriptors counts what the process has open.
func (p *process) descriptors() int {
	p.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		p.Fatal(err)
	}
	return len(open)
}

// threads counts those of the operating system.
func (p *process) threads() int {
	p.Helper()
	_, after, _ := strings.Cut(p.proc("status"), "Threads:")
	n, err := strconv.Atoi(strings.Fields(after + " ?")[0])
	if err != nil {
		p.Fatal(err)
	}
	return n
}

// cpu is the time the process has computed, in the kernel's hundredths of a
// second.
func (p *process) cpu() time.Duration {
	p.Helper()
	_, after, _ := strings.Cut(p.proc("stat"), ") ") // the name may hold spaces
	fields := strings.Fields(after)
	if len(fields) < 13 {
		p.Fatalf("/proc/PID/stat: %q", after)
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err1 != nil || err2 != nil {
		p.Fatalf("/proc/PID/stat: %q", after)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// freeAddress is one on loopback where nothing listens.
func freeAddress(t *testing.T, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		cannot(t, "%s is no address of this machine: %v", host, err)
	}
	defer l.Close()
	return l.Addr().String()
}
