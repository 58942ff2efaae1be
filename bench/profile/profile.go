// Package profile writes CPU profiles of a process that is told by signals when: the
// benchmarks profile the part of a load that they measure. fetchd has it only in a
// build that they make for that.
package profile

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
)

// OnSignal begins a profile at each begin, and at each end writes it into folder, as
// 1.pprof, 2.pprof and so on, until ctx ends. What fails is told to log.
func OnSignal(ctx context.Context, folder string, begin, end os.Signal, log io.Writer) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, begin, end)
	go func() {
		defer signal.Stop(signals)
		for n := 1; ; n++ {
			if err := one(ctx, filepath.Join(folder, fmt.Sprintf("%d.pprof", n)), signals, begin, end); err != nil {
				_, _ = fmt.Fprintf(log, "profile: %v\n", err)
				return
			}
		}
	}()
}

// one writes one profile.
func one(ctx context.Context, path string, signals <-chan os.Signal, begin, end os.Signal) error {
	if err := await(ctx, signals, begin); err != nil {
		return err
	}
	file, err := os.Create(path + ".part")
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		_ = file.Close() // nothing is in it
		return err
	}
	err = await(ctx, signals, end)
	pprof.StopCPUProfile()
	if err := file.Close(); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

func await(ctx context.Context, signals <-chan os.Signal, want os.Signal) error {
	for {
		select {
		case s := <-signals:
			if s == want {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
