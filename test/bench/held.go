package main

import (
	"context"
	"fmt"
	"time"

	"fetchd/test/bench/origin"
	"fetchd/test/bench/process"
	"fetchd/test/wait"
)

// settle is the pause before the memory of held fetches is read.
const settle = 3 * time.Second

// held measures the memory that a service needs for each of many waiting fetches. The
// service is new and first makes some ordinary fetches.
func (r *rig) held(ctx context.Context, s subject) (*run, error) {
	service := r.services[s.service]
	few := through(s.name, s.service, "grpc-unary").on(smallPath, 1)
	if _, err := r.once(ctx, few, 0, 100*time.Millisecond); err != nil {
		return nil, err
	}
	before, _, err := process.Resident(service.PID())
	if err != nil {
		return nil, err
	}
	all := make(chan struct{}, 1)
	child, err := r.call(ctx, s, 0, 0, func(line string) {
		if line == "measuring" {
			all <- struct{}{}
		}
	})
	if err != nil {
		return nil, err
	}
	if err := r.arrived(ctx, child, s, all); err != nil {
		_ = child.Stop() // the first error matters
		return nil, fmt.Errorf("%s: %w: %s", s.name, err, child.LastWords())
	}
	after, peak, err := process.Resident(service.PID())
	if err != nil {
		return nil, err
	}
	out := &run{held: float64(after-before) / float64(s.open), peak: peak}
	return out, child.Stop()
}

// arrived waits until all fetches are held: until the caller has started them and the origin
// has seen them.
func (r *rig) arrived(ctx context.Context, child *process.Child, s subject, all <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { _, err := child.Line(ctx); ended <- err }() // it writes nothing before it ends
	select {
	case <-all:
	case err := <-ended:
		return err
	}
	if s.service != "timer" {
		n := int64(s.open)
		err := wait.Poll(ctx, 50*time.Millisecond, func() (bool, error) {
			state, err := origin.Ask(ctx, r.addrs["http"])
			return state.Busy >= n || state.Waiting >= n, err
		})
		if err != nil {
			return fmt.Errorf("wait for %d requests at the origin: %w", n, err)
		}
	}
	select {
	case <-time.After(settle):
		return nil
	case err := <-ended:
		return err
	}
}
