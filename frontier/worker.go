package frontier

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"fetchd/client"
	"fetchd/frontier/rulebook"
	"fetchd/frontier/store"
)

// Service is a fetchd, and its name in logs and errors.
type Service struct {
	Name   string
	Client *client.Client
}

// ErrCrawlAborted ends Run after an outcome whose action is [AbortCrawl].
var ErrCrawlAborted = errors.New("an outcome aborted the crawl")

// ErrBudget ends Run when a budget of the whole crawl is used up.
var ErrBudget = errors.New("a budget is used up")

// finishTime limits the time to store results after a visit or the worker has ended.
const finishTime = 10 * time.Second

// Worker fetches the URLs of a frontier. Several may work on one frontier, in one process or in
// many. Call [Worker.Run] once.
type Worker struct {
	reporter
	config    Config
	store     store.Store
	services  []Service
	pool      *client.Pool
	rulebook  *rulebook.Book
	recorder  *recorder
	backoff   backoff // of bodies
	recording backoff
	denied    backoff // of fetches that the service cannot make because of a setting
	identity  identity
	queues    queues // of hosts that redirects lead to
	// robotsTurns are of origins whose robots.txt is being fetched.
	robotsTurns queues
	search      search
	found       found
	patterns    patterns
	saved       Traps          // of found, those that are in the store
	othersBytes atomic.Int64   // what the crawl has used without this worker
	others      sync.WaitGroup // the loops
	free        chan struct{}  // receives a value when a visit ends

	draining context.Context // no new request is started
	drain    context.CancelCauseFunc
	fetching context.Context // fetches in flight are cancelled
	storing  context.Context // nothing is stored any more
}

// Found returns the counts so far. It is safe for concurrent use.
func (w *Worker) Found() Found { return w.found.read() }

// freed wakes the claim loop.
func (w *Worker) freed() {
	select {
	case w.free <- struct{}{}:
	default: // a value is pending already
	}
}

// searches counts a visit that searches a body or waits for its turn, until the function that it
// returns is called.
func (w *Worker) searches() (done func()) {
	w.search.visits.Add(1)
	w.freed()
	return func() { w.search.visits.Add(-1) }
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

func (w *Worker) delayHosts(hosts []string) bool {
	return w.persist("charge hosts", func(ctx context.Context) error { return w.store.DelayHosts(ctx, hosts) })
}

func (w *Worker) block(host string, d time.Duration) {
	if host == "" {
		return
	}
	w.metrics.blocks.Inc()
	w.persist("block a host", func(ctx context.Context) error { return w.store.Block(ctx, host, d) })
}

func (w *Worker) deferOrigin(origin string, d time.Duration) {
	w.persist("defer an origin", func(ctx context.Context) error { return w.store.Defer(ctx, origin, d) })
}
