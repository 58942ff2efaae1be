package frontier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// takeOver takes back the URLs of workers that were killed on this machine (F31).
func (w *Worker) takeOver(ctx context.Context) {
	if w.config.Name == "" {
		return
	}
	all, err := w.store.Workers(ctx)
	var ended int64
	for _, other := range all {
		if other.Claims == 0 || other.Name != w.config.Name && !isGone(other.Process) {
			continue
		}
		var n int64
		if n, err = w.store.EndLeases(ctx, other.Name); err != nil {
			break
		}
		ended += n
	}
	if err == nil && ended > 0 {
		_, err = w.store.Reap(ctx)
	}
	switch {
	case err != nil && ctx.Err() == nil:
		w.reportError(ctx, "look for workers that are gone", err)
	case ended > 0:
		w.logger.WarnContext(ctx, "URLs of workers that are gone are free again", slog.Int64("urls", ended))
	}
}

// processOf describes a process of this machine that runs: the boot, the namespace of its number, the number, and when it
// started. It is empty if there is none, or if the system does not say.
func processOf(pid int) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	const state, start = 0, 19 // of the fields after the name, which ends in ")"
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) <= start || fields[state] == "Z" || fields[state] == "X" {
		return ""
	}
	return fmt.Sprintf("%s %s %d %s", strings.TrimSpace(string(boot)), namespace, pid, fields[start])
}

// isGone reports whether a process, as described by [processOf], ran in the process namespace of this one, and has ended.
func isGone(process string) bool {
	then, here := strings.Fields(process), strings.Fields(processOf(os.Getpid()))
	if len(then) != 4 || len(here) != 4 || then[0] != here[0] || then[1] != here[1] {
		return false
	}
	pid, err := strconv.Atoi(then[2])
	if err != nil || pid <= 0 {
		return false
	}
	if now := processOf(pid); now != "" {
		return now != process
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
		return true // a zombie
	}
	p, err := os.FindProcess(pid) // the system may hide the processes of other users
	if err != nil {
		return true
	}
	defer func() { _ = p.Release() }() // nothing is held without it
	return errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}
