package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience is the time that a program has to end before it is killed.
const patience = 5 * time.Second

// Spec describes a program to start.
type Spec struct {
	// Path of the program, or its name on the PATH.
	Path string
	// Args are the arguments without the program's name.
	Args []string
	// Env is the complete environment.
	Env []string
	// Log receives the standard error directly, without a pipe. If it is nil, Stderr
	// receives it.
	Log *os.File
	// Stderr is called with each line of the standard error, from one goroutine. It may
	// be nil.
	Stderr func(line string)
}

// Child is a running program.
type Child struct {
	spec   Spec
	cmd    *exec.Cmd
	cancel context.CancelFunc
	lines  chan string // of the standard output
	reads  sync.WaitGroup

	mu   sync.Mutex
	last string // line of the standard error
}

// Start starts a program. [Child.Stop] and the end of ctx send it a SIGTERM.
func Start(ctx context.Context, spec Spec) (*Child, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &Child{spec: spec, cmd: exec.CommandContext(ctx, spec.Path, spec.Args...), cancel: cancel, lines: make(chan string, 64)}
	c.cmd.Env = spec.Env
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	c.cmd.WaitDelay = patience
	c.cmd.SysProcAttr = diesWithParent()
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	var stderr io.Reader = new(bytes.Reader)
	if spec.Log != nil {
		c.cmd.Stderr = spec.Log
	} else if stderr, err = c.cmd.StderrPipe(); err != nil {
		cancel()
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start %s: %w", spec.Path, err)
	}
	c.reads.Go(func() { c.readOutput(stdout) })
	c.reads.Go(func() { c.readErrors(stderr) })
	return c, nil
}

func (c *Child) readOutput(r io.Reader) {
	defer close(c.lines)
	for lines := bufio.NewScanner(r); lines.Scan(); {
		c.lines <- lines.Text()
	}
}

func (c *Child) readErrors(r io.Reader) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		line := lines.Text()
		if c.spec.Stderr != nil {
			c.spec.Stderr(line)
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		c.mu.Lock()
		c.last = line
		c.mu.Unlock()
	}
}

// PID returns the process ID.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Line returns the next line of the standard output. The error is io.EOF after the
// last one.
func (c *Child) Line(ctx context.Context) (string, error) {
	select {
	case line, more := <-c.lines:
		if !more {
			return "", io.EOF
		}
		return line, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// LastWords returns the last line of the standard error that is not empty.
func (c *Child) LastWords() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// Wait waits until the program ends by itself. The error contains its last words.
func (c *Child) Wait() error {
	defer c.cancel()
	for range c.lines { // so that its writes do not block
	}
	c.reads.Wait()
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", c.spec.Path, err, c.LastWords())
	}
	return nil
}

// Stop ends the program and waits for its end.
func (c *Child) Stop() error {
	c.cancel()
	err := c.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGTERM {
			return nil // it does not handle the signal
		}
	}
	if errors.Is(err, context.Canceled) {
		return nil // a clean exit after the signal
	}
	return err
}
