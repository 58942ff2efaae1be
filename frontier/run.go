package frontier

// The life of a URL in a worker: a call is indented below its caller, with the file that it is in.
//
//	Worker.Run                            run.go
//	  claims.loop                         claim.go
//	    claims.claim                      claim.go       leases URLs of hosts that are due
//	      claims.sift                     claim.go       parks those whose robots.txt must be read first
//	      claims.start                    claim.go       a goroutine for each URL, or row of URLs
//	        row.run                       row.go         one URL after the other
//	          visit.run                   life.go
//	            visit.checkBudget         life.go        of its host
//	            visit.askOwn              ask.go         robots.txt of its origin
//	              visit.fetchOwnRobots    ask.go         if no worker knows it
//	            visit.chain               fetch.go       one fetch for each origin of a chain of redirects
//	              visit.part              fetch.go       sends it to a fetchd
//	              visit.takeHost          fetch.go       of a redirect
//	                visit.askForeign      ask.go         its robots.txt
//	                visit.reserve         host.go        waits until it is open
//	            Policy.judge              policy.go      what follows from the outcome
//	            visit.received            life.go
//	              visit.keep              fetch.go       the body
//	              visit.discover          life.go
//	                visit.readPage        links.go       adds what it links to
//	                  visit.checkTwins    traps.go       whether its links are followed
//	                  visit.searchPage    links.go       by links.Read
//	                  visit.put           links.go       what Scope.Allows, into the store
//	                visit.readSitemap     sitemaps.go
//	          Worker.settle               settle.go      gives the URL back, or
//	            Worker.settleRecord       settle.go
//	              recorder.submit         recorder.go    records the outcome with others
//
// The loops next to it are in loops.go: leases, budgets, robots.txt to read again, recrawl.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"fetchd/client"
	"fetchd/frontier/rulebook"
	"fetchd/frontier/store"
)

// ErrNoService means that no service answered when Run started.
var ErrNoService = errors.New("no service answers")

// ErrOutdated means that Config.Outdated has ended Run.
var ErrOutdated = errors.New("the configuration of the worker is outdated")

// New returns a worker that fetches the URLs of s through services, which must not be empty. The
// error says which fields of config are not valid.
func New(s store.Store, services []Service, config Config) (*Worker, error) {
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

	w.takeOver(w.draining)
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
	if err != nil {
		w.drain(err) // it may have ended by itself
	}
	c.giveBackParked()
	c.visits.Wait()
	stopLoops()
	w.recorder.close()
	w.others.Wait()
	w.rulebook.Wait()
	w.saveTraps(base)
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
