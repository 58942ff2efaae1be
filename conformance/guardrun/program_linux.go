package guardrun

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"fetchd/conformance/kit"
)

// grace is how long a program may take to end when its standard input has ended, or keep its output open.
const grace = 2 * time.Second

// program is a program that runs while it is asked, in its own group of processes.
type program struct {
	cmd    *exec.Cmd
	kill   context.CancelFunc
	errors limited
	ended  chan struct{}
	once   sync.Once
}

// start starts a program. The caller stops it.
func start(ctx context.Context, c *kit.Command, prepare func(*exec.Cmd) error) (*program, error) {
	ctx, kill := context.WithCancel(ctx)
	p := &program{cmd: exec.CommandContext(ctx, c.Args[0], c.Args[1:]...), kill: kill, errors: limited{left: 4 << 10}, ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr, p.cmd.WaitDelay = c.Env, &p.errors, grace
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Cancel = func() error { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }
	err := prepare(p.cmd)
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		kill()
		return nil, fmt.Errorf("run %s: %w", c.Args[0], err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ends does not matter
		close(p.ended)
	}()
	return p, nil
}

// stop kills the program and its children.
func (p *program) stop() {
	p.once.Do(func() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // also the children of one that has ended
		p.kill()
		<-p.ended
	})
}

// failure returns an error with what the program wrote to its standard error. The program must have ended.
func (p *program) failure(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if said := bytes.TrimSpace(p.errors.text); len(said) > 0 {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// limited is a buffer that discards what exceeds its limit.
type limited struct {
	text []byte
	left int
}

func (b *limited) Write(data []byte) (int, error) {
	n := min(len(data), b.left)
	b.left -= n
	b.text = append(b.text, data[:n]...)
	return len(data), nil
}
