//go:build unix

package profile_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"fetchd/bench/profile"
)

// TestOnSignal writes two profiles, each between its signals.
func TestOnSignal(t *testing.T) {
	folder := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	profile.OnSignal(ctx, folder, syscall.SIGUSR1, syscall.SIGUSR2, new(bytes.Buffer))
	for _, name := range []string{"1.pprof", "2.pprof"} {
		path := filepath.Join(folder, name)
		await(t, path+".part", syscall.SIGUSR1)
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is there before its end", name)
		}
		await(t, path, syscall.SIGUSR2)
	}
}

// await sends a signal to this process, and waits until a file is there.
func await(t *testing.T, path string, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), signal); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 30_000 {
		if _, err := os.Stat(path); err == nil {
			return
		}
		<-tick.C
	}
	t.Fatalf("%s does not come", path)
}
