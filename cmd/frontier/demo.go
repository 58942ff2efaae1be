package main

import (
	"context"
	"log/slog"

	"fetchd/cmd/frontier/demo"
	"fetchd/cmd/frontier/progress"
	"fetchd/cmd/frontier/worker"
	"fetchd/frontier"
	"fetchd/internal/daemon"
)

// demoCmd is "frontier demo".
type demoCmd struct {
	Quiet bool `short:"q" help:"Show no progress."`
}

func (c *demoCmd) run(ctx context.Context, a *app) int {
	daemon.HoldHeap()
	console := progress.NewConsole(a.Err, a.Env)
	a.Err = console
	w := &worker.Config{Config: frontier.Config{Logger: slog.New(slog.NewTextHandler(console, &slog.HandlerOptions{Level: slog.LevelWarn}))}, Console: console, Quiet: c.Quiet}
	return a.end(ctx, demo.Run(ctx, w, a.Out))
}
