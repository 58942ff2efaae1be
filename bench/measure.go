package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"fetchd/bench/origin"
	"fetchd/bench/process"
)

// errMissing says that a program is not there, or not what it needs.
var errMissing = errors.New("cannot run here")

// clocks are what the servers have computed at a moment.
type clocks struct {
	at              time.Time
	service, origin time.Duration
}

// since is what was computed from before on. The clocks are read some moments after
// the caller has read its own, so that it is scaled to the span that he measured.
func (c *clocks) since(before clocks, span float64) (service, origin time.Duration) {
	scale := span / max(c.at.Sub(before.at).Seconds(), 1e-9)
	scaled := func(d time.Duration) time.Duration { return time.Duration(float64(d) * scale) }
	return scaled(c.service - before.service), scaled(c.origin - before.origin)
}

// once puts one load on its target.
func (r *rig) once(ctx context.Context, s subject, warmup, span time.Duration) (*run, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, warmup+span+time.Minute, fmt.Errorf("%s does not end", s.name))
	defer cancel()
	service := r.services[s.service]
	before, err := service.memory(ctx)
	if err != nil {
		return nil, err
	}
	var began, ended clocks
	var errs error
	child, err := r.call(ctx, s, warmup, span, func(line string) {
		switch line {
		case "measuring":
			errs = errors.Join(errs, service.signal(profileBegin), r.read(service, &began))
		case "measured":
			errs = errors.Join(errs, r.read(service, &ended), service.signal(profileEnd))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMissing, err)
	}
	line, _ := child.Line(ctx) // Wait tells why there is none
	if err := child.Wait(); err != nil {
		if began.at.IsZero() && s.program != "go" && ctx.Err() == nil {
			return nil, fmt.Errorf("%w: %w", errMissing, err)
		}
		return nil, errors.Join(err, context.Cause(ctx))
	}
	out := new(run)
	if err := errors.Join(errs, json.Unmarshal([]byte(line), &out.Result)); err != nil {
		return nil, fmt.Errorf("%s: %w: %q", s.name, err, line)
	}
	out.service, out.origin = ended.since(began, out.Seconds)
	if service == nil {
		out.peak, out.allocs, out.bytes = out.MaxRSS<<10, perFetch(out, float64(out.Allocs)), perFetch(out, float64(out.AllocBytes))
		return out, s.judge(out, child.LastWords())
	}
	after, err := service.memory(ctx)
	if err == nil && out.Whole > 0 {
		out.allocs, out.bytes = (after.allocs-before.allocs)/float64(out.Whole), (after.bytes-before.bytes)/float64(out.Whole)
	}
	out.peak = after.peak
	return out, errors.Join(err, s.judge(out, child.LastWords()))
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
	return process.Start(ctx, process.Spec{Path: path, Args: args, Env: r.few(), Stderr: told})
}

// asProgram is set by tests, which are this program then.
const asProgram = "BENCH_AS_PROGRAM"

// few is an environment with what a caller needs and no more: Python's requests
// looks at all of it for every fetch.
func (w *workshop) few() []string {
	few := []string{"FETCHD_ROOT=" + w.root}
	for _, one := range w.environ {
		if name, _, _ := strings.Cut(one, "="); slices.Contains([]string{"PATH", "HOME", "LANG", asProgram}, name) {
			few = append(few, one)
		}
	}
	return few
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
		at, err := r.nodeCaller(filepath.Join(callers, "node"))
		return "node", []string{at}, err
	case "curl":
		return "/usr/bin/python3", []string{filepath.Join(callers, "curl", "call.py")}, nil
	}
	return "", nil, fmt.Errorf("no caller is called %q", name)
}

// nodeCaller is where the caller in Node finds its modules beside itself: in a copy
// of its folder.
func (w *workshop) nodeCaller(folder string) (string, error) {
	copied := filepath.Join(w.work, "node")
	at := filepath.Join(copied, "call.mjs")
	if _, err := os.Stat(at); err == nil {
		return at, nil
	}
	modules, err := filepath.Abs(w.choices.NodeModules)
	if err == nil {
		err = os.CopyFS(copied, os.DirFS(folder))
	}
	if err != nil {
		return "", err
	}
	if inside := filepath.Join(modules, "node_modules"); isFolder(inside) {
		modules = inside
	}
	return at, os.Symlink(modules, filepath.Join(copied, "node_modules"))
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// read reads the clocks.
func (r *rig) read(s *service, c *clocks) (err error) {
	c.at = time.Now()
	if s != nil {
		if c.service, err = process.CPU(s.PID()); err != nil {
			return err
		}
	}
	c.origin, err = process.CPU(r.origin.PID())
	return err
}

// heap is what a service has allocated since its start, where it tells that, and the
// most memory that it has held since it was asked last.
type heap struct {
	allocs, bytes float64
	peak          int64
}

// memory reads it. That takes the service some time, so that it is done before a
// load and after it. A service that there is none of has none.
func (s *service) memory(ctx context.Context) (heap, error) {
	var h heap
	if s == nil {
		return h, nil
	}
	var err error
	if _, h.peak, err = process.Resident(s.PID()); err != nil || s.Metrics == "" {
		return h, err
	}
	text, err := get(ctx, "http://"+s.Metrics+"/metrics")
	if err != nil {
		return h, err
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.ParseFloat(value, 64) // of other lines, which are not looked at
		switch name {
		case "go_memstats_mallocs_total":
			h.allocs = n
		case "go_memstats_alloc_bytes_total":
			h.bytes = n
		}
	}
	return h, process.ForgetPeak(s.PID())
}
