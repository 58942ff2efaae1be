//go:build linux

package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"fetchd/test/rig"
	"fetchd/test/wait"
)

// service is one run of the binary in its own cgroup.
type service struct {
	*rig.Process
	grpcAddr, httpAddr string
	tokens             *tokens // nil: callers are identified by address
	idle               int64   // resident bytes before the first row
	group              *rig.Cgroup
}

// startService runs the binary in a new cgroup and waits until it serves. The
// environment is empty: fetchd derives its limits from the cgroup.
func startService(ctx context.Context, limit int64, args []string, tokens *tokens) (*service, error) {
	group, err := rig.NewCgroup(limit)
	if err != nil {
		return nil, err
	}
	s := &service{group: group, tokens: tokens}
	args = append([]string{rig.Program("fetchd"), "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}, args...)
	if tokens != nil {
		args = append(args, "--token-file", tokens.file)
	}
	if s.Process, err = rig.Start(group.Command(args...), nil, nil); err != nil {
		return nil, errors.Join(err, group.Remove(ctx))
	}
	at, err := s.Serving(ctx)
	if err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	s.grpcAddr, s.httpAddr = at.GRPC, at.HTTP
	if s.idle, err = s.resident(); err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	return s, nil
}

// alive reports whether the process runs.
func (s *service) alive() bool {
	select {
	case <-s.Gone:
		return false
	default:
		return true
	}
}

// death describes how the process ended.
func (s *service) death() string {
	kills, err := s.group.Kills()
	if err != nil {
		return fmt.Sprint(err)
	}
	if kills > 0 {
		return "killed by the kernel for memory"
	}
	return fmt.Sprintf("ended: %s %s", s.State, s.Failure)
}

// whileAlive returns a context that also ends when the process does.
func (s *service) whileAlive(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-s.Gone:
			cancel(errors.New("the service has ended"))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// stop ends the process and removes its cgroup.
func (s *service) stop(ctx context.Context) error {
	s.Signal(syscall.SIGKILL)
	<-s.Gone
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return s.group.Remove(ctx)
}

// resident returns the process's resident bytes.
func (s *service) resident() (int64, error) {
	now, _, err := s.Resident()
	return now, err
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

// metrics returns the service's metrics.
func (s *service) metrics(ctx context.Context) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTime)
	defer cancel()
	return rig.Metrics(ctx, s.httpAddr)
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
