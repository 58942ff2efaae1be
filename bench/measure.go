package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"fetchd/bench/origin"
	"fetchd/bench/process"
)

// errMissing says that a program is not there, or not what it needs.
var errMissing = errors.New("cannot run here")

// clocks are what the servers have used at one moment.
type clocks struct {
	service, origin time.Duration
	allocs, bytes   float64
}

// once puts one load on its target.
func (r *rig) once(ctx context.Context, s subject, warmup, span time.Duration) (*run, error) {
	var before, after clocks
	var errs error
	service := r.services[s.service]
	began := false
	child, err := r.call(ctx, s, warmup, span, func(line string) {
		switch line {
		case "measuring":
			began = true
			errs = errors.Join(errs, r.open(ctx, service, &before))
		case "measured":
			errs = errors.Join(errs, r.read(ctx, service, &after))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMissing, err)
	}
	line, _ := child.Line(ctx) // Wait tells why there is none
	if err := child.Wait(); err != nil {
		if !began && s.program != "go" && ctx.Err() == nil {
			return nil, fmt.Errorf("%w: %w", errMissing, err)
		}
		return nil, err
	}
	out := &run{service: after.service - before.service, origin: after.origin - before.origin,
		allocs: after.allocs - before.allocs, bytes: after.bytes - before.bytes}
	if err := errors.Join(errs, json.Unmarshal([]byte(line), &out.Result)); err != nil {
		return nil, fmt.Errorf("%s: %w: %q", s.name, err, line)
	}
	if err := r.peaks(service, out); err != nil {
		return nil, err
	}
	return out, s.judge(out, child.LastWords())
}

// judge refuses a run that is not what it was to be. Where faults are asked for one
// of a hundred may fail: its attempts may all have met them.
func (s *subject) judge(out *run, words string) error {
	switch {
	case out.Fetches == 0:
		return fmt.Errorf("%s: no fetch ended while it was measured: give more --seconds", s.name)
	case out.Failed == 0, s.faults && out.Failed*100 <= out.Fetches:
		return nil
	}
	return fmt.Errorf("%s: %d of %d fetches failed: %s", s.name, out.Failed, out.Fetches, words)
}

// call starts the caller of a load.
func (r *rig) call(ctx context.Context, s subject, warmup, span time.Duration, told func(string)) (*process.Child, error) {
	path, args, err := r.program(s.program)
	if err != nil {
		return nil, err
	}
	seconds := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }
	args = append(args, "--kind", s.kind, "--target", r.target(s), "--open", strconv.Itoa(s.open),
		"--warmup", seconds(warmup), "--seconds", seconds(span))
	if service := r.services[s.service]; service != nil {
		args = append(args, "--grpc", service.GRPC)
	}
	return process.Start(ctx, process.Spec{Path: path, Args: args, Stderr: told, Dir: r.root,
		Env: append(r.environ, "BENCH_NODE_MODULES="+r.choices.NodeModules)})
}

func (r *rig) target(s subject) string { return origin.URL(s.from, r.addrs[s.from], s.path) }

// program is the command of a caller, and its first arguments.
func (r *rig) program(name string) (string, []string, error) {
	callers := filepath.Join(r.root, "bench", "callers")
	switch name {
	case "go":
		return r.self, []string{"call"}, nil
	case "python":
		return "/usr/bin/python3", []string{filepath.Join(callers, "python", "call.py")}, nil // the one that has Debian's grpc
	case "node":
		return "node", []string{filepath.Join(callers, "node", "call.mjs")}, nil
	case "curl":
		return "/usr/bin/python3", []string{filepath.Join(callers, "curl", "call.py")}, nil
	case "bazel":
		return r.choices.Bazel, []string{"call"}, nil
	}
	return "", nil, fmt.Errorf("no caller is called %q", name)
}

// open reads the clocks at the begin of what is measured, after what itself takes
// time there.
func (r *rig) open(ctx context.Context, s *service, c *clocks) error {
	var err error
	if s != nil {
		err = errors.Join(s.heap(ctx, c), process.ForgetPeak(s.PID()))
	}
	return errors.Join(err, r.cpu(s, c))
}

// read reads them at its end, and first those of the CPU.
func (r *rig) read(ctx context.Context, s *service, c *clocks) error {
	err := r.cpu(s, c)
	if s != nil {
		err = errors.Join(err, s.heap(ctx, c))
	}
	return err
}

func (r *rig) cpu(s *service, c *clocks) (err error) {
	if s != nil {
		if c.service, err = process.CPU(s.PID()); err != nil {
			return err
		}
	}
	c.origin, err = process.CPU(r.origin.PID())
	return err
}

// peaks notes the memory of the service, or of the caller where there is none.
func (r *rig) peaks(s *service, out *run) error {
	if s == nil {
		out.peak, out.allocs, out.bytes = out.MaxRSS<<10, float64(out.Allocs), float64(out.AllocBytes)
		return nil
	}
	var err error
	_, out.peak, err = process.Resident(s.PID())
	return err
}

// heap reads what the service says of its heap.
func (s *service) heap(ctx context.Context, c *clocks) error {
	if s.Metrics == "" {
		return nil
	}
	text, err := get(ctx, "http://"+s.Metrics+"/metrics")
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.ParseFloat(value, 64) // of other lines, which are not looked at
		switch name {
		case "go_memstats_mallocs_total":
			c.allocs = n
		case "go_memstats_alloc_bytes_total":
			c.bytes = n
		}
	}
	return nil
}
