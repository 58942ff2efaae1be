package frontier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"fetchd/client"
)

// Service is a fetchd, and its name in logs and errors.
type Service struct {
	Name   string
	Client *client.Client
}

// pingTimeout bounds the check whether a service answers.
const pingTimeout = 10 * time.Second

// pingAny pings every service and returns when one has answered. If none does, the error says
// why for each.
func pingAny(ctx context.Context, services []Service) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	errs := make([]error, len(services))
	var running sync.WaitGroup
	for i, s := range services {
		running.Go(func() {
			if err := s.Client.Ping(ctx); err != nil {
				errs[i] = fmt.Errorf("%s: %w", s.Name, err)
				return
			}
			cancel() // one is enough to start
		})
	}
	running.Wait()
	if slices.Contains(errs, nil) {
		return nil
	}
	return errors.Join(errs...)
}

// maxStreams is how many FetchMany streams a fetchd accepts from one caller.
const maxStreams = 64

// openStreams keeps enough streams open to each service for all fetches of the worker, as far
// as the service accepts them.
func (w *Worker) openStreams(ctx context.Context) {
	n := min(max(1, (w.config.Open+client.StreamTasks-1)/client.StreamTasks), maxStreams)
	for _, s := range w.services {
		w.pool.Open(ctx, s.Client, n, func(err error, retryIn time.Duration) {
			w.config.Logger.WarnContext(ctx, "service lost", slog.String("server", s.Name), slog.Any("error", err), slog.Float64("retry_in_seconds", retryIn.Seconds()))
		})
	}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
