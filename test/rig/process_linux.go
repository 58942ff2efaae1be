package rig

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fetchd/test/bench/process"
)

// Process is one run of a program.
type Process struct {
	// Gone is closed when the process has ended and its log was read. The fields below are
	// valid from then on.
	Gone  chan struct{}
	State *os.ProcessState
	// Failure is the first error or panic that fetchd has logged, or "".
	Failure string

	cmd     *exec.Cmd
	line    func([]byte)
	serving chan Addresses
}

// Log keeps what a process writes. The zero value is empty.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Add appends a line.
func (l *Log) Add(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(line)
}

// String returns the lines so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Addresses are where a fetchd listens.
type Addresses struct {
	GRPC string `json:"grpc_addr"`
	HTTP string `json:"http_addr"`
}

// Start runs a program. line, if not nil, is called with each line of standard error. The
// environment of the test is not passed on, because its variables could set flags.
func Start(args, env []string, line func([]byte)) (*Process, error) {
	p := &Process{Gone: make(chan struct{}), cmd: exec.Command(args[0], args[1:]...), line: line, serving: make(chan Addresses, 1)}
	p.cmd.Env = append([]string{}, env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // the process ends with the test
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.follow(stderr)
	return p, nil
}

// Serving waits until a fetchd logs that it serves. It is called once.
func (p *Process) Serving(ctx context.Context) (Addresses, error) {
	select {
	case at := <-p.serving:
		return at, nil
	case <-p.Gone:
		return Addresses{}, fmt.Errorf("fetchd did not start: %s %s", p.State, p.Failure)
	case <-ctx.Done():
		return Addresses{}, fmt.Errorf("fetchd does not start: %w", context.Cause(ctx))
	}
}

// Signal sends a signal. It does nothing if the process has ended.
func (p *Process) Signal(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig) // the process may have ended
}

// Suspend stops the process until SIGCONT, and returns when all of its threads have stopped.
// After SIGSTOP alone they run on for a moment.
func (p *Process) Suspend() error {
	p.Signal(syscall.SIGSTOP)
	for {
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WSTOPPED, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Stop sends SIGTERM, and SIGKILL if the process has not ended 5 s later. It returns when
// the process has ended.
func (p *Process) Stop() {
	p.Signal(syscall.SIGCONT) // a test may have stopped it
	p.Signal(syscall.SIGTERM)
	force := time.AfterFunc(5*time.Second, func() { p.Signal(syscall.SIGKILL) })
	<-p.Gone
	force.Stop()
}

// ExitCode waits for the end and returns the exit code, or -1 if a signal ended the process.
func (p *Process) ExitCode(ctx context.Context) (int, error) {
	select {
	case <-p.Gone:
		return p.State.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("the process does not end: %w", context.Cause(ctx))
	}
}

// Resident returns the resident memory of the process and its peak, in bytes.
func (p *Process) Resident() (now, peak int64, err error) {
	return process.Resident(p.cmd.Process.Pid)
}

// Pid is the number of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// CPU returns the CPU time that the process has used.
func (p *Process) CPU() (time.Duration, error) { return process.CPU(p.cmd.Process.Pid) }

// follow reads the log to its end and then waits for the process.
func (p *Process) follow(log io.Reader) {
	defer close(p.Gone)
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			p.read(line)
		}
		if err != nil {
			break
		}
	}
	_ = p.cmd.Wait() // State has the result
	p.State = p.cmd.ProcessState
}

func (p *Process) read(line []byte) {
	switch {
	case bytes.Contains(line, []byte(`"msg":"serving"`)):
		var at Addresses
		if json.Unmarshal(line, &at) == nil {
			p.serving <- at
		}
	case p.Failure == "" && isFailure(line):
		p.Failure = strings.TrimSpace(string(line))
	}
	if p.line != nil {
		p.line(line)
	}
}

// isFailure reports whether a line is an error of fetchd or a panic.
func isFailure(line []byte) bool {
	return bytes.Contains(line, []byte(`"level":"ERROR"`)) || bytes.HasPrefix(line, []byte("panic:")) ||
		bytes.HasPrefix(line, []byte("fatal error:")) || bytes.HasPrefix(line, []byte("fetchd: "))
}
