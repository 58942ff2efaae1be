package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"fetchd/test/bench/origin"
	"fetchd/test/bench/process"
	"fetchd/test/wait"
)

// errMissing means that a program or something it needs is not installed.
var errMissing = errors.New("cannot run here")

// clocks holds the CPU times of the servers at one moment.
type clocks struct {
	at              time.Time
	service, origin time.Duration
}

// since returns the CPU times since before. They are scaled to the span in seconds that the
// caller measured, because its clocks are read some moments earlier.
func (c *clocks) since(before clocks, span float64) (service, origin time.Duration) {
	scale := span / max(c.at.Sub(before.at).Seconds(), 1e-9)
	scaled := func(d time.Duration) time.Duration { return time.Duration(float64(d) * scale) }
	return scaled(c.service - before.service), scaled(c.origin - before.origin)
}

// once runs one load.
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
			errs = errors.Join(errs, r.read(service, &began))
		case "measured":
			errs = errors.Join(errs, r.read(service, &ended))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMissing, err)
	}
	line, _ := child.Line(ctx) // without one, Wait returns the error
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

// judge returns an error if the run is not valid. With faults, one fetch of a hundred may
// fail, because all its attempts may meet a fault.
func (s *subject) judge(out *run, words string) error {
	switch {
	case out.Fetches == 0:
		return fmt.Errorf("%s: no fetch ended in the measured time: give more --seconds", s.name)
	case out.Failed == 0, s.faults && out.Failed*100 <= out.Fetches:
		return nil
	}
	return fmt.Errorf("%s: %d of %d fetches failed: %s", s.name, out.Failed, out.Fetches, words)
}

// call starts the caller of a load. emit receives the lines of its standard error.
func (r *rig) call(ctx context.Context, s subject, warmup, span time.Duration, emit func(string)) (*process.Child, error) {
	path, args, err := r.program(s.program)
	if err != nil {
		return nil, err
	}
	service, address := r.services[s.service], r.addrs[s.from]
	if service != nil && service.Proxy != "" {
		address = service.Proxy
	}
	args = append(args, "--kind", s.kind, "--target", origin.URL(s.from, address, s.path), "--open", strconv.Itoa(s.open),
		"--warmup", fmt.Sprint(warmup.Seconds()), "--seconds", fmt.Sprint(span.Seconds()))
	if s.hold {
		args = append(args, "--hold")
	}
	if service != nil {
		args = append(args, "--grpc", service.GRPC)
	}
	return process.Start(ctx, process.Spec{Path: path, Args: args, Env: r.few(), Stderr: emit})
}

// asProgram is the environment variable that makes a test binary act as this program.
const asProgram = "BENCH_AS_PROGRAM"

// few returns a minimal environment for a caller. Python's requests reads the whole
// environment for every fetch.
func (w *workshop) few() []string {
	few := []string{"FETCHD_ROOT=" + w.root}
	for _, one := range w.environ {
		if name, _, _ := strings.Cut(one, "="); slices.Contains([]string{"PATH", "HOME", "LANG", asProgram}, name) {
			few = append(few, one)
		}
	}
	return few
}

// program returns the path of a caller and its first arguments.
func (r *rig) program(name string) (string, []string, error) {
	callers := filepath.Join(r.root, "test", "bench", "callers")
	switch name {
	case "go":
		return r.self, []string{"call"}, nil
	case "python":
		return "/usr/bin/python3", []string{filepath.Join(callers, "python", "call.py")}, nil // Debian's, which has grpc
	case "node":
		at, err := r.nodeCaller(filepath.Join(callers, "node"))
		return "node", []string{at}, err
	case "curl":
		return "/usr/bin/python3", []string{filepath.Join(callers, "curl", "call.py")}, nil
	}
	return "", nil, fmt.Errorf("no caller is called %q", name)
}

// nodeCaller copies the caller in Node to a folder in which it finds its modules, and
// returns its path.
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
	return at, os.Symlink(filepath.Join(modules, "node_modules"), filepath.Join(copied, "node_modules"))
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

// usage holds what a service has allocated since its start, if it exports that, and its peak
// memory since the last call.
type usage struct {
	allocs, bytes float64
	peak          int64
}

// memory reads the heap of a service. It is called before and after a load, because it costs
// the service some time. It returns zero if there is no service.
func (s *service) memory(ctx context.Context) (usage, error) {
	var h usage
	if s == nil {
		return h, nil
	}
	var err error
	if _, h.peak, err = process.Resident(s.PID()); err != nil || s.Metrics == "" {
		return h, err
	}
	wait.For(ctx, time.Second) // the page may be a second old
	text, err := origin.Get(ctx, new(http.Transport), "http://"+s.Metrics+"/metrics")
	if err != nil {
		return h, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.ParseFloat(value, 64) // fails only on lines that are ignored
		switch name {
		case "go_memstats_mallocs_total":
			h.allocs = n
		case "go_memstats_alloc_bytes_total":
			h.bytes = n
		}
	}
	return h, process.ForgetPeak(s.PID())
}
