package fetch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"time"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/fetch/timers"
	"fetchd/fetch/urls"
)

// hopRequest is one request of a chain.
type hopRequest struct {
	method string
	url    *url.URL
	text   string // the URL as it is told, from [hopRequest.told]
	header http.Header
	body   []byte // nil once a redirect has dropped it
}

// told is the URL as it is told: without userinfo.
func (h *hopRequest) told() string {
	if h.text == "" {
		h.text = urls.WithoutUserinfo(h.url)
	}
	return h.text
}

// attempt is one iteration of the retry loop: a chain of hops, and the body of the last
// response. [run.turn] fills it in, and [run.settle] decides what follows.
type attempt struct {
	*run
	number int
	limit  timers.Limit // the attempt's own time limit

	hop  *hopRequest // the last one begun
	hops []Hop
	made []*hopRequest  // the hops as they were sent, for the loop check
	one  [1]*hopRequest // room for most

	resp     *http.Response // of the last hop; its body is read by consume
	response *Response
	head     head // that callers see, with response; see [attempt.shown]

	exchange *exchange
	over     error // why there is to be no other; under the run's lock

	location classify.Location
	faults   classify.Faults
	phase    classify.Phase
	reason   string
	note     errorNote // of the first fault

	credential   string    // that the last hop sent
	noCredential bool      // none could be got
	refreshError string    // why there is no other; empty: there is, or it was not asked for
	continued    *progress // the body that this attempt resumes; nil: it starts at the first byte
	body         BodySummary
	inline       []byte
	errorBody    []byte
	// committed reports whether this attempt has delivered body bytes. The body may still be
	// resumed or restarted, unlike with [classify.Observation].BodyCommitted.
	committed bool

	headHeld, hopsHeld int64 // bytes charged for the last response head and for the hops after the first
}

// exchange is one request of a hop, with its time limit and its trace. It is the context of
// that request.
type exchange struct {
	context.Context
	cancel  context.CancelCauseFunc
	attempt int  // its number
	alone   bool // on a connection that no other fetch uses
	watch   timers.Limit
	trace   trace
}

// Value implements context.Context. The dialer finds the exchange there.
func (x *exchange) Value(key any) any {
	if key == (dialScope{}) {
		return x
	}
	return x.Context.Value(key)
}

// fail notes what went wrong. The first reason is kept.
func (a *attempt) fail(class classify.Class, phase classify.Phase, reason string) {
	if a.faults == 0 {
		a.phase, a.reason = phase, reason
	}
	a.faults = a.faults.With(class)
}

// failWith notes an error that ended the exchange in the given phase.
func (a *attempt) failWith(phase classify.Phase, err error) {
	class, reason, cause := a.classOf(phase, err)
	a.explain(class, phase, err, cause)
	if staged, ok := errors.AsType[*fault.PhaseError](err); ok {
		phase = staged.Phase
	} else if own, ok := errors.AsType[*fault.Error](err); ok {
		phase = orDefault(own.Phase, phase) // the guard judges while dialling
	}
	a.fail(class, phase, reason)
}

// classOf asks the contexts first: HTTP/1 and HTTP/2 report a cancelled one with
// different errors, and a time limit shows in its cause alone. It returns that cause
// too, or nil.
func (a *attempt) classOf(phase classify.Phase, err error) (classify.Class, string, error) {
	if cause := a.cause(); cause != nil {
		class := classify.Error(classify.NoPhase, cause) // a limit of ours knows its class; the rest is the caller's
		if class == classify.ConnectTimeout && phase == classify.PhaseResolve {
			class = classify.DNSFailure // N1: not in time
		}
		return class, fault.ReasonOf(cause), cause
	}
	if staged, ok := errors.AsType[*fault.PhaseError](err); ok {
		phase = staged.Phase
	}
	class := classify.Error(phase, err)
	if class == classify.Protocol && a.exchange.trace.brokeOff(err) {
		class = classify.ConnectionReset
	}
	return class, fault.ReasonOf(err), nil
}

// cause returns what ended the exchange from our side, or nil. Of limits that
// end at one instant the hop's own comes first (spec §3), then the fetch's.
func (a *attempt) cause() error {
	cause := context.Cause(a.exchange)
	if cause == nil {
		return nil
	}
	if _, limit := errors.AsType[*TimeoutError](cause); limit {
		if own := a.exchange.watch.Passed(); own != nil {
			return own
		}
		if a.timeLeft() == 0 {
			return &timers.Error{Class: classify.Deadline, Limit: time.Since(a.start)}
		}
	}
	return cause
}

// follow makes the requests of the chain, until one is not a redirect to be
// followed (spec D1). It leaves the last response in a.resp.
func (a *attempt) follow() {
	for {
		resp := a.send()
		if resp == nil {
			return
		}
		next := a.redirect(resp)
		if next == nil {
			a.resp = resp
			return
		}
		a.leave(resp)
		if a.req.Events == All {
			a.tellRedirect(resp)
		}
		a.dropHead()
		if !a.holdHop(next) {
			return
		}
		a.hop = next
	}
}

func (a *attempt) tellRedirect(resp *http.Response) {
	followed := a.hops[len(a.hops)-1]
	followed.Header = resp.Header
	a.tell(RedirectFollowed{Attempt: a.number, Hop: followed})
}

// redirect returns the request that follows resp, or nil where none does. What
// stands against following it is noted for the decision.
func (a *attempt) redirect(resp *http.Response) *hopRequest {
	if !isRedirect(resp.StatusCode) {
		return nil
	}
	rules := RedirectRules{a.req.Scope, a.req.ForbidDowngrade}
	step := ResolveRedirect(rules, a.req.URL, a.hop.url, a.hop.method, resp.StatusCode, resp.Header.Get("Location"))
	a.location = step.Location
	if step.URL != nil {
		a.hops[len(a.hops)-1].LocationURL = urls.WithoutUserinfo(step.URL)
	}
	var next *hopRequest
	if a.location == classify.InScope {
		next = a.judge(&step)
	}
	seen := a.observe(resp)
	if d := classify.Decide(&a.req.Policy, &seen); d.Follow {
		return next
	}
	return nil
}

// judge notes P1, R3 and R2 against a redirect, and returns the request it asks
// for where none holds.
func (a *attempt) judge(step *Step) *hopRequest {
	if step.URL != nil {
		if err := a.client.guard.CheckURL(step.URL); err != nil {
			a.fail(classify.TargetBlocked, classify.PhasePolicy, fault.ReasonOf(err))
			return nil
		}
	}
	if step.Fault != classify.NoClass {
		a.fail(step.Fault, classify.PhasePolicy, step.Reason)
		return nil
	}
	next := &hopRequest{method: step.Method, url: step.URL, body: a.hop.body,
		header: nextHeader(a.hop, step, a.req.ForwardCredentials)}
	if !step.BodyKept {
		next.body = nil
	}
	if a.loops(next) {
		a.fail(classify.RedirectLoop, classify.PhasePolicy, "redirect_loop")
		return nil
	}
	return next
}

// loops reports whether the chain has made this request before (spec D3).
func (a *attempt) loops(next *hopRequest) bool {
	next = a.withCookies(next)
	return slices.ContainsFunc(a.made, func(made *hopRequest) bool { return sameRequest(made, next) })
}

func sameRequest(a, b *hopRequest) bool {
	if a.method != b.method || urls.WithoutFragment(a.url).String() != urls.WithoutFragment(b.url).String() || len(a.header) != len(b.header) {
		return false
	}
	for name, values := range a.header {
		if !slices.Equal(values, b.header[name]) {
			return false
		}
	}
	return true
}

// send makes one request and returns its response, or nil where there is none.
func (a *attempt) send() *http.Response {
	began := time.Since(a.start)
	x := a.newExchange()
	a.hops = append(a.hops, Hop{})
	hop := &a.hops[len(a.hops)-1]
	hop.Method, hop.URL, hop.Start = a.hop.method, a.hop.told(), began
	resp, err := a.roundTrip(x)
	if x.trace.refused { // nothing was written
		x.watch.Stop()
		x = a.newExchange()
		x.alone = true
		resp, err = a.roundTrip(x)
	}
	x.watch.Rest()
	x.trace.result(&hop.Exchange, resp)
	a.exchanges += hop.Exchange.Requests
	if err != nil {
		a.failWith(x.trace.current(), err)
		x.watch.Stop()
		x.cancel(nil)
		return nil
	}
	hop.StatusCode = resp.StatusCode
	if !a.holdHead(resp) || !a.keepCookies(resp) {
		a.dropHead()
		x.watch.Stop()
		_ = resp.Body.Close()
		x.cancel(nil)
		return nil
	}
	if resp.StatusCode < 100 { // 0 is what classify calls none
		a.fail(classify.Protocol, classify.PhaseProcessing, "status")
	}
	return resp
}

func (a *attempt) newExchange() *exchange {
	x := &exchange{attempt: a.number}
	x.Context, x.cancel = context.WithCancelCause(a.caller)
	x.watch.Init(&a.clock, x.cancel)
	x.trace.watch, x.trace.limits, x.trace.phase = &x.watch, a.req, classify.PhasePolicy
	x.trace.end, x.trace.left = x.cancel, int16(classify.MaxExchanges-a.exchanges)
	a.exchange = x
	a.begun(x)
	return x
}

// roundTrip gives the request to the transport.
func (a *attempt) roundTrip(x *exchange) (*http.Response, error) {
	if err := a.client.guard.CheckURL(a.hop.url); err != nil {
		return nil, err
	}
	if a.exchanges >= classify.MaxExchanges {
		return nil, fault.New(classify.ConnectionReset, classify.PhasePolicy, "exchange_limit")
	}
	hop := a.withCookies(a.hop)
	a.made = append(a.made, hop)
	req, transport := a.request(httptrace.WithClientTrace(x, x.trace.hooks(a.client.hasProxy)), hop)
	if err := a.authorize(x, req); err != nil {
		return nil, err
	}
	if x.alone || !a.mayShare(req) {
		transport = a.client.fresh
	}
	return transport.RoundTrip(req)
}

// request builds what goes out, and says by which transport. What may not be
// repeated goes on a connection of its own, and in a form that net/http never
// sends again: a body it cannot rewind (spec I2).
func (a *attempt) request(ctx context.Context, hop *hopRequest) (*http.Request, *http.Transport) {
	req := (&http.Request{Method: hop.method, URL: urls.WithoutFragment(hop.url), Host: hop.url.Host, Header: hop.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	if a.req.TraceParent != "" && hop.header["Traceparent"] == nil && urls.SameOrigin(hop.url, a.req.URL) {
		addLine(req, "Traceparent", a.req.TraceParent)
	}
	if !a.req.Policy.Repeatable(hop.method) {
		req.Body, req.ContentLength = onceBody(hop.body), int64(len(hop.body))
		return req, a.client.fresh
	}
	if len(hop.body) > 0 {
		req.ContentLength = int64(len(hop.body))
		req.GetBody = func() (io.ReadCloser, error) { return onceBody(hop.body), nil }
		req.Body, _ = req.GetBody()
	}
	if hop.header["Idempotency-Key"] == nil && !safeMethod(hop.method) {
		addLine(req, "Idempotency-Key") // sent by no one; tells net/http that PUT and DELETE may be repeated
	}
	return req, a.client.pooled
}

// addLine adds to what goes out with one request. The hop's own header stays as it
// is: later requests are made from it.
func addLine(req *http.Request, name string, values ...string) {
	req.Header = maps.Clone(req.Header)
	req.Header[name] = values
}

// leave gives up a response that is not wanted. A short body is read, so that
// the connection can carry the next hop, but not waited for.
func (a *attempt) leave(resp *http.Response) {
	const drainBytes, drainTime = 2 << 10, 250 * time.Millisecond
	if resp.ContentLength > 0 && resp.ContentLength <= drainBytes {
		began := time.Now()
		a.exchange.watch.ArmAt(began, drainTime, classify.BodyTimeout)
		_, _ = io.CopyN(io.Discard, resp.Body, resp.ContentLength+1)
		a.hops[len(a.hops)-1].Exchange.Transfer = time.Since(began)
	}
	a.exchange.watch.Stop()
	_ = resp.Body.Close()
	a.exchange.cancel(nil)
}

func safeMethod(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// onceBody is a body that net/http cannot rewind. It is not http.NoBody even
// where it is empty, for that one is sent again.
func onceBody(body []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(body)) }
