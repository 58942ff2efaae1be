package conns

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/fetch/timers"
	"fetchd/internal/budget"
)

// Begin begins an exchange that was not used before. ctx ends it, and so does its Limit,
// which uses the clock. The caller must call [Exchange.End].
func (p *Pool) Begin(x *Exchange, ctx context.Context, clock *timers.Clock, settings Settings) {
	x.parent, x.pool, x.settings, x.phase = ctx, p, settings, classify.PhasePolicy
	x.Limit.Init(clock, x)
}

// Connect takes an idle connection to the origin, or makes one. After an error
// [Exchange.Phase] returns the phase that failed.
func (x *Exchange) Connect(t Target) error {
	if err := x.Cause(); err != nil {
		return err
	}
	x.stop = context.AfterFunc(x.parent, func() { x.Cancel(fault.CallerErrorOf(x.parent)) })
	k, alone := x.pool.keyOf(&t, x.settings.Tap != nil)
	var err error
	if !alone && !t.Fresh {
		x.conn = x.pool.take(k, &t)
	}
	reused := x.conn != nil
	if !reused {
		x.Limit.Arm(x.settings.ConnectTimeout, classify.ConnectTimeout)
		x.setPhase(classify.PhaseConnect)
		if x.conn, reused, err = x.pool.dial(x, &t, k, alone); err != nil {
			return err
		}
	}
	x.unused, x.report.Reused = true, reused
	x.report.RemoteAddress, x.report.TLSVersion = x.conn.socket.remote, x.conn.tls
	if x.settings.TLSDetails {
		x.report.TLSDetails = x.conn.tlsDetails()
	}
	return nil
}

// keyOf returns the key of the connections for a target, and whether none of them may be
// used.
func (p *Pool) keyOf(t *Target, tapped bool) (k key, alone bool) {
	k = key{scheme: t.URL.Scheme, host: t.URL.Host, origin: p.originOf(t.URL), tapped: tapped, route: t.Route}
	switch {
	case t.Route != nil:
		k.proxy = t.Route.Proxy
	case p.config.Proxy != nil:
		k.proxy = p.config.Proxy(t.URL)
	}
	if k.proxy != nil && k.scheme == "http" && strings.HasPrefix(k.proxy.Scheme, "http") { // all http URLs share its connections
		k.host = ""
	}
	if o := k.origin; o != nil && !o.allows(t.Caller) {
		return k, true
	}
	return k, t.Alone || p.config.NeverReuse != nil && p.config.NeverReuse(t.URL)
}

// originOf returns the TLS settings for a URL, or nil.
func (p *Pool) originOf(u *url.URL) *OriginTLS {
	origins := *p.origins.Load()
	if len(origins) == 0 || u.Scheme != "https" {
		return nil
	}
	return origins[address(u)]
}

// RoundTrip sends the request over the connection, at most once, and reads the response
// head. The body of the response is closed by [Exchange.End].
func (x *Exchange) RoundTrip(req *http.Request) (*http.Response, error) {
	c := x.conn
	if req.URL.Scheme != c.key.scheme || c.key.host != "" && req.URL.Host != c.key.host {
		return nil, fault.New(classify.Internal, classify.PhaseRequest, "wrong_connection")
	}
	x.begin(c)
	if err := x.Cause(); err != nil {
		x.finish(nil)
		return nil, err
	}
	x.unused = false
	send := x.send1
	if c.h2 != nil {
		send = x.send2
	}
	resp, err := send(req)
	x.finish(resp)
	x.Limit.Rest() // later, because the end of a long request arms it until the exchange is finished
	if err != nil {
		err = x.explain(err)
		x.noteUnprocessed(err)
		return nil, err
	}
	if x.rejected != nil { // net/http may return the response nevertheless
		return nil, x.rejected
	}
	switch {
	case offersBinding(resp.Header):
		x.Retire()
	case c.h2 != nil:
		x.pool.share(c, headBytes(resp.Header) > keptHeadBytes)
	default:
		c.limit = keepAlive(resp.Header)
	}
	if c.through != nil {
		x.ofProxy = c.through.clean(resp.Header)
	}
	return resp, nil
}

// Forwarded reports whether an HTTP proxy has forwarded the request. Then the response may be the proxy's own.
func (x *Exchange) Forwarded() bool { return x.conn != nil && x.conn.through != nil }

// ProxyFields returns the fields of the response that were removed, or changed, because a proxy has
// forwarded the request.
func (x *Exchange) ProxyFields() []string { return x.ofProxy }

// HideCredentials removes Basic credentials from a body that a proxy may have made of the request.
func (x *Exchange) HideCredentials(p []byte) []byte {
	if !x.Forwarded() {
		return p
	}
	return x.conn.through.hide(p)
}

// Unprocessed reports whether Connect or RoundTrip has failed although the origin cannot have processed the
// request: nothing of it was written, or the origin says so. Then it may be sent again, whatever its method,
// by another exchange with a [Target].Fresh connection (spec I6).
func (x *Exchange) Unprocessed() bool { return x.unprocessed && x.Cause() == nil }

// RequestState returns what is known about the request of an exchange that failed.
func (x *Exchange) RequestState() classify.RequestState {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.report.Sent:
		return classify.Unknown
	case x.stream > 0:
		return classify.NotProcessed
	}
	return classify.NotSent
}

// noteUnprocessed records whether an error of RoundTrip means that the request was not processed.
func (x *Exchange) noteUnprocessed(err error) {
	if x.endedInside() {
		return
	}
	if x.unprocessed = x.isUnprocessed(err); !x.unprocessed {
		return
	}
	if x.stream == 0 {
		x.Retire()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.report.Sent = false
}

// endedInside reports whether an exchange over HTTP/2 was cancelled before the hook about its headers has run. They may
// be written nevertheless: HTTP/2 does not wait for its writer then. So the request counts as sent.
func (x *Exchange) endedInside() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.conn.h2 == nil || x.report.Sent || x.Cause() == nil {
		return false
	}
	x.report.Sent = true
	return true
}

func (x *Exchange) isUnprocessed(err error) bool {
	if errors.Is(err, errUnasked) {
		return false
	}
	c := x.conn
	closed := c.h2 != nil && (c.frames.saidGoAway() || c.h2.Err() != nil)
	if x.writing != nil { // the request is long
		_ = c.socket.Close()
		x.wroteAll()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	reset, isReset := errors.AsType[http2.StreamError](err)
	switch {
	case x.answered || x.rejected != nil:
		return false
	case c.h2 == nil:
		return x.report.Sent && !x.touched && !x.certificateAsked
	case x.stream > 0:
		return c.frames.excludes(x.stream) || isReset && reset.Code == http2.ErrCodeRefusedStream
	case x.report.Reused: // otherwise an origin could make all requests fail on a connection that is kept
		return true
	}
	return closed && !x.certificateAsked
}

// begin prepares the connection for the request, and starts the limit for sending it.
func (x *Exchange) begin(c *conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.began, x.started, x.phase = true, time.Now(), classify.PhaseRequest
	if c.h2 != nil {
		x.begin2Locked(c)
	}
	x.Limit.ArmAt(x.started, x.settings.HeaderTimeout, classify.WriteTimeout)
}

// finish records that there is a response or an error. resp is nil if there is no response.
func (x *Exchange) finish(resp *http.Response) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
	x.head.drop() // if it is not complete
	if resp != nil {
		x.headCameLocked()
		x.report.Protocol = resp.Proto
	}
}

// HTTP2 reports whether the connection uses HTTP/2, which TLS has negotiated. It must be connected.
func (x *Exchange) HTTP2() bool { return x.conn.h2 != nil }

// Permit allows the origin to send more over HTTP/2. It is called when bytes of a body were
// read.
func (x *Exchange) Permit() { x.conn.permit() }

// End closes the body of the response and gives the connection back. It may be called more
// than once.
func (x *Exchange) End() {
	x.Limit.Stop()
	if x.stop != nil {
		x.stop()
		x.stop = nil
	}
	if c := x.conn; c != nil {
		if c.h2 != nil {
			x.end2(c)
		} else {
			x.end1(c)
		}
	}
	x.ending.Lock()
	cancel := x.cancelCtx
	x.ending.Unlock()
	if cancel != nil {
		cancel(nil)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.headCameLocked()
	x.conn = nil
	x.settings.Memory.Shrink(budget.Receiving, x.charged)
	x.charged, x.ended = 0, true
}

// ClassOf returns the class of an error that ended the exchange in a phase, where
// [classify.Error] would see only a text.
func (x *Exchange) ClassOf(phase classify.Phase, err error) classify.Class {
	class := classify.Error(phase, err)
	x.mu.Lock()
	defer x.mu.Unlock()
	_, known := errors.AsType[classify.Classified](err)
	known = known || errors.Is(err, http2.ErrFrameTooLarge) // what is no HTTP/2 is such a frame
	if class == classify.Protocol && !known && x.brokeOffLocked(err) {
		class = classify.ConnectionReset
	}
	if class == classify.ConnectionReset && phase != classify.PhaseTransfer && x.certificateAsked && !x.answered {
		class = classify.TLSHandshake // the reset has overtaken the alert (spec N5)
	}
	return class
}

// brokeOffLocked reports whether err means that the connection ended, although its type does
// not say so. That is so
//   - if nothing was sent: then the error cannot be about what was received,
//   - if reading the socket has ended, or
//   - if nothing of a response was read and the error is only a text, such as that of
//     net/http for a GOAWAY before the first stream.
func (x *Exchange) brokeOffLocked(err error) bool {
	return x.conn != nil && (!x.report.Sent || x.conn.socket.readError() != nil || !x.answered && isText(err))
}

// isText reports whether errors.New or fmt.Errorf made the error and all that it wraps.
func isText(err error) bool {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath() == "errors" || t.PkgPath() == "fmt"
}

// keepAlive returns how long an HTTP/1.1 connection may be idle: less than the origin says
// in Keep-Alive, because it counts from an earlier moment.
func keepAlive(h http.Header) time.Duration {
	for _, line := range h["Keep-Alive"] {
		for parameter := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
			if seconds, err := strconv.ParseUint(value, 10, 16); err == nil && strings.EqualFold(name, "timeout") {
				said := time.Duration(seconds) * time.Second
				return min(idleLimit, said-min(time.Second, said/2))
			}
		}
	}
	return idleLimit
}
