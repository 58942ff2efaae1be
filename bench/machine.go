package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// machine describes the machine, before the measurement starts.
func machine(ctx context.Context, w *workshop) ([][]string, error) {
	commit, err := command(ctx, w.environ, w.root, "git", "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*")
	if err != nil {
		return nil, err
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return nil, err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return nil, err
	}
	model, err := processor()
	if err != nil {
		return nil, err
	}
	busy, _, _ := strings.Cut(string(load), " ")
	return [][]string{
		{"processor", fmt.Sprintf("%s, %d cores", model, runtime.NumCPU())},
		{"system", fmt.Sprintf("%s/%s, Linux %s", runtime.GOOS, runtime.GOARCH, strings.TrimSpace(string(kernel)))},
		{"Go", runtime.Version()},
		{"commit", strings.TrimSpace(string(commit))},
		{"started", time.Now().UTC().Format("2006-01-02 15:04 MST") + ", at a load average of " + busy},
	}, nil
}

// processor returns the name of the first processor.
func processor() (string, error) {
	text, err := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value), err
		}
	}
	return "unknown", err
}
