//go:build linux

package limits

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fetchd/internal/wait"
)

// service is one run of the binary in its own cgroup.
type service struct {
	grpcAddr, httpAddr string
	tokens             *tokens // nil: callers are identified by address
	idle               int64   // resident bytes before the first row
	group              *cgroup
	cmd                *exec.Cmd
	gone               chan struct{} // closed when the process has ended
	failure            string        // the first error of its log, once gone is closed
}

// build returns the path of the binary.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "fetchd")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "fetchd/cmd/fetchd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// startService runs the binary in a new cgroup and waits until it serves. The
// environment is empty: fetchd derives its limits from the cgroup.
func startService(ctx context.Context, binary string, limit int64, args []string, tokens *tokens) (*service, error) {
	group, err := newCgroup(cgroupRoot, limit)
	if err != nil {
		return nil, err
	}
	s := &service{group: group, gone: make(chan struct{}), tokens: tokens}
	args = append([]string{binary, "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}, args...)
	if tokens != nil {
		args = append(args, "--token-file", tokens.file)
	}
	inside := group.command(args...)
	s.cmd = exec.Command(inside[0], inside[1:]...)
	s.cmd.Env = []string{}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // the process dies with the test
	log, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, errors.Join(err, group.remove(ctx))
	}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, group.remove(ctx))
	}
	serving := make(chan struct{})
	go s.follow(log, serving)
	select {
	case <-serving:
	case <-s.gone:
		return nil, errors.Join(fmt.Errorf("fetchd did not start: %s %s", s.cmd.ProcessState, s.failure), s.stop(ctx))
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), s.stop(ctx))
	}
	if s.idle, err = s.resident(); err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	return s, nil
}

// follow reads the log to its end and then waits for the process.
func (s *service) follow(log io.Reader, serving chan<- struct{}) {
	defer close(s.gone)
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Bytes()
		switch {
		case bytes.Contains(line, []byte(`"msg":"serving"`)):
			var at struct {
				GRPC string `json:"grpc_addr"`
				HTTP string `json:"http_addr"`
			}
			if json.Unmarshal(line, &at) == nil {
				s.grpcAddr, s.httpAddr = at.GRPC, at.HTTP
				close(serving)
			}
		case s.failure != "":
		case bytes.Contains(line, []byte(`"level":"ERROR"`)), bytes.HasPrefix(line, []byte("panic:")),
			bytes.HasPrefix(line, []byte("fatal error:")), bytes.HasPrefix(line, []byte("fetchd: ")):
			s.failure = string(line)
		}
	}
	_, _ = io.Copy(io.Discard, log) // past a line that is too long
	_ = s.cmd.Wait()                // the state has the result
}

// alive reports whether the process runs.
func (s *service) alive() bool {
	select {
	case <-s.gone:
		return false
	default:
		return true
	}
}

// death describes how the process ended.
func (s *service) death() string {
	kills, err := s.group.kills()
	if err != nil {
		return fmt.Sprint(err)
	}
	if kills > 0 {
		return "killed by the kernel for memory"
	}
	return fmt.Sprintf("ended: %s %s", s.cmd.ProcessState, s.failure)
}

// whileAlive returns a context that also ends when the process does.
func (s *service) whileAlive(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-s.gone:
			cancel(errors.New("the service has ended"))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// stop ends the process and removes its cgroup.
func (s *service) stop(ctx context.Context) error {
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.gone
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return s.group.remove(ctx)
}

// resident returns the process's resident bytes.
func (s *service) resident() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, after, found := strings.Cut(string(status), "VmRSS:")
	fields := strings.Fields(after)
	if !found || len(fields) == 0 {
		return 0, errors.New("/proc/PID/status has no VmRSS")
	}
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	return kib << 10, err
}

// settles waits up to 30 s until the process uses at most 64 MiB more than when it was
// idle, and returns its last size.
func (s *service) settles(ctx context.Context) (int64, error) {
	const most, within = 64 << 20, 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var now int64
	var failed error
	err := wait.Until(ctx, 200*time.Millisecond, func() bool {
		now, failed = s.resident()
		return failed != nil || now < s.idle+most
	})
	if failed != nil {
		return 0, failed
	}
	if err != nil {
		return now, fmt.Errorf("resident %s %s after the last row, want less than idle (%s) and %s", mib(now), within, mib(s.idle), mib(most))
	}
	return now, nil
}

var scraper = &http.Transport{MaxIdleConnsPerHost: 2}

// metrics returns the service's metrics by name, each the sum of its series.
func (s *service) metrics(ctx context.Context) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.httpAddr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := scraper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return parseMetrics(resp.Body)
}

// parseMetrics reads Prometheus's text format.
func parseMetrics(r io.Reader) (map[string]float64, error) {
	sums := make(map[string]float64)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		space := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || space < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[space+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", line, err)
		}
		name, _, _ := strings.Cut(line[:space], "{")
		sums[name] += value
	}
	return sums, lines.Err()
}

// TestParseMetrics sums the series of a name.
func TestParseMetrics(t *testing.T) {
	got, err := parseMetrics(strings.NewReader("# HELP a b\n# TYPE a gauge\na{kind=\"x y\"} 2\na{kind=\"z\"} 3\nb 1e+06\n"))
	if err != nil || got["a"] != 5 || got["b"] != 1e6 || len(got) != 2 {
		t.Errorf("got %v, %v, want a 5 and b 1e6", got, err)
	}
}

// mib formats a size in MiB, rounded down.
func mib(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

// chunks cuts n into parts of at most size.
func chunks(n, size int) []int {
	parts := slices.Repeat([]int{size}, n/size)
	if rest := n % size; rest > 0 {
		parts = append(parts, rest)
	}
	return parts
}
