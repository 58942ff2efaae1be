//go:build linux

package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/wait"
)

// process is the service as it ships, in a process of its own, and an origin
// that it may reach.
type process struct {
	*testing.T
	origin *origin.Origin
	cmd    *exec.Cmd
	addr   chan string // once

	finished atomic.Int64 // fetches that have ended, by the log
	live     atomic.Int64 // MiB of heap that the last collection found in use
	peakLive atomic.Int64
	stacks   atomic.Int64 // MiB, the part of them that is used
	peakRSS  atomic.Int64 // MiB, as far as it was watched
}

// build makes the binary.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "fetchd")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // from an empty cache
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, "fetchd/cmd/fetchd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// start runs the binary until the test ends, in an environment of its own.
func start(ctx context.Context, t *testing.T, binary string, environment ...string) *process {
	t.Helper()
	o, err := origin.Start(origin.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	authority := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authority, o.CAPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--grpc-addr", "127.0.0.1:0", "--http-addr", "", "--egress-allow-cidr", "127.0.0.0/8", "--egress-ca-file", authority,
		"--max-fetches", "10000", "--memory-budget", "1073741824", "--max-connections-per-caller", "2000", "--drain-time", "2s"}
	for _, name := range []string{"http", "https", "h2fault"} {
		_, port, _ := strings.Cut(o.Addr(name), ":")
		args = append(args, "--egress-allow-port", port)
	}
	p := &process{T: t, origin: o, addr: make(chan string, 1)}
	ctx, stop := context.WithCancel(ctx)
	p.cmd = exec.CommandContext(ctx, binary, args...)
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 5 * time.Second                                    // then it is killed
	p.cmd.Env = append(environment, "GODEBUG=gctrace=1")                 // tells the live heap; nothing of the environment sets a flag
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test that is killed leaves nothing behind
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() { p.read(stderr) })
	group.Go(func() { p.watch(ctx) })
	t.Cleanup(func() {
		stop()
		group.Wait()
		_ = p.cmd.Wait() // it was told to end
	})
	return p
}

// collection is a line of gctrace.
var collection = regexp.MustCompile(`^gc \d+ .* \d+->\d+->(\d+) MB, \d+ MB goal, (\d+) MB stacks`)

// read follows the log.
func (p *process) read(log io.Reader) {
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if m := collection.FindSubmatch(lines.Bytes()); m != nil {
			live, _ := strconv.ParseInt(string(m[1]), 10, 64)   // digits
			stacks, _ := strconv.ParseInt(string(m[2]), 10, 64) // digits
			p.live.Store(live)
			p.stacks.Store(stacks)
			p.peakLive.Store(max(p.peakLive.Load(), live))
			continue
		}
		var line struct {
			Msg      string `json:"msg"`
			GRPCAddr string `json:"grpc_addr"`
		}
		text := lines.Bytes()
		if at := bytes.Index(text, []byte(`{"time"`)); at > 0 { // the collector writes its line in pieces
			text = text[at:]
		}
		if json.Unmarshal(text, &line) != nil {
			continue
		}
		switch line.Msg {
		case "serving":
			put(p.addr, line.GRPCAddr)
		case "fetch finished":
			p.finished.Add(1)
		}
	}
}

// watch notes the peak of the resident memory.
func (p *process) watch(ctx context.Context) {
	_ = wait.Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		if rss, err := p.rss(); err == nil {
			p.peakRSS.Store(max(p.peakRSS.Load(), rss))
		}
		return false, nil
	})
}

// rss is the process's resident memory in MiB.
func (p *process) rss() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.ParseInt(strings.TrimSpace(strings.Split(after, "kB")[0]), 10, 64)
	return kib >> 10, err
}

// cpu is the time the process has computed. The kernel counts it in hundredths
// of a second.
func (p *process) cpu() time.Duration {
	p.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ") // the name may hold spaces
	fields := strings.Fields(after)
	if len(fields) < 13 {
		p.Fatalf("/proc/PID/stat: %q", stat)
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err1 != nil || err2 != nil {
		p.Fatalf("/proc/PID/stat: %q", stat)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// memory says what the process takes.
func (p *process) memory() string {
	rss, err := p.rss()
	if err != nil {
		p.Error(err)
	}
	return fmt.Sprintf("resident %d MiB (peak %d); at the last collection live heap %d MiB (peak %d), the used part of stacks %d MiB",
		rss, p.peakRSS.Load(), p.live.Load(), p.peakLive.Load(), p.stacks.Load())
}

// dial makes n connections to the service.
func (p *process) dial(ctx context.Context, n int) []pb.FetchServiceClient {
	p.Helper()
	addr, err := await(ctx, p.addr)
	if err != nil {
		p.Fatalf("wait for the service: %v", err)
	}
	p.addr <- addr // for the next
	clients := make([]pb.FetchServiceClient, n)
	for i := range clients {
		conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
		if err != nil {
			p.Fatal(err)
		}
		p.Cleanup(func() { _ = conn.Close() })
		clients[i] = pb.NewFetchServiceClient(conn)
	}
	return clients
}
