package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"fetchd/bench/report"
)

// machine says on what it is measured, before that begins.
func machine(ctx context.Context, w *workshop) ([]report.Fact, error) {
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
	return []report.Fact{
		{Name: "processor", Value: fmt.Sprintf("%s, %d cores", model, runtime.NumCPU())},
		{Name: "system", Value: fmt.Sprintf("%s/%s, Linux %s", runtime.GOOS, runtime.GOARCH, strings.TrimSpace(string(kernel)))},
		{Name: "Go", Value: runtime.Version()},
		{Name: "commit", Value: strings.TrimSpace(string(commit))},
		{Name: "begun", Value: time.Now().UTC().Format("2006-01-02 15:04 MST") + ", at a load of " + busy},
	}, nil
}

// processor is the name of the first one.
func processor() (string, error) {
	text, err := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value), err
		}
	}
	return "unknown", err
}
