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
	call(&c.workers, func() { out = c.finish(ctx, r) }) // a log line needs more stack than waiting for an origin
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

// runAttempt runs one attempt: the requests, the body and the decision.
func (r *run) runAttempt() {
	a := r.newAttempt()
	a.follow()
	a.finish()
}

// followsOnCaller reports whether an attempt waits for the response head on the goroutine that
// called Fetch, even if many fetches are in flight. That needs little stack unless events are
// encoded or a credential is read.
func (r *run) followsOnCaller() bool {
	return r.req.LargeStack && !r.wantsAttemptEvents() && r.req.Credentials == nil
}

// finish reads the last response of the attempt, and settles the attempt.
func (a *attempt) finish() {
	a.consume()
	a.limit.Stop()
	a.run.settle(a)
}

// newAttempt starts an attempt.
func (r *run) newAttempt() *attempt {
	r.setWaiting(false)
	r.attempts++
	a := &attempt{run: r, number: r.attempts, hop: r.firstHop}
	a.limit.Init(&r.clock, a.cancel)
	a.sent = a.sentRoom[:0]
	if a.continued = r.continues(); a.continued != nil {
		a.hop = a.continued.continuation(r.req, a.hop)
	}
	if r.wantsAttemptEvents() {
		a.emit(AttemptStarted{a.number, a.hop.urlText()})
	}
	a.limit.Arm(r.req.AttemptTimeout, classify.AttemptTimeout)
	return a
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
