package fetch

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"time"

	"fetchd/classify"
	"fetchd/fetch/conns"
	"fetchd/fetch/fault"
	"fetchd/fetch/urls"
)

// startAttempt makes an attempt the current one, and sends its requests.
func (r *run) startAttempt() {
	r.current = r.newAttempt()
	r.current.follow()
}

// newAttempt returns the next attempt.
func (r *run) newAttempt() *attempt {
	r.setWaiting(false) // backoff has set it before the wait
	r.attempts++
	a := &attempt{run: r, number: r.attempts, hop: r.startHop}
	a.limit.Init(&r.clock, a)
	a.sent = append(a.sentRoom[:0], r.chain...)
	if len(r.chain) > 0 { // the charge of the chain stays
		a.hopsCharge, r.charges.hops = r.charges.hops, 0
	}
	if a.resuming = r.progressToResume(); a.resuming != nil {
		a.hop = a.resuming.rangeRequest(r.req, a.hop)
	}
	if r.wantsAttemptEvents() {
		a.emit(AttemptStarted{a.number, a.hop.urlText()})
	}
	a.limit.Arm(r.req.AttemptTimeout, classify.AttemptTimeout)
	return a
}

// follow sends the requests of the chain until a response is not a redirect to follow (spec D1).
// It stores the last response in a.resp.
func (a *attempt) follow() {
	for {
		resp := a.send() //nolint:bodyclose // Exchange.End closes it
		if resp == nil {
			return
		}
		next := a.redirect(resp)
		if next == nil {
			a.resp = resp
			return
		}
		recorded := a.discard(resp)
		if a.isDoubtful() {
			a.disown()
			return
		}
		if a.run.req.Events == All {
			a.emitRedirect(resp)
		}
		a.releaseHead()
		if !recorded || !a.chargeHop(next) {
			return
		}
		a.hop = next
	}
}

// send sends the request of the current hop and returns the response. It returns nil if there is
// none that counts, and has recorded why.
func (a *attempt) send() *http.Response {
	a.newExchange()
	a.hops = append(a.hops, Hop{Method: a.hop.method, URL: a.hop.urlText(), Start: time.Since(a.run.start)})
	resp, err := a.roundTrip()
	hop := &a.hops[len(a.hops)-1]
	hop.Exchange = a.exchange.Report()
	if hop.Exchange.Sent {
		a.run.exchanges++
	}
	a.run.requests = max(a.run.requests, a.exchange.RequestState())
	if err != nil {
		a.failWith(a.exchange.Phase(), err)
		a.endExchange(nil)
		return nil
	}
	hop.StatusCode = resp.StatusCode
	if resp.StatusCode == http.StatusMisdirectedRequest { // the connection, or one like it, is the wrong one (I6)
		a.exchange.Retire()
		a.run.fresh = true
	}
	a.checkClock(resp)
	a.watchBody(resp)
	if !a.chargeHead(resp) || !a.keepCookies(resp) {
		a.releaseHead()
		a.endExchange(resp)
		return nil
	}
	if resp.StatusCode < 100 { // not a status, and 0 means no response in package classify
		a.fail(classify.Protocol, classify.PhaseProcessing, "status")
	}
	return resp
}

func (a *attempt) newExchange() {
	req := a.run.req
	settings := conns.Settings{ConnectTimeout: req.ConnectTimeout, HeaderTimeout: req.HeaderTimeout, Memory: req.Memory, TLSDetails: req.TLSDetails}
	a.beginRecording(&settings)
	x := &a.firstExchange
	if a.exchange != nil { // goroutines of HTTP/2 may still have that one
		x = new(conns.Exchange)
	}
	a.run.client.pool.Begin(x, a.run.caller, &a.run.clock, settings)
	a.setExchange(x)
}

// replaceExchange drops the current exchange, which the origin has not processed, as if it had not been.
func (a *attempt) replaceExchange() {
	a.run.requests = max(a.run.requests, a.exchange.RequestState())
	a.exchange.End()
	if a.run.recording != nil {
		a.run.recording.Discard()
		a.run.recording = nil
	}
	a.newExchange()
	a.hops[len(a.hops)-1].Start = time.Since(a.run.start)
}

// setExchange records x as the current exchange. It cancels x if the fetch or the attempt has
// already ended.
func (a *attempt) setExchange(x *conns.Exchange) {
	a.run.mu.Lock()
	defer a.run.mu.Unlock()
	a.exchange, a.run.inFlight = x, x
	switch {
	case a.run.cause != nil:
		x.Cancel(a.run.cause)
	case a.cause != nil:
		x.Cancel(a.cause)
	}
}

// maxRepeats limits how often a hop sends its request again because the origin has not processed it (I6).
const maxRepeats = 3

// roundTrip checks the URL, adds cookies and the credential, connects, signs and sends the request,
// and reads the response head.
func (a *attempt) roundTrip() (*http.Response, error) {
	if err := a.run.client.checkURL(a.hop.url, a.redirects() > 0, a.run.req.Egress); err != nil {
		return nil, err
	}
	hop := a.withCookies(a.hop)
	a.sent = append(a.sent, hop)
	req := &a.firstRequest
	if len(a.hops) > 1 {
		req = new(http.Request)
	}
	a.fill(req, hop)
	signer, err := a.authorize(a.exchange, req)
	if err != nil {
		return nil, err
	}
	target, header, added := a.target(req), req.Header, a.added
	for repeats := 0; ; repeats++ {
		resp, err := a.transmit(&target, req, signer)
		if err == nil || repeats == maxRepeats || !a.exchange.Unprocessed() {
			return resp, err
		}
		a.replaceExchange()
		target.Fresh = true
		req.Header, a.added = header, added
		setBody(req, hop.body)
	}
}

// transmit connects, signs and sends a request once, and reads the response head.
func (a *attempt) transmit(target *conns.Target, req *http.Request, signer Signer) (*http.Response, error) {
	if err := a.exchange.Connect(*target); err != nil {
		return nil, err
	}
	if err := a.sign(a.exchange, req, signer); err != nil {
		return nil, err
	}
	return a.exchange.RoundTrip(req)
}

// redirects returns how many redirects the chain has followed (D1, I3).
func (a *attempt) redirects() int { return len(a.run.chain) + len(a.hops) - 1 }

// fill makes req what is sent for a hop.
func (a *attempt) fill(req *http.Request, hop *hopRequest) {
	*req = http.Request{Method: hop.method, URL: urls.WithoutFragment(hop.url), Host: hop.url.Host, Header: hop.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	setBody(req, hop.body)
}

// setBody gives a request a body that was not read.
func setBody(req *http.Request, body []byte) {
	if len(body) > 0 {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
}

// target returns where a request goes and which connections it may use. A request that must not
// be repeated, or that authenticates its connection (spec A5), gets a connection that no other
// request uses. The last attempt uses no connection that the origin may be about to close, and those
// after a 421 none that is kept (I6).
func (a *attempt) target(req *http.Request) conns.Target {
	return conns.Target{
		URL:    req.URL,
		Caller: a.run.req.Caller,
		Egress: a.run.req.Egress, HideForbidden: a.run.req.HideForbidden,
		Route: a.run.req.Route,
		Alone: !a.run.req.Policy.Repeatable(a.hop.method) || conns.BindsConnection(a.credential()) ||
			conns.BindsConnection(req.Header["Authorization"]...),
		Recent: a.number >= a.run.req.Policy.MaxAttempts,
		Fresh:  a.run.fresh,
	}
}

// redirect returns the request that follows resp, or nil if there is none. It records why a
// redirect cannot be followed.
func (a *attempt) redirect(resp *http.Response) *hopRequest {
	if !isRedirect(resp.StatusCode) {
		return nil
	}
	rules := RedirectRules{a.run.req.Scope, a.run.req.ForbidDowngrade}
	step := ResolveRedirect(rules, a.run.req.URL, a.hop.url, a.hop.method, resp.StatusCode, resp.Header.Get("Location"))
	a.location = step.Location
	if step.URL != nil {
		a.hops[len(a.hops)-1].LocationURL = urls.WithoutUserinfo(step.URL)
	}
	var next *hopRequest
	if a.location == classify.InScope {
		next = a.nextHop(&step)
	}
	seen := a.observe(resp) // with the failure that nextHop may have recorded
	if d := classify.Decide(&a.run.req.Policy, &seen); d.Follow {
		return next
	}
	return nil
}

// nextHop checks a redirect against the egress policy (P1), its URL (R3) and the requests before
// it (R2). It returns the next request, or nil after it has recorded why there is none.
func (a *attempt) nextHop(step *Step) *hopRequest {
	if step.URL != nil {
		if err := a.run.client.checkURL(step.URL, true, a.run.req.Egress); err != nil {
			a.noteDenial(err)
			a.fail(classify.TargetBlocked, classify.PhasePolicy, fault.ReasonOf(err))
			return nil
		}
	}
	if step.Fault != classify.NoClass {
		a.fail(step.Fault, classify.PhasePolicy, step.Reason)
		return nil
	}
	next := &hopRequest{method: step.Method, url: step.URL, body: a.hop.body,
		header: nextHeader(a.hop, step, a.run.req.ForwardCredentials)}
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
	return slices.ContainsFunc(a.sent, func(before *hopRequest) bool { return sameRequest(before, next) })
}

// discard ends the exchange of a redirect response. It reads a short body first, because HTTP/1
// can use the connection again only then. It reports whether the exchange is recorded, if it is to be.
func (a *attempt) discard(resp *http.Response) bool {
	a.drain(resp)
	return a.endExchange(resp)
}

func (a *attempt) emitRedirect(resp *http.Response) {
	followed := a.hops[len(a.hops)-1]
	followed.Header = resp.Header
	a.emit(RedirectFollowed{Attempt: a.number, Hop: followed})
}
