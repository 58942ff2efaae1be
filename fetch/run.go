package fetch

import (
	"context"
	"math"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"golang.org/x/net/publicsuffix"

	"fetchd/classify"
)

// run is one fetch: all its state, which dies with it.
type run struct {
	client   *Client
	req      *Request
	sink     Sink
	ctx      context.Context
	cancel   context.CancelCauseFunc
	start    time.Time
	total    watch     // the fetch's own time limit
	deadline time.Time // the caller's, where that is earlier
	jar      *cookiejar.Jar
	cookies  int // taken into the jar

	origin *hopRequest // the first hop of the fetch
	first  *hopRequest // where the next attempt begins
	cur    *attempt    // the last one begun
	// What a sink said last; it is not called again.
	sinkErr error

	attempts  int
	exchanges int
	decision  classify.Decision
	failure   *Failure // of the last attempt
	authAsked classify.AuthResult

	last        *Response // kept, whatever ends the fetch (I5)
	lastAttempt int
	lastURL     string // of last; of the last hop tried while there is none
	lastError   []byte

	mu      sync.Mutex
	waiting bool // between two attempts, where a shutdown ends the fetch
}

// Fetch carries out one fetch and returns its outcome, exactly one, whatever
// happens. Events go to sink as they happen; nil takes none. The fetch ends at
// the latest with ctx, with the request's TotalTimeout, and with the client's
// maximum: as DEADLINE or CANCELLED. req is not changed.
func (c *Client) Fetch(ctx context.Context, req *Request, sink Sink) *Outcome {
	r := &run{client: c, req: req, sink: sink, start: time.Now()}
	limit := c.maxTotal
	if req.TotalTimeout > 0 {
		limit = min(limit, req.TotalTimeout)
	}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	defer r.cancel(nil)
	r.deadline = r.start.Add(limit)
	if d, ok := ctx.Deadline(); ok && d.Before(r.deadline) {
		r.deadline = d
	}
	r.total.cancel = r.cancel
	r.total.arm(limit, classify.Deadline)
	defer r.total.stop()
	defer context.AfterFunc(c.shutdown, r.shutDown)()
	if req.Cookies {
		r.jar, _ = cookiejar.New(&cookiejar.Options{PublicSuffixList: publicsuffix.List})
	}
	r.origin = &hopRequest{method: req.Method, url: req.URL, header: c.firstHeader(req), body: req.Body}
	r.first = r.origin
	if r.ctx.Err() == nil {
		r.loop(r.engine())
	}
	out := r.outcome()
	r.logEnd(out)
	return out
}

// nowhere is the URL of what the loop is given.
var nowhere = &url.URL{Scheme: "http", Host: "fetch.invalid", Path: "/"}

// loop runs go-retryablehttp over the attempts. It owns the turns and the
// waits; what is retried and for how long is waited it asks of us. The request
// it is given is only a vehicle: what is sent is built in [attempt.request].
func (r *run) loop(engine *retryablehttp.Client) {
	vehicle := &http.Request{Method: http.MethodGet, URL: nowhere, Host: nowhere.Host, Header: http.Header{}}
	resp, err := engine.Do(&retryablehttp.Request{Request: vehicle.WithContext(r.ctx)})
	if resp != nil {
		_ = resp.Body.Close()
	}
	if err != nil && r.isWaiting() {
		r.endWait()
	}
}

// engine returns go-retryablehttp with our rules in place of its own. Its zero
// Logger writes nothing.
func (r *run) engine() *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient: &http.Client{Transport: r},
		RetryMax:   math.MaxInt, // checkRetry owns the limit: past RetryMax the response would be lost
		CheckRetry: r.checkRetry,
		Backoff:    r.backoff,
		ErrorHandler: func(resp *http.Response, err error, _ int) (*http.Response, error) {
			return resp, err // the default drains the body and writes an error of its own
		},
	}
}

// RoundTrip is one attempt, redirects and body included. It implements
// http.RoundTripper for the loop, which sees of the attempt only an empty
// response: go-retryablehttp would drain a body without a clock, and its
// client would follow a redirect by rules of its own.
func (r *run) RoundTrip(vehicle *http.Request) (*http.Response, error) {
	r.client.workers.call(func() {
		a := r.begin()
		a.follow()
		a.consume()
		a.clock.stop()
		a.cancel(nil)
	})
	return &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: vehicle}, nil
}

// begin opens an attempt.
func (r *run) begin() *attempt {
	r.setWaiting(false)
	r.attempts++
	a := &attempt{run: r, number: r.attempts, hop: r.first}
	a.ctx, a.cancel = context.WithCancelCause(r.ctx)
	r.cur = a
	if r.req.Events != OutcomeOnly {
		a.tell(AttemptStarted{a.number, withoutUserinfo(a.hop.url)})
	}
	a.clock.cancel = a.cancel
	a.clock.arm(r.req.AttemptTimeout, classify.AttemptTimeout)
	return a
}

// checkRetry is go-retryablehttp's CheckRetry: it asks classify what the
// attempt means, and settles it. It runs once per attempt, for no response
// handler is set.
func (r *run) checkRetry(context.Context, *http.Response, error) (bool, error) {
	r.client.workers.call(func() { r.settle(r.cur) })
	return r.decision.Verdict == classify.Retry, nil
}

// backoff is go-retryablehttp's Backoff: the wait that was decided.
func (r *run) backoff(_, _ time.Duration, _ int, _ *http.Response) time.Duration {
	r.setWaiting(true)
	if r.client.shutdown.Err() != nil {
		r.cancel(errShutdown)
	}
	return r.decision.Delay
}

// observe is what classify is told of the attempt; resp is nil where its last
// hop read no response.
func (a *attempt) observe(resp *http.Response) *classify.Observation {
	o := &classify.Observation{
		Method: a.req.Method, HopMethod: a.hop.method,
		Attempt: a.number, Redirects: len(a.hops) - 1, Exchanges: a.exchanges,
		Conditional: conditional(a.hop.header),
		Faults:      a.faults, Location: a.location, Auth: a.authAsked,
		BodyCommitted: a.committed,
		Observed:      time.Now(), TimeLeft: a.timeLeft(),
	}
	if resp != nil {
		o.Status = resp.StatusCode
		o.RetryAfter, o.Date = resp.Header.Get("Retry-After"), resp.Header.Get("Date")
	}
	return o
}

func (r *run) timeLeft() time.Duration {
	return max(time.Until(r.deadline), 0)
}

// settle decides what the attempt means, keeps what must be kept of it, and
// tells of it.
func (r *run) settle(a *attempt) {
	o := a.observe(a.resp)
	d := classify.Decide(&r.req.Policy, o)
	if ended := r.ended(); d.Verdict == classify.Retry && ended != nil { // W5, before it begins
		a.fail(classify.Error(classify.NoPhase, ended), classify.NoPhase, reasonOf(ended))
		o.Faults = a.faults
		d = classify.Decide(&r.req.Policy, o)
	}
	r.decision, r.failure = d, a.failureOf(&d)
	if a.response != nil {
		r.last, r.lastAttempt, r.lastError = a.response, a.number, a.errorBody
	}
	if a.response != nil || r.last == nil {
		r.lastURL = withoutUserinfo(a.hop.url)
	}
	r.first = r.origin
	if d.Start == classify.FailedHop {
		r.first = a.hop
	}
	r.logAttempt(a)
	if r.req.Events != OutcomeOnly {
		r.emit(AttemptFinished{a.number, a.response, r.failure, slices.Clone(a.hops), d})
	}
	if d.Verdict == classify.Retry { // ten thousand may wait: keep what the outcome needs, and no more
		a.resp, a.exchange, a.made, a.hop, a.ctx, a.cancel = nil, nil, nil, nil, nil, nil
	}
}

// ended returns what has ended the fetch from outside, or nil.
func (r *run) ended() error {
	if r.client.shutdown.Err() != nil {
		return errShutdown
	}
	return context.Cause(r.ctx)
}

// failureOf describes what went wrong, or nil.
func (a *attempt) failureOf(d *classify.Decision) *Failure {
	if d.Class == classify.NoClass {
		return nil
	}
	f := &Failure{Class: d.Class, FailureType: d.FailureType, Rule: d.ClassRule,
		URL: withoutUserinfo(a.hop.url), Retryable: d.Retryable,
		RetryAfter: d.RetryAfter, HasRetryAfter: d.HasRetryAfter,
		Phase: a.phase, Reason: a.reason}
	switch {
	case d.Class == classify.TooManyRedirects:
		f.Phase, f.Reason = classify.PhasePolicy, "too_many_redirects"
	case !a.faults.Has(d.Class): // the status alone says it
		f.Phase, f.Reason = classify.PhaseProcessing, ""
	}
	f.Message = message(f.Class, f.Reason)
	return f
}

// emit gives an event to the sink. A sink that fails ends the fetch.
func (r *run) emit(e Event) {
	if r.sink == nil || r.sinkErr != nil {
		return
	}
	if r.sinkErr = r.sink(e); r.sinkErr != nil {
		r.cancel(context.Canceled)
	}
}

// outcome says how the fetch ended.
func (r *run) outcome() *Outcome {
	if r.attempts == 0 {
		r.endWait() // nothing was sent: no time, cancelled, or shutting down
	}
	out := &Outcome{
		Kind: r.decision.Kind, FinalURL: orDefault(r.lastURL, withoutUserinfo(r.req.URL)),
		Response: r.last, ResponseAttempt: r.lastAttempt, ErrorBody: r.lastError,
		Rule: r.decision.Rule, Attempts: r.attempts, Exchanges: r.exchanges,
		Total: time.Since(r.start),
	}
	if a := r.cur; a != nil {
		out.Hops, out.Body = a.hops, a.body
	}
	if out.Kind == classify.Failed {
		out.Failure, out.StopReason = r.failure, r.decision.Verdict
	} else if r.cur != nil {
		out.InlineBody = r.cur.inline
	}
	return out
}

// endWait settles a fetch that ended outside an attempt, by the cause that its
// context tells (W5).
func (r *run) endWait() {
	class := classify.Error(classify.NoPhase, context.Cause(r.ctx))
	o := classify.Observation{Method: r.req.Method, Attempt: r.attempts, Exchanges: r.exchanges,
		Faults: classify.FaultsOf(orDefault(class, classify.Internal)), Observed: time.Now()}
	r.decision = classify.Decide(&r.req.Policy, &o)
	r.failure = &Failure{Class: r.decision.Class, FailureType: r.decision.FailureType, Rule: r.decision.ClassRule,
		Message: message(r.decision.Class, ""), Reason: reasonOf(context.Cause(r.ctx)),
		URL: withoutUserinfo(r.req.URL), Retryable: r.decision.Retryable}
}

// shutDown ends the wait between two attempts; an attempt under way goes on.
func (r *run) shutDown() {
	if r.isWaiting() {
		r.cancel(errShutdown)
	}
}

func (r *run) setWaiting(w bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = w
}

func (r *run) isWaiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting
}
