package fetch

// All of go-retryablehttp is in this file. It runs the loop of attempts and waits between them,
// and nothing else (decision 1). If it saw the real responses, its http.Client would follow redirects
// by its own rules, and it would drain bodies without a time limit. So it gets a placeholder request and an
// empty response. Its RoundTrip sends the requests of an attempt. Its hook CheckRetry reads the body and
// decides what follows, and Backoff returns the delay of that decision.

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"fetchd/classify"
)

// engine is a go-retryablehttp client.
type engine = retryablehttp.Client

// sharedEngine is that of all fetches.
var sharedEngine = newEngine()

// newEngine returns an engine with our rules. The context of a request identifies its fetch.
// Without a Logger nothing is logged.
func newEngine() *engine {
	return &engine{
		HTTPClient: &http.Client{Transport: attemptTransport{}},
		RetryMax:   math.MaxInt, // checkRetry owns the limit: after RetryMax the response would be lost
		CheckRetry: checkRetry,
		Backoff:    backoff,
		ErrorHandler: func(resp *http.Response, err error, _ int) (*http.Response, error) {
			return resp, err // the default drains the body and returns another error
		},
	}
}

// Placeholders for go-retryablehttp. They are never sent, and its response is never read.
var (
	placeholderURL     = &url.URL{Scheme: "http", Host: "fetch.invalid", Path: "/"}
	emptyHeader        = http.Header{}
	placeholderRequest = &http.Request{Method: http.MethodGet, URL: placeholderURL, Header: emptyHeader}
)

// loop runs the attempts of a fetch. For each, go-retryablehttp calls [attemptTransport.RoundTrip] and
// [checkRetry], and then waits in [loopContext] for the delay that [backoff] returns.
func (r *run) loop(e *engine) {
	r.placeholder.request = *placeholderRequest.WithContext(loopContext{r})
	resp, err := e.Do(&retryablehttp.Request{Request: &r.placeholder.request})
	if resp != nil {
		_ = resp.Body.Close()
	}
	if err != nil && r.isWaiting() { // the fetch was cancelled during a wait
		r.settleCancelled()
	}
}

// attemptTransport is the http.RoundTripper of the loop.
type attemptTransport struct{}

// RoundTrip implements http.RoundTripper. It starts an attempt, which [checkRetry] ends.
func (attemptTransport) RoundTrip(placeholder *http.Request) (*http.Response, error) {
	r := runOf(placeholder.Context())
	if r.startsOnCaller() {
		r.startAttempt()
	}
	r.placeholder.response = http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: emptyHeader, Body: http.NoBody, Request: placeholder}
	return &r.placeholder.response, nil
}

// startsOnCaller reports whether an attempt waits for the response head on the goroutine that called Fetch. If
// many fetches are in flight, a worker makes all of an attempt that needs more stack, because events are
// encoded, a credential is read or records are written.
func (r *run) startsOnCaller() bool {
	return r.onCaller || r.req.LargeStack && !r.wantsAttemptEvents() && r.req.Credentials == nil && r.req.Recorder == nil
}

// checkRetry is go-retryablehttp's CheckRetry. It ends the attempt, and decides what follows. It is called once for
// each attempt, because no response handler is set. If many fetches are in flight, it does so on a worker: the
// goroutine of the fetch would keep the stack that has grown for it through the next wait.
func checkRetry(ctx context.Context, _ *http.Response, _ error) (bool, error) {
	r := runOf(ctx)
	if r.onCaller {
		r.endAttempt()
	} else {
		r.client.workers.Call(r.endAttempt)
	}
	return r.ended == nil, nil
}

// endAttempt reads the body of the current attempt, after it has started it if that is still to do, and decides
// what follows. If that is no other attempt, it ends the fetch.
func (r *run) endAttempt() {
	if r.current == nil {
		r.startAttempt()
	}
	r.current.consume()
	r.current.limit.Stop()
	r.settle()
	if r.decision.Verdict != classify.Retry {
		r.ended = r.client.conclude(r.caller, r)
	}
}

// backoff is go-retryablehttp's Backoff. It returns the delay of the decision.
func backoff(_, _ time.Duration, _ int, resp *http.Response) time.Duration {
	r := runOf(resp.Request.Context())
	r.setWaiting(true)
	return r.decision.Delay
}

// runKey is the key under which the loop's context holds its run.
type runKey struct{}

func runOf(ctx context.Context) *run {
	r, _ := ctx.Value(runKey{}).(*run)
	return r
}

// loopContext is the context in which go-retryablehttp waits. It ends with the fetch. Nearly
// every fetch ends without a wait, so the channel is made on demand.
type loopContext struct{ run *run }

// Deadline implements context.Context.
func (c loopContext) Deadline() (time.Time, bool) { return c.run.caller.Deadline() }

// Done implements context.Context.
func (c loopContext) Done() <-chan struct{} { return c.run.waitContext().Done() }

// Err implements context.Context.
func (c loopContext) Err() error {
	if c.run.cancelCause() != nil {
		return context.Canceled
	}
	return nil
}

// Value implements context.Context.
func (c loopContext) Value(key any) any {
	if key == (runKey{}) {
		return c.run
	}
	return c.run.caller.Value(key)
}
