package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"fetchd/conformance/origin"
	"fetchd/internal/cli"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

// process is the command with a pipe for its standard error. After the line with its
// addresses, the pipe is read only if a test does so.
type process struct {
	*testing.T
	cmd        *exec.Cmd
	log        *bufio.Reader
	grpc, http string // addresses
}

// execute starts the command with a pipe for its standard error, and returns the read
// end. prepare is called with the write end before the start.
func execute(t *testing.T, prepare func(*os.File), args ...string) (*exec.Cmd, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { _ = r.Close() })
	if prepare != nil {
		prepare(w)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env, cmd.Stderr = append(os.Environ(), asProgram+"=1"), w
	must(t, errors.Join(cmd.Start(), w.Close()))
	return cmd, r
}

func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	cmd, r := execute(t, nil, append([]string{"--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}, args...)...)
	p := &process{T: t, cmd: cmd, log: bufio.NewReader(r)}
	p.grpc, p.http = addresses(t, p.await(`"msg":"serving"`))
	return p
}

// await reads the log up to the line that contains text.
func (p *process) await(text string) string {
	p.Helper()
	for {
		line, err := p.log.ReadString('\n')
		if err != nil {
			p.Fatalf("the log ends before %q: %v", text, err)
		}
		if strings.Contains(line, text) {
			return line
		}
	}
}

// ask calls the HTTP port, with POST if there is a body.
func (p *process) ask(path, body string) (int, string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	code, text, err := ask(ctx, nil, p.http, path, body)
	if err != nil {
		p.Fatalf("%s: %v", path, err)
	}
	return code, text
}

// awaitMetric polls until a series has a value.
func (p *process) awaitMetric(series, value string) {
	p.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for over := time.After(patience); ; {
		_, text := p.ask("/metrics", "")
		if strings.Contains(text, "\n"+series+" "+value+"\n") {
			return
		}
		select {
		case <-tick.C:
		case <-over:
			p.Fatalf("%s does not become %s", series, value)
		}
	}
}

// fill makes more lines than the pipe and the queue can hold.
func (p *process) fill(o *origin.Origin) {
	p.Helper()
	url := o.URL("http", "/s/good/200")
	body := func(u string) string { return fmt.Sprintf(`{"url":%q}`, u) }
	long := "http://10.0.0.1/" + strings.Repeat("x", 8000) // forbidden, so that it is cheap
	for n := 0; ; n++ {
		if code, text := p.ask("/v1/fetch:unary", body(long)); code != http.StatusOK || !strings.Contains(text, "TARGET_BLOCKED") {
			p.Fatalf("fetch %d: status %d, %.500s", n, code, text)
		}
		if n%100 == 99 && p.dropped() > 0 {
			break
		}
	}
	if code, text := p.ask("/v1/fetch:unary", body(url)); code != http.StatusOK || !strings.Contains(text, "OUTCOME_KIND_SUCCESS") {
		p.Fatalf("a fetch while the log is not read: status %d, %.500s", code, text)
	}
}

func (p *process) dropped() (n float64) {
	p.Helper()
	_, text := p.ask("/metrics", "")
	_, after, _ := strings.Cut(text, "\nfetchd_log_lines_dropped_total ")
	if _, err := fmt.Sscan(after, &n); err != nil {
		p.Fatalf("fetchd_log_lines_dropped_total: %v", err)
	}
	return n
}

func (p *process) signal(s os.Signal) {
	p.Helper()
	must(p, p.cmd.Process.Signal(s))
}

// end waits for the process to exit.
func (p *process) end() *os.ProcessState {
	_ = p.cmd.Wait() // the state has the result
	return p.cmd.ProcessState
}

// TestLogNobodyReads checks that calls, health, a reload and the exit need no reader of
// standard error.
func TestLogNobodyReads(t *testing.T) {
	const drain, margin = time.Second, 5 * time.Second
	for _, row := range []struct {
		name  string
		stuck bool // a fetch is in flight that does not end
		code  int
	}{{"nothing is in flight", false, cli.ExitOK}, {"a fetch outlasts the drain", true, cli.ExitFailed}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			o, f := rig.Origin(t), newFolder(t)
			config := f.write("fetchd.yaml", []byte("max-fetches: 10\n"))
			p := startProcess(t, append(open(o), "--config", config, "--drain-time", drain.String())...)
			p.fill(o)
			if code, text := p.ask("/readyz", ""); code != http.StatusOK {
				t.Errorf("/readyz: status %d, %s", code, text)
			}
			f.write("fetchd.yaml", []byte("max-fetches: 20\n"))
			p.signal(syscall.SIGHUP)
			p.awaitMetric("fetchd_fetches_limit", "20")
			if row.stuck {
				p.leave(o)
			}
			asked := time.Now()
			p.signal(syscall.SIGTERM)
			if state := p.end(); state.ExitCode() != row.code {
				t.Errorf("%v, want exit code %d", state, row.code)
			}
			if took := time.Since(asked); took > drain+margin {
				t.Errorf("ended %s after SIGTERM with --drain-time %s", took, drain)
			}
		})
	}
}

// leave starts a fetch that does not end.
func (p *process) leave(o *origin.Origin) {
	p.Helper()
	ctx, cancel := context.WithCancel(p.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _, _ = ask(ctx, nil, p.http, "/v1/fetch:unary", fmt.Sprintf(`{"url":%q}`, o.URL("http", "/s/stuck/silent"))) // awaitMetric notices an error
	}()
	p.Cleanup(func() {
		cancel()
		<-ended
	})
	p.awaitMetric("fetchd_fetches_in_flight", "1")
}

// TestLogSecondSignal checks that a second signal ends the process at once, even if
// nothing reads the log.
func TestLogSecondSignal(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	p := startProcess(t, append(open(o), "--drain-time", "1h")...)
	p.fill(o)
	p.leave(o)
	ended := make(chan *os.ProcessState, 1)
	go func() { ended <- p.end() }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var state *os.ProcessState
	for state == nil { // the first starts the drain; a later one ends the process
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // the process may have ended
		select {
		case <-tick.C:
		case state = <-ended:
		}
	}
	if status, ok := state.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
		t.Errorf("%v, want it ended by the signal", state)
	}
}

// TestLogReadAgain checks that a reader that returns learns how many lines are missing,
// and gets all lines after that.
func TestLogReadAgain(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	p := startProcess(t, open(o)...)
	p.fill(o)
	wait.For(t.Context(), time.Second) // the page of the metrics may be a second old
	dropped := p.dropped()
	var line struct {
		Level string  `json:"level"`
		Lines float64 `json:"lines"`
	}
	must(t, json.Unmarshal([]byte(p.await("log lines were dropped")), &line))
	if line.Level != "WARN" || line.Lines != dropped {
		t.Errorf("line %+v, want a WARN of %v lines", line, dropped)
	}
	p.signal(syscall.SIGTERM)
	p.await(`"msg":"draining"`)
	p.await(`"msg":"stopped"`)
	if rest, err := io.ReadAll(p.log); len(rest) > 0 || err != nil {
		t.Errorf("after the last line: %q, %v", rest, err)
	}
	if state := p.end(); state.ExitCode() != cli.ExitOK {
		t.Errorf("%v, want exit code %d", state, cli.ExitOK)
	}
}

// TestLogReaderEnds checks that the service goes on, and counts its lines, after the program that reads its
// log has ended.
func TestLogReaderEnds(t *testing.T) {
	t.Parallel()
	cmd, r := execute(t, nil, "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0")
	p := &process{T: t, cmd: cmd, log: bufio.NewReader(r)}
	p.grpc, p.http = addresses(t, p.await(`"msg":"serving"`))
	must(t, r.Close())
	for range 2 {
		if code, text := p.ask("/v1/fetch:unary", `{"url":"http://10.0.0.1/"}`); code != http.StatusOK || !strings.Contains(text, "TARGET_BLOCKED") {
			t.Fatalf("status %d, %.500s", code, text)
		}
	}
	p.awaitMetric("fetchd_log_lines_dropped_total", "2")
	p.signal(syscall.SIGTERM)
	if state := p.end(); state.ExitCode() != cli.ExitOK {
		t.Errorf("%v, want exit code %d", state, cli.ExitOK)
	}
}

// TestErrorNobodyReads checks that a start that fails has its exit code, even if the pipe
// is already full.
func TestErrorNobodyReads(t *testing.T) {
	t.Parallel()
	full := func(w *os.File) {
		must(t, w.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
		if _, err := w.Write(make([]byte, 16<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the pipe is not full: %v", err)
		}
	}
	cmd, _ := execute(t, full, "--log-level", "loud")
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != cli.ExitUsage {
		t.Errorf("%v, want exit code %d", cmd.ProcessState, cli.ExitUsage)
	}
}

// open returns the flags that allow the origin.
func open(o *origin.Origin) []string {
	_, port, _ := strings.Cut(o.Addr("http"), ":")
	return []string{"--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-port", port}
}
