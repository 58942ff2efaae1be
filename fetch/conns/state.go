package conns

// All state of an exchange is in this file, with the functions that end it early and that note how far
// it is. What it does is in exchange.go, dial.go, http1.go and http2.go.

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"sync"
	"time"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/fetch/timers"
	"fetchd/internal/budget"
)

// Settings are the limits of an exchange.
type Settings struct {
	// ConnectTimeout limits the lookup, TCP, the proxy and TLS together. HeaderTimeout limits
	// sending the request, and then separately the wait for the response head. Zero means no limit.
	ConnectTimeout, HeaderTimeout time.Duration
	// Memory is charged for a new connection and for a head that is being read. Nil means
	// no limit.
	Memory *budget.Lease
	// Tap takes the bytes of the exchange. The exchange then uses HTTP/1.1, and only connections
	// that serve exchanges with a tap. Nil means none.
	Tap Tap
	// TLSDetails makes the report describe the TLS handshake. A certificate that was rejected is
	// always described.
	TLSDetails bool
}

// Tap takes what an exchange sends and receives, above TLS and before any byte of it is used. What
// goes through a proxy is given as the origin gets it. Sent is called on another goroutine than
// Received if the request has a long body. Neither is called when [Exchange.End] has returned.
// They must not keep p. An error ends the exchange.
type Tap interface {
	Sent(p []byte) error
	Received(p []byte) error
}

// Target is where a request goes, and which connections it may use.
type Target struct {
	URL *url.URL
	// Caller is the caller's name; see [OriginTLS].Callers.
	Caller string
	// Alone sends the request over HTTP/1.1, on a new connection that no other request uses.
	Alone bool
	// Egress narrows the guard of the pool for this request: each address is checked before it is dialled,
	// and that of a connection before the request may use it. Nil narrows nothing.
	Egress Narrower
	// HideForbidden makes a name fail as one that does not exist, if every address of it is forbidden, and not all
	// of them are public.
	HideForbidden bool
	// Route is the way to the origin. Nil means that of the [Config] of the pool.
	Route *Route
	// Recent allows only a new connection, or one that was used within the last 0.8 s.
	Recent bool
	// Fresh allows only a connection that is dialled for this request.
	Fresh bool
}

// Narrower narrows the guard of a pool. It is safe for concurrent use.
type Narrower interface {
	// CheckAddr returns an error for an address that is forbidden.
	CheckAddr(target netip.AddrPort) error
	// Permits reports whether CheckAddr would return nil. It records nothing, and is called with the pool locked.
	Permits(target netip.AddrPort) bool
}

// Report describes how a request was sent and its response received. A duration is zero if
// its phase did not occur.
type Report struct {
	// RemoteAddress is empty if a proxy connected, or if it is not known.
	RemoteAddress string
	// Protocol is for example "HTTP/1.1". It is empty if no response was read.
	Protocol string
	// TLSVersion is for example "TLS 1.3". It is empty without TLS.
	TLSVersion string
	// TLSDetails describe the handshake of the connection, which may have been that of an earlier
	// exchange. They are nil without TLS, and unless [Settings].TLSDetails is set or the certificate was
	// rejected.
	TLSDetails *TLSDetails
	// Reused reports whether the connection had carried an earlier request.
	Reused bool
	// Sent reports whether the origin may have processed the request.
	Sent bool

	Resolve, Connect, TLS, Processing, Transfer, Backpressure time.Duration
}

// Exchange is one request on one connection. Its methods are called one after the other, except
// Cancel.
type Exchange struct {
	// Limit is the time limit of the current phase. The exchange arms it for connecting,
	// sending and the response head. It cancels the exchange.
	Limit timers.Limit

	parent   context.Context
	pool     *Pool
	settings Settings
	conn     *conn
	stop     func() bool // ends the watch of the parent
	unused   bool        // a slot on conn is reserved, and no request has taken it
	began    bool        // the request is counted on conn
	surplus  bool        // bytes followed the response
	ofProxy  []string    // see ProxyFields
	// unprocessed reports whether the exchange has failed and the origin cannot have processed its request.
	unprocessed bool

	certificateAsked bool // the origin asked for a client certificate, and there is none

	// Of HTTP/1.1. All of it is used on the goroutine of the exchange.
	in        *bufio.Reader // nil: nothing was read
	head      partialHead
	body      body
	writing   chan error // gets the result of the goroutine that writes a long request; nil: there is none
	wroteLine bool       // the request line was written
	touched   bool       // the connection has taken a byte of the request
	faulty    bool       // the framing of a response may be read in two ways (spec I6)
	mayReuse  bool       // nothing forbids another request on the connection
	whole     bool       // the response was read to its end
	filled    bool       // the last read got as much as it asked for

	// How the exchange ends early.
	ending    sync.Mutex
	cause     error                   // the first one
	ctx       context.Context         // for what needs a context; nil: nothing has needed it
	cancelCtx context.CancelCauseFunc // of ctx
	closes    *socket                 // is closed when the exchange is cancelled; nil: none

	// Over HTTP/2 these are used on goroutines of net/http too, some of them after the head was read.
	mu            sync.Mutex
	phase         classify.Phase
	over          bool   // there is a head or an error; hooks that run later change nothing
	answered      bool   // the first byte of a response was received
	informational int8   // 1xx responses
	stream        uint32 // of HTTP/2; 0: nothing of the request was written
	rejected      error  // why the response must not be used, or nil
	awaiting      bool   // a head over HTTP/2 is awaited; conn.payers lists this exchange
	ended         bool   // End was called: nothing more is charged
	charged       int64
	peer          string // address that was dialled last, or empty
	report        Report

	resolveStart, connectStart, tlsStart, started, wrote time.Time
}

// Cancel ends the exchange for a cause, which [Exchange.Cause] then returns. It may be called
// at any time. Over HTTP/1 it closes the connection.
func (x *Exchange) Cancel(cause error) {
	x.ending.Lock()
	if x.cause == nil {
		x.cause = cause
	}
	cancel, s := x.cancelCtx, x.closes
	x.closes = nil
	x.ending.Unlock()
	if cancel != nil {
		cancel(cause)
	}
	if s != nil {
		_ = s.Close()
	}
}

// Cause returns why the exchange was cancelled, or nil.
func (x *Exchange) Cause() error {
	x.ending.Lock()
	defer x.ending.Unlock()
	if x.cause != nil {
		return x.cause
	}
	return fault.CallerErrorOf(x.parent)
}

// Context returns a context that ends with the exchange.
func (x *Exchange) Context() context.Context {
	x.ending.Lock()
	defer x.ending.Unlock()
	if x.ctx == nil {
		x.ctx, x.cancelCtx = context.WithCancelCause(x.parent)
		if x.cause != nil {
			x.cancelCtx(x.cause)
		}
	}
	return x.ctx
}

// closeWith makes a cancellation close s, from now on and instead of another one. Nil means that it
// closes nothing. It returns why the exchange was cancelled already, or nil.
func (x *Exchange) closeWith(s *socket) error {
	x.ending.Lock()
	defer x.ending.Unlock()
	x.closes = nil
	if x.cause == nil {
		x.closes = s
	}
	return x.cause
}

// Report returns what is known of the exchange.
func (x *Exchange) Report() Report {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.report
}

// Phase returns the phase that the exchange is in.
func (x *Exchange) Phase() classify.Phase {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.phase
}

// Peer returns the address that was dialled last. It is empty if none was.
func (x *Exchange) Peer() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.peer
}

// Surplus reports whether the origin has sent more than the response, over a connection that had
// carried an earlier request. Then the response may be the answer to that one. It is known when the
// response was read to its end.
func (x *Exchange) Surplus() bool { return x.surplus && x.report.Reused }

// Retire makes the connection take no further request. It is closed when its requests have
// ended.
func (x *Exchange) Retire() {
	if x.conn != nil {
		x.pool.retire(x.conn)
	}
}

func (x *Exchange) setPhase(p classify.Phase) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.phase = p
}

// enter begins a phase of connecting. A second address is part of the same phase.
func (x *Exchange) enter(p classify.Phase, since *time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if since.IsZero() {
		*since = time.Now()
		x.phase = p
	}
}

// leave ends a phase of connecting.
func (x *Exchange) leave(since *time.Time, took *time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !since.IsZero() {
		*took = time.Since(*since)
	}
}

// connecting records that an address is dialled. With the first one the lookup has ended.
func (x *Exchange) connecting(address string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.peer = address
	if !x.connectStart.IsZero() {
		return
	}
	x.connectStart, x.phase = time.Now(), classify.PhaseConnect
	if !x.resolveStart.IsZero() {
		x.report.Resolve = x.connectStart.Sub(x.resolveStart)
	}
}

// outlive makes the exchange end with the error of an address, if the limit for connecting has passed while
// others were tried. The class is then not that of the limit.
func (x *Exchange) outlive() {
	if x.Limit.Passed() == nil {
		return
	}
	x.ending.Lock()
	defer x.ending.Unlock()
	if _, ours := errors.AsType[*timers.Error](x.cause); ours {
		x.cause = nil
	}
}

func (x *Exchange) reached(address string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.peer = address
}

// sending records that the origin may see the request from now on.
func (x *Exchange) sending() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.report.Sent = true
}

// sent starts the limit for the response head: the whole request is written.
func (x *Exchange) sent() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over || x.phase != classify.PhaseRequest {
		return
	}
	x.wrote, x.phase = time.Now(), classify.PhaseProcessing
	x.Limit.ArmAt(x.wrote, x.settings.HeaderTimeout, classify.ResponseTimeout)
}

// firstByte records that a response has begun.
func (x *Exchange) firstByte() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return
	}
	x.answered, x.report.Sent = true, true // over HTTP/2 a response may be read before the hook about the headers has run
	x.report.Processing = time.Since(x.started)
}

// reject ends the exchange because of what the origin sent up to the end of the head.
func (x *Exchange) reject(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rejectLocked(err)
}

func (x *Exchange) rejectLocked(err error) {
	x.rejected = err
	x.Cancel(err)
	x.Retire()
}

// MaxInformational is how many 1xx responses may come before the one that counts.
const MaxInformational = 16

var errInformational = fault.New(classify.Protocol, classify.PhaseProcessing, "too_many_informational_responses")

// gotInformational counts the 1xx responses. Each has the limits of a head.
func (x *Exchange) gotInformational(_ int, h textproto.MIMEHeader) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return context.Canceled
	}
	if offersBinding(http.Header(h)) {
		x.Retire()
	}
	x.informational++
	var err *fault.Error
	switch {
	case Fields(h) > MaxHeaderFields:
		err = ErrFields
	case x.informational > MaxInformational:
		err = errInformational
	default:
		return nil
	}
	x.rejectLocked(err)
	return err
}
