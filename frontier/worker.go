package frontier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"fetchd/client"
	"fetchd/frontier/store"
)

const (
	// claimLimit is the maximum of URLs in one claim.
	claimLimit = 128
	// Claims follow each other after firstPoll if there were URLs, and after up to lastPoll if
	// there were none.
	firstPoll = 5 * time.Millisecond
	lastPoll  = 50 * time.Millisecond
	// afterDelay is how long after its delay a host is due at the latest: the store counts in whole
	// milliseconds.
	afterDelay = 2 * time.Millisecond
	// leftEvery is how often an idle worker checks whether any URL is left.
	leftEvery = time.Second
	reapEvery = 10 * time.Second
	// finishTime limits the time to store results after a visit or the worker has ended.
	finishTime = 10 * time.Second
)

// ErrCrawlAborted ends Run after an outcome whose action is [AbortCrawl].
var ErrCrawlAborted = errors.New("an outcome aborted the crawl")

// ErrNoService means that no service answered when Run started.
var ErrNoService = errors.New("no service answers")

// Worker fetches the URLs of a frontier. Several may work on one frontier, in one process or in
// many. Call [Worker.Run] once.
type Worker struct {
	config    Config
	store     Store
	services  []Service
	pool      *client.Pool
	rulebook  *rulebook
	recorder  *recorder
	backoff   backoff // of bodies
	recording backoff
	slowStart slowStart
	queues    queues // of hosts that redirects lead to
	// robotsTurns are of origins whose robots.txt is being fetched.
	robotsTurns queues
	strays      strays
	stats       stats
	foundMu     sync.Mutex
	found       Found
	othersBytes atomic.Int64        // what the crawl has used without this worker
	turns       *turns              // of searches for links
	searching   atomic.Int64        // visits that search or wait for their turn
	pages       *semaphore.Weighted // whose links are in memory
	sitemaps    *semaphore.Weighted // that are being read
	parked      []parked            // used by the claim loop; at most claimLimit

	draining context.Context // no new request is started
	drain    context.CancelCauseFunc
	fetching context.Context // fetches in flight are cancelled
	storing  context.Context // nothing is stored any more

	visits sync.WaitGroup
	others sync.WaitGroup // the loops, and goroutines that visits started

	mu   sync.Mutex
	held map[*visit]struct{}
	free chan struct{} // receives a value when a visit ends
	// recorded receives a value when outcomes are in the store.
	recorded chan struct{}
}

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
	w := &Worker{config: config, store: s, services: services, pool: client.NewPool(), rulebook: newRulebook(), queues: newQueues(), robotsTurns: newQueues(),
		turns: newTurns(searchSlots()), pages: semaphore.NewWeighted(maxPages), sitemaps: semaphore.NewWeighted(maxSitemaps), held: make(map[*visit]struct{}), free: make(chan struct{}, 1), recorded: make(chan struct{}, 1)}
	w.recorder = newRecorder(w)
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
	w.fetching, w.storing = fetching, storing
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
	w.others.Go(func() { w.extendLoop(loops) })
	w.others.Go(func() { w.seenLoop(loops) })
	w.others.Go(func() { w.recrawlLoop(w.draining) })
	w.startBudget(loops)
	w.others.Go(w.recorder.run)
	err := w.claimLoop(w.draining)
	w.giveBackParked()
	w.visits.Wait()
	stopLoops()
	w.recorder.close()
	w.others.Wait()
	w.reportStopped()
	closing := time.AfterFunc(finishTime, end) // in case a service does not end its streams
	w.pool.Close()
	closing.Stop()
	return err
}

// claimLoop starts visits until nothing is left or ctx ends.
func (w *Worker) claimLoop(ctx context.Context) error {
	wait, asked := firstPoll, time.Time{}
	pause := lastPoll
	if hosts, delay, err := w.store.Due(ctx); err == nil { // otherwise the first claim reports the error
		w.slowStart = newSlowStart(time.Now(), hosts, delay, w.config.Open)
		pause = delay + afterDelay
	}
	for {
		if err := w.waitForCapacity(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.unpark()
		if d := max(w.backoff.wait(), w.recording.wait()); d > 0 {
			sleep(ctx, d)
			continue
		}
		if w.slowStart.allowed(time.Now(), 1) == 0 {
			sleep(ctx, firstPoll)
			continue
		}
		n, err := w.claim()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			w.reportError(ctx, "claim", err)
			sleep(ctx, time.Second)
			continue
		case n > 0:
			wait = firstPoll
		case w.open() == 0 && time.Since(asked) > leftEvery:
			left, err := w.store.Left(ctx)
			if err == nil && !left && !w.config.Endless && !w.config.Recrawl.On() {
				return nil
			}
			asked = time.Now()
		}
		if n < claimLimit { // otherwise there are more
			if w.rest(ctx, wait, pause) {
				wait = firstPoll
			} else {
				wait = min(2*wait, lastPoll)
			}
		}
	}
}

// waitForCapacity waits until another visit may start.
func (w *Worker) waitForCapacity(ctx context.Context) error {
	for {
		capacity, changed := w.pool.Capacity()
		if w.busy() < min(capacity, w.config.Open) {
			return nil
		}
		select {
		case <-w.free:
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *Worker) open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held)
}

// busy returns the number of visits that count for Config.Open. Visits that wait to be searched do not,
// up to half of Open: they need no connection, and hosts with pages that take long to search would
// otherwise leave no capacity to others.
func (w *Worker) busy() int { return w.open() - min(int(w.searching.Load()), w.config.Open/2) }

// searches counts a visit that searches a body or waits for its turn, until the function that it
// returns is called.
func (w *Worker) searches() (done func()) {
	w.searching.Add(1)
	w.freed()
	return func() { w.searching.Add(-1) }
}

// claim claims URLs and starts their visits, as many as there is capacity for.
func (w *Worker) claim() (int, error) {
	capacity, _ := w.pool.Capacity()
	n := w.slowStart.allowed(time.Now(), min(min(capacity, w.config.Open)-w.busy(), claimLimit-len(w.parked)))
	if n <= 0 {
		return 0, nil
	}
	// The context outlives Run's: a claim that is interrupted may have succeeded, and would keep
	// its URLs until the leases expire.
	ctx, cancel := w.finishing()
	defer cancel()
	asked := time.Now()
	claims, err := w.store.Claim(ctx, store.ClaimParams{Limit: n, Lease: w.config.Lease, Worker: w.config.Name})
	w.config.Metrics.storeCall("claim", time.Since(asked), err)
	if err != nil || len(claims) == 0 {
		return 0, err
	}
	until := asked.Add(w.config.Lease)
	if !time.Now().Before(until) { // the process was suspended, and the store may have granted the lease just now
		w.giveBack(claims)
		return 0, nil
	}
	ready, err := w.sift(ctx, claims, until)
	if err != nil {
		w.giveBack(claims)
		return 0, err
	}
	w.slowStart.add(len(claims))
	for _, c := range ready {
		w.start(c, until)
	}
	return len(claims), nil
}

// start runs the visit of a claim in a new goroutine.
func (w *Worker) start(c store.Claim, until time.Time) {
	v := &visit{w: w, claim: c, until: until}
	v.ctx, v.cancel = context.WithCancelCause(w.fetching)
	w.mu.Lock()
	w.held[v] = struct{}{}
	w.mu.Unlock()
	w.stats.open.Add(1)
	w.visits.Go(func() {
		defer w.finish(v)
		defer v.cancel(nil)
		w.settle(v, v.run())
	})
}

func (w *Worker) finish(v *visit) {
	w.mu.Lock()
	delete(w.held, v)
	w.mu.Unlock()
	w.stats.open.Add(-1)
	w.freed()
}

// freed wakes the claim loop.
func (w *Worker) freed() {
	select {
	case w.free <- struct{}{}:
	default: // a value is pending already
	}
}

// settle does what the ending of a visit requires. It blocks hosts and defers origins first, so that
// none of their URLs is claimed before that is stored.
func (w *Worker) settle(v *visit, e ending) {
	if e.block != "" {
		w.block(e.block, e.blockFor)
	}
	if e.deferred != "" {
		w.deferOrigin(e.deferred, e.deferFor)
	}
	switch e.how {
	case record:
		w.settleRecord(v, e)
	case giveBack:
		w.giveBack([]store.Claim{v.claim})
	case giveBackDelayed:
		if w.delayHosts([]string{v.claim.Host}) { // otherwise the lease expires, which delays the host too
			w.giveBack([]store.Claim{v.claim})
		}
	case abandon:
		w.stats.lost.Add(1)
		w.config.Metrics.lost.Inc()
		w.persist("give a lost fetch back", func(ctx context.Context) error {
			_, err := w.store.Abandon(ctx, []store.Lease{v.claim.Lease})
			return err
		})
	case forget:
		w.leaseLost()
	}
}

func (w *Worker) settleRecord(v *visit, e ending) {
	if e.queue != "" {
		ok := w.persist("add a redirect's target", func(ctx context.Context) error {
			entry := v.entry(e.queue, v.claim.Kind, v.claim.Depth)
			_, err := w.store.Put(ctx, []store.Entry{entry}, store.Limits{}) // an invalid URL is ignored
			return err
		})
		if !ok {
			return // the lease expires, and the URL is fetched again
		}
	}
	switch e.action {
	case AbortHost:
		class, text := ClassHostAborted, "aborted after "+e.fetch.ErrorClass
		if e.fetch.ErrorClass == ClassOverBudget {
			class, text = ClassOverBudget, e.fetch.LastError
		}
		w.persist("give a host up", func(ctx context.Context) error {
			n, err := w.store.AbortHost(ctx, e.host, class, text)
			if class == ClassOverBudget {
				w.count(func(f *Found) { f.OverBudget += n + 1 })
			}
			w.config.Logger.WarnContext(ctx, "host aborted", slog.String("host", e.host), slog.Int64("urls", n), slog.String("error_class", e.fetch.ErrorClass))
			return err
		})
	case AbortCrawl:
		w.config.Logger.ErrorContext(v.ctx, "crawl aborted", slog.String("url", v.claim.URL), slog.String("error_class", e.fetch.ErrorClass))
		w.persist("pause the crawl", func(ctx context.Context) error { return w.store.Pause(ctx, "") })
		w.drain(fmt.Errorf("%w: %s: %s", ErrCrawlAborted, v.claim.URL, e.fetch.LastError))
	}
	if e.fetch.Status == store.Fetched {
		e.fetch.RecrawlIn = w.config.Recrawl.next(v.claim, e.fetch)
	}
	w.recorder.record(v.claim, e.fetch)
}

// finishing returns a context for results that must be stored although a visit has ended.
func (w *Worker) finishing() (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.storing, finishTime)
}

// persist calls f until it succeeds, for at most finishTime, and reports whether it did. So the
// restart of a database costs no leases. Only the first error is logged.
func (w *Worker) persist(doing string, f func(context.Context) error) bool {
	ctx, cancel := w.finishing()
	defer cancel()
	for wait := firstRetry; ; wait = min(2*wait, recordWait) {
		err := f(ctx)
		if err == nil {
			return true
		}
		if wait == firstRetry {
			w.reportError(ctx, doing, err)
		}
		if sleep(ctx, wait); ctx.Err() != nil {
			return false
		}
	}
}

// giveBack releases claims. If that fails, their leases expire.
func (w *Worker) giveBack(claims []store.Claim) {
	leases := make([]store.Lease, len(claims))
	for i, c := range claims {
		leases[i] = c.Lease
	}
	w.persist("give URLs back", func(ctx context.Context) error {
		_, err := w.store.Release(ctx, leases)
		return err
	})
}

// giveBackParked releases the claims whose visits never started.
func (w *Worker) giveBackParked() {
	var claims []store.Claim
	for _, p := range w.parked {
		claims = append(claims, p.claim)
	}
	if len(claims) > 0 {
		w.giveBack(claims)
	}
}

func (w *Worker) delayHosts(hosts []string) bool {
	return w.persist("charge hosts", func(ctx context.Context) error { return w.store.DelayHosts(ctx, hosts) })
}

func (w *Worker) block(host string, d time.Duration) {
	if host == "" {
		return
	}
	w.config.Metrics.blocks.Inc()
	w.persist("block a host", func(ctx context.Context) error { return w.store.Block(ctx, host, d) })
}

func (w *Worker) deferOrigin(origin string, d time.Duration) {
	w.persist("defer an origin", func(ctx context.Context) error { return w.store.Defer(ctx, origin, d) })
}

// reportError counts and logs an error.
func (w *Worker) reportError(ctx context.Context, doing string, err error) {
	w.countError(doing)
	w.config.Logger.ErrorContext(ctx, "cannot "+doing, slog.Any("error", err))
}

func (w *Worker) countError(doing string) {
	w.stats.errors.Add(1)
	w.config.Metrics.errors.WithLabelValues(doing).Inc()
}
