package fetch

import (
	"context"
	"math"
	"net/http"
	"net/http/cookiejar"
	"net/url"
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
	delivered *progress // of the body; nil: nothing has gone out
	decision  classify.Decision
	failure   *Failure // of the last attempt
	refreshed bool     // the credential, once

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
	r.delivered = req.resumeAt()
	if r.ctx.Err() == nil {
		r.loop(r.engine())
	}
	return c.ended(ctx, r)
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
	if a.continued = r.continues(); a.continued != nil {
		a.hop = a.continued.continuation(r.req, a.hop)
	}
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

// emit gives an event to the sink. A sink that fails ends the fetch.
func (r *run) emit(e Event) {
	if r.sink == nil || r.sinkErr != nil {
		return
	}
	if r.sinkErr = r.sink(e); r.sinkErr != nil {
		r.cancel(context.Canceled)
	}
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
