package fetch

import (
	"context"
	"errors"
	"net/http/cookiejar"
	"sync"
	"time"

	"golang.org/x/net/publicsuffix"

	"fetchd/classify"
	"fetchd/fetch/conns"
	"fetchd/fetch/timers"
	"fetchd/internal/budget"
)

// run is one fetch with all its state.
type run struct {
	client   *Client
	req      *Request
	sink     Sink
	caller   context.Context
	start    time.Time
	clock    timers.Clock
	total    timers.Limit // the fetch's own time limit
	deadline time.Time    // of total, or of the caller if that is earlier
	jar      *cookiejar.Jar
	cookies  int // stored in the jar

	origin   hopRequest  // the first hop of the fetch
	firstHop *hopRequest // the first hop of the next attempt
	sinkErr  error       // the sink's error; it is not called again

	attempts  int
	exchanges int
	onCaller  bool      // attempts run on the goroutine that called Fetch
	refreshed bool      // the credential was refreshed, which is done once
	delivered *progress // of the body, before this fetch too; nil: no byte was delivered
	decision  classify.Decision
	failure   *Failure // of the last attempt
	failed    hopError // of the last attempt

	last      head // kept however the fetch ends (I5); without a response it has only the URL of the last hop
	lastError []byte

	// Results of the last attempt. The attempt itself is released before a wait.
	lastHops       []Hop
	lastBody       BodySummary
	lastInlineBody []byte
	charges        charges // bytes charged for all of the above

	mu            sync.Mutex
	cause         error           // why the fetch was cancelled; nil: it was not, or by its caller's context
	inFlight      *conns.Exchange // the current exchange; nil: none
	waitCtx       context.Context // ends with the fetch; nil: nothing has waited yet
	cancelWaitCtx context.CancelCauseFunc
	waiting       bool // between attempts or for a credential, when a shutdown ends the fetch

	// Guarded by the lock of the client's runs.
	prev, next *run
	listed     bool
}

// maxOnCaller is the number of fetches in flight up to which attempts run on the goroutines of
// their callers, which costs less. Of more fetches, each would keep a large stack while it waits
// for its next attempt, so their attempts run on workers.
const maxOnCaller = 128

// Fetch runs a fetch and returns its outcome, which is never nil. It calls sink for each
// event as it happens, from the calling goroutine or, in a retry, from another one, but
// never concurrently. A nil sink receives nothing. The fetch ends as DEADLINE or
// CANCELLED when ctx ends, or after the request's TotalTimeout or the client's maximum.
// Fetch does not modify req.
func (c *Client) Fetch(ctx context.Context, req *Request, sink Sink) *Outcome {
	onCaller := c.open.Add(1) <= maxOnCaller
	defer c.open.Add(-1)
	r := c.newRun(ctx, req, sink)
	r.onCaller = onCaller
	defer r.close()
	if r.cancelCause() == nil {
		r.loop(c.engine)
	}
	if r.onCaller {
		return c.finish(ctx, r)
	}
	var out *Outcome
	c.workers.Call(func() { out = c.finish(ctx, r) }) // a log line needs more stack than waiting for an origin
	return out
}

// newRun returns a fetch that starts now. It is separate from [Client.Fetch] to keep the stack
// of that function small, because thousands of calls may wait there.
func (c *Client) newRun(ctx context.Context, req *Request, sink Sink) *run {
	r := &run{client: c, req: req, sink: sink, caller: ctx, start: time.Now()}
	limit := c.maxTotal
	if req.TotalTimeout > 0 {
		limit = min(limit, req.TotalTimeout)
	}
	r.deadline = r.start.Add(limit)
	if d, ok := ctx.Deadline(); ok && d.Before(r.deadline) {
		r.deadline = d
	}
	r.total.Init(&r.clock, r.cancel)
	r.total.ArmAt(r.start, limit, classify.Deadline)
	if req.Cookies {
		r.jar, _ = cookiejar.New(&cookiejar.Options{PublicSuffixList: publicsuffix.List})
	}
	r.origin = hopRequest{method: req.Method, url: req.URL, header: c.firstHeader(req), body: req.Body}
	r.firstHop = &r.origin
	r.delivered = req.resumeAt()
	c.runs.add(r)
	return r
}

// close releases the timer, the contexts and the connection of the fetch. There still is an
// exchange only if a sink or an observer has panicked.
func (r *run) close() {
	r.clock.Stop()
	if r.inFlight != nil {
		r.inFlight.End()
	}
	r.client.runs.remove(r)
	if r.cancelWaitCtx != nil {
		r.cancelWaitCtx(nil)
	}
	if p := r.delivered; p != nil && p.head.response != r.last.response { // the outcome does not keep it
		r.req.Memory.Shrink(budget.Head, r.charges.body)
	}
}

// cancel ends the fetch: its exchange and its wait.
func (r *run) cancel(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause != nil || r.caller.Err() != nil {
		return
	}
	r.cause = cause
	if r.inFlight != nil {
		r.inFlight.Cancel(cause)
	}
	if r.cancelWaitCtx != nil {
		r.cancelWaitCtx(cause)
	}
}

// cancelCause returns the first reason why the fetch was cancelled, or nil.
func (r *run) cancelCause() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause != nil {
		return r.cause
	}
	return context.Cause(r.caller)
}

// waitContext returns a context that ends with the fetch.
func (r *run) waitContext() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waitCtx == nil {
		r.waitCtx, r.cancelWaitCtx = context.WithCancelCause(r.caller)
		if r.cause != nil {
			r.cancelWaitCtx(r.cause)
		}
	}
	return r.waitCtx
}

// setWaiting starts or ends a wait that a shutdown ends: between two attempts, or for a
// credential. A shutdown does not end an attempt in flight.
func (r *run) setWaiting(w bool) {
	r.mu.Lock()
	r.waiting = w
	r.mu.Unlock()
	if w && r.client.shutdown.Err() != nil { // the shutdown may have passed this run before
		r.cancel(errShutdown)
	}
}

func (r *run) isWaiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting
}

// wantsAttemptEvents reports whether events are emitted during an attempt, not only at its end.
func (r *run) wantsAttemptEvents() bool {
	return r.sink != nil && (r.req.Events == Attempts || r.req.Events == All)
}

// emit passes an event to the sink. An error of the sink ends the fetch. After
// [ErrOutOfMemory] the sink still receives the final events.
func (r *run) emit(e Event) {
	if r.sink == nil || r.sinkErr != nil {
		return
	}
	switch err := r.sink(e); {
	case errors.Is(err, ErrOutOfMemory):
		r.cancel(errOutOfMemory)
	case err != nil:
		r.sinkErr = err
		r.cancel(context.Canceled)
	}
}
