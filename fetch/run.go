package fetch

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"golang.org/x/net/publicsuffix"

	"fetchd/classify"
	"fetchd/fetch/timers"
	"fetchd/internal/budget"
)

// run is one fetch: all its state, which dies with it.
type run struct {
	client   *Client
	req      *Request
	sink     Sink
	caller   context.Context
	start    time.Time
	clock    timers.Clock
	total    timers.Limit // the fetch's own time limit
	deadline time.Time    // the caller's, where that is earlier
	jar      *cookiejar.Jar
	cookies  int // taken into the jar

	origin hopRequest  // the first hop of the fetch
	first  *hopRequest // where the next attempt begins
	// The error of the sink, which is not called again.
	sinkErr error

	attempts  int
	exchanges int
	inline    bool      // attempts run on the caller's goroutine
	refreshed bool      // the credential, once
	delivered *progress // of the body, before this fetch too; nil: no byte was delivered
	decision  classify.Decision
	failure   *Failure // of the last attempt
	failed    hopError // of the last attempt

	last      head // kept, whatever ends the fetch (I5); without a response the URL is that of the last hop tried
	lastError []byte

	// Of the last attempt, which itself is not kept through a wait.
	lastHops   []Hop
	lastBody   BodySummary
	lastInline []byte
	held       held // bytes charged for all of the above

	mu       sync.Mutex
	cause    error     // why the fetch is to end, if not because its caller's context has
	exchange *exchange // under way; nil: none
	waits    context.Context
	endWaits context.CancelCauseFunc
	waiting  bool // between two attempts or for a credential, where a shutdown ends the fetch

	// Under the lock of the client's runs.
	prev, next *run
	listed     bool
}

// Fetch runs a fetch and returns its outcome, which is never nil. It calls sink for each
// event as it happens, from the calling goroutine or, in a retry, from another one, but
// never concurrently. A nil sink receives nothing. The fetch ends as DEADLINE or
// CANCELLED when ctx ends, or after the request's TotalTimeout or the client's maximum.
// Fetch does not modify req.
func (c *Client) Fetch(ctx context.Context, req *Request, sink Sink) *Outcome {
	inline := c.open.Add(1) <= maxInline
	defer c.open.Add(-1)
	r := c.newRun(ctx, req, sink)
	r.inline = inline
	defer r.close()
	if r.why() == nil {
		r.loop(c.engine)
	}
	if r.inline {
		return c.ended(ctx, r)
	}
	var out *Outcome
	call(&c.workers, func() { out = c.ended(ctx, r) }) // a log line takes more stack than the wait for an origin
	return out
}

// newRun returns a fetch that begins now. It is apart from [Client.Fetch] for the
// sake of the stack of that one, on which thousands may wait.
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
	r.first = &r.origin
	r.delivered = req.resumeAt()
	c.runs.add(r)
	return r
}

// close lets go of what outlives a fetch: its timer and its contexts. An exchange is
// still under way only where a sink or an observer has panicked.
func (r *run) close() {
	r.clock.Stop()
	if r.exchange != nil {
		r.exchange.cancel(nil)
		r.releaseExchange()
	}
	r.client.runs.remove(r)
	if r.endWaits != nil {
		r.endWaits(nil)
	}
	if p := r.delivered; p != nil && p.head.response != r.last.response { // the outcome does not keep it
		r.req.Memory.Shrink(budget.Head, r.held.body)
	}
}

// Placeholders for go-retryablehttp. They are never sent, and its response is never read.
var (
	nowhere  = &url.URL{Scheme: "http", Host: "fetch.invalid", Path: "/"}
	noHeader = http.Header{}
	vehicle  = &http.Request{Method: http.MethodGet, URL: nowhere, Header: noHeader}
)

// loop runs go-retryablehttp, which calls [turns.RoundTrip] for each attempt and waits in
// between. [checkRetry] and [backoff] give it the decision. Its request is a placeholder:
// [attempt.request] builds what is sent.
func (r *run) loop(engine *retryablehttp.Client) {
	resp, err := engine.Do(&retryablehttp.Request{Request: vehicle.WithContext(loopContext{r})})
	if resp != nil {
		_ = resp.Body.Close()
	}
	if err != nil && r.isWaiting() {
		r.endWait()
	}
}

// newEngine returns the go-retryablehttp client of all fetches, with our rules in place of
// its own. The context of a request identifies its fetch. The zero Logger writes nothing.
func newEngine() *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient: &http.Client{Transport: turns{}},
		RetryMax:   math.MaxInt, // checkRetry owns the limit: past RetryMax the response would be lost
		CheckRetry: checkRetry,
		Backoff:    backoff,
		ErrorHandler: func(resp *http.Response, err error, _ int) (*http.Response, error) {
			return resp, err // the default drains the body and returns another error
		},
	}
}

// turns is the http.RoundTripper of the loop. One RoundTrip is one attempt, including
// redirects and body. It returns an empty response, because go-retryablehttp would drain a
// body without a time limit, and its client would follow a redirect by its own rules.
type turns struct{}

// RoundTrip implements http.RoundTripper.
func (turns) RoundTrip(vehicle *http.Request) (*http.Response, error) {
	switch r := runOf(vehicle.Context()); {
	case r.inline:
		r.turn()
	case r.staysHere():
		a := r.begin()
		a.follow()
		call(&r.client.workers, a.finish)
	default:
		call(&r.client.workers, r.turn)
	}
	return &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: noHeader, Body: http.NoBody, Request: vehicle}, nil
}

// turn runs one attempt: the requests, the body and the decision.
func (r *run) turn() {
	a := r.begin()
	a.follow()
	a.finish()
}

// staysHere reports whether an attempt waits for the response head on the goroutine of the
// fetch, even if many fetches are in flight. It does if it needs little stack until then: to
// encode events and to get a credential need more.
func (r *run) staysHere() bool {
	return r.req.LargeStack && !r.tells() && r.req.Credentials == nil
}

// finish reads the last response of the attempt, and settles the attempt.
func (a *attempt) finish() {
	a.consume()
	a.limit.Stop()
	a.settle(a)
}

// begin starts an attempt.
func (r *run) begin() *attempt {
	r.setWaiting(false)
	r.attempts++
	a := &attempt{run: r, number: r.attempts, hop: r.first}
	a.limit.Init(&r.clock, a.giveUp)
	a.made = a.one[:0]
	if a.continued = r.continues(); a.continued != nil {
		a.hop = a.continued.continuation(r.req, a.hop)
	}
	if r.tells() {
		a.tell(AttemptStarted{a.number, a.hop.told()})
	}
	a.limit.Arm(r.req.AttemptTimeout, classify.AttemptTimeout)
	return a
}

// checkRetry is go-retryablehttp's CheckRetry. It returns the decision about the last
// attempt. It is called once for each attempt, because no response handler is set.
func checkRetry(ctx context.Context, _ *http.Response, _ error) (bool, error) {
	return runOf(ctx).decision.Verdict == classify.Retry, nil
}

// backoff is go-retryablehttp's Backoff. It returns the delay of the decision.
func backoff(_, _ time.Duration, _ int, resp *http.Response) time.Duration {
	r := runOf(resp.Request.Context())
	r.setWaiting(true)
	return r.decision.Delay
}

// tells reports whether events are emitted during an attempt, not only at its end.
func (r *run) tells() bool {
	return r.sink != nil && (r.req.Events == Attempts || r.req.Events == All)
}

// emit passes an event to the sink. An error of the sink ends the fetch. After
// [ErrOutOfMemory] the sink still receives the events of the end.
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
