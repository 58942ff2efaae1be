package frontier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"fetchd/frontier/store"
)

const (
	// claimLimit is how many URLs are claimed at once.
	claimLimit = 128
	// claims follow each other after firstPoll while there was something, and after
	// up to lastPoll while there was nothing.
	firstPoll = 5 * time.Millisecond
	lastPoll  = 50 * time.Millisecond
	// leftEvery is how often an idle worker asks whether anything is left.
	leftEvery = time.Second
	reapEvery = 10 * time.Second
	// finishTime is how long what has ended may take to be written down.
	finishTime = 10 * time.Second
)

// ErrCrawlAborted ends Run after an outcome whose action is [AbortCrawl].
var ErrCrawlAborted = errors.New("an outcome aborted the crawl")

// ErrNoService says that no service answered when Run began.
var ErrNoService = errors.New("no service answers")

// Worker carries out a frontier's URLs. Several may work on one frontier, in one
// process or in many. [Worker.Run] is called once.
type Worker struct {
	config   Config
	store    store.Store
	services []Service
	pool     *pool
	rulebook *rulebook
	recorder *recorder
	brake    brake
	ramp     ramp
	queues   queues
	strays   strays
	stats    stats
	parked   []parked // by the claim loop, at most claimLimit

	draining context.Context // no request is begun any more
	drain    context.CancelCauseFunc
	cut      context.Context // what is under way is given up
	last     context.Context // nothing is written down any more

	visits sync.WaitGroup
	others sync.WaitGroup // what visits leave behind, and the loops

	mu   sync.Mutex
	held map[*visit]struct{}
	free chan struct{} // told when a visit ends
}

// New returns a worker on a frontier that fetches through services, of which there
// is at least one. The error names what of config is not usable.
func New(s store.Store, services []Service, config Config) (*Worker, error) {
	config, err := config.whole()
	if err != nil {
		return nil, err
	}
	if len(services) == 0 {
		return nil, errors.New("frontier: there is no service to fetch through")
	}
	w := &Worker{config: config, store: s, services: services, pool: newPool(config.Logger), rulebook: newRulebook(), queues: queues{hosts: make(map[string]*queue)},
		held: make(map[*visit]struct{}), free: make(chan struct{}, 1)}
	w.recorder = newRecorder(w)
	return w, nil
}

// Run works until nothing is left to fetch, which returns nil, or until ctx ends,
// which returns its cause. Then it claims nothing more, lets fetches finish for
// Config.DrainTime, gives up the others and gives their URLs back. When it
// returns, every outcome that it learnt of has been recorded, unless the store
// could not be reached: then its URLs are fetched again once their leases expire.
func (w *Worker) Run(ctx context.Context) error {
	if err := hello(ctx, w.services); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%w: %w", ErrNoService, err)
	}
	w.draining, w.drain = context.WithCancelCause(ctx)
	defer w.drain(nil)
	base := context.WithoutCancel(ctx)
	cut, giveUp := context.WithCancel(base)
	defer giveUp()
	last, end := context.WithCancel(base)
	defer end()
	w.cut, w.last = cut, last
	stop := context.AfterFunc(w.draining, func() {
		sleep(last, w.config.DrainTime)
		giveUp()
		sleep(last, finishTime)
		end()
	})
	defer stop()

	loops, stopLoops := context.WithCancel(base)
	w.pool.open(last, w.services, max(1, (w.config.Open+streamTasks-1)/streamTasks))
	w.others.Go(func() { w.reapLoop(loops) })
	w.others.Go(func() { w.sweepLoop(loops) })
	w.others.Go(func() { w.extendLoop(loops) })
	w.others.Go(w.recorder.run)
	err := w.claimLoop(w.draining)
	w.giveBackParked()
	w.visits.Wait()
	stopLoops()
	w.recorder.close()
	w.pool.close()
	w.others.Wait()
	closing := time.AfterFunc(finishTime, end) // a service that does not end its streams
	w.pool.wait()
	closing.Stop()
	return err
}

// claimLoop begins visits until nothing is left, or ctx ends.
func (w *Worker) claimLoop(ctx context.Context) error {
	wait, asked := firstPoll, time.Time{}
	if hosts, delay, err := w.store.Due(ctx); err == nil { // else the first claim tells
		w.ramp = newRamp(time.Now(), hosts, delay, w.config.Open)
	}
	for {
		if err := w.room(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.unpark()
		if d := w.brake.wait(); d > 0 {
			sleep(ctx, d)
			continue
		}
		if w.ramp.room(time.Now(), 1) == 0 {
			sleep(ctx, firstPoll)
			continue
		}
		n, err := w.claim()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			w.trouble(ctx, "claim", err)
			sleep(ctx, time.Second)
			continue
		case n > 0:
			wait = firstPoll
		case w.open() == 0 && time.Since(asked) > leftEvery:
			left, err := w.store.Left(ctx)
			if err == nil && !left && !w.config.Endless {
				return nil
			}
			asked = time.Now()
		}
		if n < claimLimit { // else there is more
			w.rest(ctx, wait)
			wait = min(2*wait, lastPoll)
		}
	}
}

// room waits until another visit may begin.
func (w *Worker) room(ctx context.Context) error {
	for {
		capacity, changed := w.pool.capacity()
		if w.open() < min(capacity, w.config.Open) {
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

// brake keeps a worker from claims while what it fetches cannot be kept.
type brake struct {
	mu    sync.Mutex
	d     time.Duration
	until time.Time
}

// press stops claims for a second, and twice as long each further time.
func (b *brake) press() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Now().Before(b.until) {
		return // several failures had one cause
	}
	b.d = min(max(2*b.d, time.Second), 30*time.Second)
	b.until = time.Now().Add(b.d)
}

func (b *brake) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.d, b.until = 0, time.Time{}
}

func (b *brake) wait() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Until(b.until)
}

func (w *Worker) open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held)
}

// claim begins as many visits as there is room for.
func (w *Worker) claim() (int, error) {
	capacity, _ := w.pool.capacity()
	n := w.ramp.room(time.Now(), min(min(capacity, w.config.Open)-w.open(), claimLimit-len(w.parked)))
	if n <= 0 {
		return 0, nil
	}
	// What is cut off half way may have been done, and nobody would give the URLs back.
	ctx, cancel := w.finishing()
	defer cancel()
	asked := time.Now()
	claims, err := w.store.Claim(ctx, store.ClaimParams{Limit: n, Lease: w.config.Lease, Worker: w.config.Name})
	w.config.Metrics.storeCall("claim", time.Since(asked), err)
	if err != nil || len(claims) == 0 {
		return 0, err
	}
	until := asked.Add(w.config.Lease)
	if !time.Now().Before(until) { // the process was stopped meanwhile, and the store may have granted the lease just now
		w.giveBack(claims)
		return 0, nil
	}
	begin, err := w.sift(ctx, claims, until)
	if err != nil {
		w.giveBack(claims)
		return 0, err
	}
	w.ramp.count(len(claims))
	for _, c := range begin {
		w.begin(c, until)
	}
	return len(claims), nil
}

// begin carries a claim out in a goroutine of its own.
func (w *Worker) begin(c store.Claim, until time.Time) {
	v := &visit{w: w, claim: c, until: until}
	v.ctx, v.cancel = context.WithCancelCause(w.cut)
	w.mu.Lock()
	w.held[v] = struct{}{}
	w.mu.Unlock()
	w.stats.opened()
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
	w.stats.closed()
	select {
	case w.free <- struct{}{}:
	default: // it is told already
	}
}

// settle does what a visit's end asks for. Hosts come first: they must not open
// before what was asked of them is known.
func (w *Worker) settle(v *visit, e ending) {
	if e.block != "" {
		w.block(e.block, e.blockFor)
	}
	switch e.how {
	case record:
		w.settleRecord(v, e)
	case giveBack:
		w.giveBack([]store.Claim{v.claim})
	case chargeBack:
		if w.charge([]string{v.claim.Host}) { // else it comes back with its lease's end, which charges the host too
			w.giveBack([]store.Claim{v.claim})
		}
	case abandon:
		w.stats.lost.Add(1)
		w.config.Metrics.lostFetch()
		w.finishingDo("give a lost fetch back", func(ctx context.Context) error {
			_, err := w.store.Abandon(ctx, []store.Lease{v.claim.Lease})
			return err
		})
	case forget:
		w.stats.stale.Add(1)
		w.config.Metrics.staleFetch()
	}
}

func (w *Worker) settleRecord(v *visit, e ending) {
	if e.queue != "" {
		ok := w.finishingDo("add a redirect's target", func(ctx context.Context) error {
			_, err := w.store.Put(ctx, []string{e.queue}) // what is no URL is nothing to add
			return err
		})
		if !ok {
			return // the lease expires, and the URL is fetched again
		}
	}
	switch e.action {
	case AbortHost:
		w.finishingDo("give a host up", func(ctx context.Context) error {
			n, err := w.store.AbortHost(ctx, e.host, ClassHostAborted, "given up after "+e.fetch.ErrorClass)
			w.config.Logger.WarnContext(ctx, "host aborted", slog.String("host", e.host), slog.Int64("urls", n), slog.String("error_class", e.fetch.ErrorClass))
			return err
		})
	case AbortCrawl:
		w.config.Logger.ErrorContext(v.ctx, "crawl aborted", slog.String("url", v.claim.URL), slog.String("error_class", e.fetch.ErrorClass))
		w.finishingDo("pause the crawl", func(ctx context.Context) error { return w.store.Pause(ctx, "") })
		w.drain(fmt.Errorf("%w: %s: %s", ErrCrawlAborted, v.claim.URL, e.fetch.LastError))
	}
	w.recorder.record(v.claim, e.fetch)
}

// finishing is the time for what has to be written down though a visit is over.
func (w *Worker) finishing() (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.last, finishTime)
}

// finishingDo says whether f succeeded, if need be at a later try: a database that is
// started again costs no leases. The operator is told of the first failure.
func (w *Worker) finishingDo(what string, f func(context.Context) error) bool {
	ctx, cancel := w.finishing()
	defer cancel()
	for wait := firstReopen; ; wait = min(2*wait, recordWait) {
		err := f(ctx)
		if err == nil {
			return true
		}
		if wait == firstReopen {
			w.trouble(ctx, what, err)
		}
		if sleep(ctx, wait); ctx.Err() != nil {
			return false
		}
	}
}

// giveBack releases claims. Where that fails they come back with their leases' end.
func (w *Worker) giveBack(claims []store.Claim) {
	leases := make([]store.Lease, len(claims))
	for i, c := range claims {
		leases[i] = c.Lease
	}
	w.finishingDo("give URLs back", func(ctx context.Context) error {
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

func (w *Worker) charge(hosts []string) bool {
	return w.finishingDo("charge hosts", func(ctx context.Context) error { return w.store.Charge(ctx, hosts) })
}

func (w *Worker) block(host string, d time.Duration) {
	if host == "" {
		return
	}
	w.config.Metrics.blockedHost()
	w.finishingDo("block a host", func(ctx context.Context) error { return w.store.Block(ctx, host, d) })
}

// trouble tells the operator what could not be done.
func (w *Worker) trouble(ctx context.Context, what string, err error) {
	w.stats.troubles.Add(1)
	w.config.Metrics.troubled(what)
	w.config.Logger.ErrorContext(ctx, "cannot "+what, slog.Any("error", err))
}
