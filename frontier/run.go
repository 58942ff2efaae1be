package frontier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"fetchd/client"
	"fetchd/frontier/rulebook"
)

// ErrCrawlAborted ends Run after an outcome whose action is [AbortCrawl].
var ErrCrawlAborted = errors.New("an outcome aborted the crawl")

// ErrNoService means that no service answered when Run started.
var ErrNoService = errors.New("no service answers")

// New returns a worker that fetches the URLs of s through services, which must not be empty. The
// error says which fields of config are not valid.
func New(s Store, services []Service, config Config) (*Worker, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	if len(services) == 0 {
		return nil, errors.New("frontier: no service to fetch through")
	}
	w := &Worker{reporter: reporter{logger: config.Logger, metrics: config.Metrics}, config: config, store: s, services: services, pool: client.NewPool(),
		rulebook: rulebook.New(rulebook.Config{Store: s, Agent: config.UserAgent, RetryDelay: config.Policy.RetryDelay, Patience: config.RobotsPatience, MaxDelay: config.MaxCrawlDelay}),
		queues:   newQueues(), robotsTurns: newQueues(), search: newSearch(), free: make(chan struct{}, 1)}
	w.recorder = newRecorder(s, &w.reporter, config.Lease, w.report)
	return w, nil
}

// Run works until nothing is left to fetch, and then returns nil, or until ctx ends, and then
// returns its cause. After ctx has ended, it claims nothing more, lets fetches finish for
// Config.DrainTime, cancels the others and gives their URLs back. When it returns, it has recorded
// every outcome that it received. If the store could not be reached, the URLs are fetched again
// after their leases expire.
func (w *Worker) Run(ctx context.Context) error {
	if err := pingAny(ctx, w.services); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%w: %w", ErrNoService, err)
	}
	w.draining, w.drain = context.WithCancelCause(ctx)
	defer w.drain(nil)
	base := context.WithoutCancel(ctx)
	fetching, cancelFetches := context.WithCancel(base)
	defer cancelFetches()
	storing, end := context.WithCancel(base)
	defer end()
	w.fetching, w.storing, w.rulebook.Storing = fetching, storing, storing
	c := newClaims(w)
	stop := context.AfterFunc(w.draining, func() {
		sleep(storing, w.config.DrainTime)
		cancelFetches()
		sleep(storing, finishTime)
		end()
	})
	defer stop()

	loops, stopLoops := context.WithCancel(base)
	w.openStreams(storing)
	w.others.Go(func() { w.reapLoop(loops) })
	w.others.Go(func() { w.sweepLoop(loops) })
	w.others.Go(func() { c.extendLoop(loops) })
	w.others.Go(func() { w.seenLoop(loops) })
	w.others.Go(func() { w.recrawlLoop(w.draining) })
	w.startBudget(loops)
	w.others.Go(func() { w.recorder.run(storing) })
	err := c.loop(w.draining)
	c.giveBackParked()
	c.visits.Wait()
	stopLoops()
	w.recorder.close()
	w.others.Wait()
	w.rulebook.Wait()
	w.reportStopped()
	closing := time.AfterFunc(finishTime, end) // in case a service does not end its streams
	w.pool.Close()
	closing.Stop()
	return err
}

// maxStreams is how many FetchMany streams a fetchd accepts from one caller.
const maxStreams = 64

// openStreams keeps enough streams open to each service for all fetches of the worker, as far
// as the service accepts them.
func (w *Worker) openStreams(ctx context.Context) {
	n := min(max(1, (w.config.Open+client.StreamTasks-1)/client.StreamTasks), maxStreams)
	for _, s := range w.services {
		w.pool.Open(ctx, s.Client, n, func(err error, retryIn time.Duration) {
			w.logger.WarnContext(ctx, "service lost", slog.String("server", s.Name), slog.Any("error", err), slog.Float64("retry_in_seconds", retryIn.Seconds()))
		})
	}
}
