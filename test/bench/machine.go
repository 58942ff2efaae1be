package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// machine describes the machine, before the measurement starts.
func machine(ctx context.Context, w *workshop) ([][]string, error) {
	commit, err := command(ctx, w.environ, w.root, "git", "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*")
	read := func(path string) string {
		text, failed := os.ReadFile(path)
		err = errors.Join(err, failed)
		return strings.TrimSpace(string(text))
	}
	load, _, _ := strings.Cut(read("/proc/loadavg"), " ")
	model := "unknown"
	if _, after, found := strings.Cut(read("/proc/cpuinfo"), "model name"); found {
		model, _, _ = strings.Cut(after, "\n")
		model = strings.Trim(model, "\t: ")
	}
	return [][]string{
		{"processor", fmt.Sprintf("%s, %d cores", model, runtime.NumCPU())},
		{"system", fmt.Sprintf("%s/%s, Linux %s", runtime.GOOS, runtime.GOARCH, read("/proc/sys/kernel/osrelease"))},
		{"Go", runtime.Version()},
		{"commit", string(bytes.TrimSpace(commit))},
		{"started", time.Now().UTC().Format("2006-01-02 15:04 MST") + ", at a load average of " + load},
	}, err
}
