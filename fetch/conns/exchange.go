package conns

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/fetch/timers"
	"fetchd/fetch/urls"
	"fetchd/internal/budget"
)

// Settings are the limits of an exchange.
type Settings struct {
	// ConnectTimeout limits the lookup, TCP and TLS together. HeaderTimeout limits sending
	// the request, and then separately the wait for the response head. Zero means no limit.
	ConnectTimeout, HeaderTimeout time.Duration
	// Memory is charged for a new connection and for a head that is being read. Nil means
	// no limit.
	Memory *budget.Lease
	// Tap takes the bytes of the exchange. The exchange then uses HTTP/1.1, and only connections
	// that serve exchanges with a tap. Nil means none.
	Tap Tap
}

// Tap takes what an exchange sends and receives, above TLS and before any byte of it is used. Its
// methods are called on goroutines of net/http, both at once, and possibly when [Exchange.End] has
// returned. They must not keep p. An error ends the exchange.
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
	// Recent allows only a new connection, or one that was used within the last 0.8 s.
	Recent bool
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
	// Reused reports whether the connection had carried an earlier request.
	Reused bool
	// Sent reports whether the origin may have seen the request.
	Sent bool

	Resolve, Connect, TLS, Processing, Transfer, Backpressure time.Duration
}

// Exchange is one request on one connection, and the context of that request. Its methods
// are called one after the other, except Cancel.
type Exchange struct {
	context.Context
	// Limit is the time limit of the current phase. The exchange arms it for connecting,
	// sending and the response head. It cancels the exchange.
	Limit timers.Limit

	cancel   context.CancelCauseFunc
	pool     *Pool
	settings Settings
	conn     *conn
	body     io.Closer // of the response
	unused   bool      // a slot on conn is reserved, and no request has taken it
	began    bool      // the request is counted on conn

	certificateAsked atomic.Bool // the origin asked for a client certificate, and there is none

	// The hooks below run on goroutines of net/http, some after the head was read.
	mu            sync.Mutex
	phase         classify.Phase
	over          bool  // there is a head or an error; hooks that run later change nothing
	answered      bool  // the first byte of a response was received
	informational int8  // 1xx responses
	awaiting      bool  // a head over HTTP/2 is awaited; conn.payers lists this exchange
	rejected      error // why the response must not be used, or nil
	ended         bool  // End was called: nothing more is charged
	charged       int64
	head          partialHead // over HTTP/1
	peer          string      // address that was dialled last, or empty
	report        Report
	http2         bool // TLS has negotiated HTTP/2

	resolveStart, connectStart, tlsStart, started, wrote time.Time
}

// NewExchange returns an exchange that has not begun. ctx ends it, and so does its Limit,
// which uses the clock. The caller must call [Exchange.End].
func (p *Pool) NewExchange(ctx context.Context, clock *timers.Clock, settings Settings) *Exchange {
	x := &Exchange{pool: p, settings: settings, phase: classify.PhasePolicy}
	x.Context, x.cancel = context.WithCancelCause(ctx)
	x.Limit.Init(clock, x.cancel)
	return x
}

// Cancel ends the exchange for a cause, which [context.Cause] then returns. It may be called
// at any time.
func (x *Exchange) Cancel(cause error) { x.cancel(cause) }

// Connect takes an idle connection to the origin, or makes one. After an error
// [Exchange.Phase] returns the phase that failed.
func (x *Exchange) Connect(t Target) error {
	if err := context.Cause(x); err != nil {
		return err
	}
	k, alone := x.pool.keyOf(&t, x.settings.Tap != nil)
	var err error
	if !alone {
		x.conn = x.pool.take(k, t.Recent)
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
	return nil
}

// keyOf returns the key of the connections for a target, and whether none of them may be
// used.
func (p *Pool) keyOf(t *Target, tapped bool) (k key, alone bool) {
	k = key{scheme: t.URL.Scheme, host: t.URL.Host, origin: p.originOf(t.URL), tapped: tapped}
	if k.scheme == "http" && p.plainProxied() {
		k.host = ""
	}
	if o := k.origin; o != nil && !o.allows(t.Caller) {
		return k, true
	}
	return k, t.Alone
}

// originOf returns the TLS settings for a URL, or nil.
func (p *Pool) originOf(u *url.URL) *OriginTLS {
	origins := *p.origins.Load()
	if len(origins) == 0 || u.Scheme != "https" {
		return nil
	}
	return origins[address(u)]
}

// address is the host and port of a URL, as they are dialled.
func address(u *url.URL) string { return net.JoinHostPort(u.Hostname(), urls.Port(u)) }

// hooks returns the hooks that follow the request.
func (x *Exchange) hooks(c *conn) *httptrace.ClientTrace {
	if !c.http2 {
		c.current.Store(x)
		return c.hooks
	}
	return &httptrace.ClientTrace{
		WroteHeaders:         x.wroteHeaders,
		WroteRequest:         x.wroteRequest,
		GotFirstResponseByte: x.gotFirstByte,
		Got1xxResponse:       x.gotInformational,
	}
}

// RoundTrip sends the request over the connection, at most once, and reads the response
// head. The exchange is the context of the request. The body of the response is closed by
// [Exchange.End].
func (x *Exchange) RoundTrip(req *http.Request) (*http.Response, error) {
	c := x.conn
	if req.URL.Scheme != c.key.scheme || c.key.host != "" && req.URL.Host != c.key.host {
		return nil, fault.New(classify.Internal, classify.PhaseRequest, "wrong_connection")
	}
	c.open.Add(1)
	c.permit()
	x.begin(c)
	if err := context.Cause(x); err != nil { // net/http would destroy the connection, and may send
		x.finish(nil)
		return nil, err
	}
	x.unused = false
	resp, err := c.cc.RoundTrip(req.WithContext(httptrace.WithClientTrace(x, x.hooks(c))))
	x.Limit.Rest()
	if err == nil && !c.http2 && resp.ProtoMajor != 1 {
		x.body = resp.Body
		x.reject(errVersion)
		resp, err = nil, errVersion
	}
	x.finish(resp)
	if err != nil {
		return nil, err
	}
	x.body = resp.Body
	if x.rejected != nil { // net/http may return the response nevertheless
		return nil, x.rejected
	}
	switch {
	case offersBinding(resp.Header):
		x.Retire()
	case c.http2:
		x.pool.share(c, headBytes(resp.Header) > keptHeadBytes)
	default:
		c.limit = keepAlive(resp.Header)
	}
	return resp, nil
}

// begin prepares the connection for the request, and starts the limit for sending it.
func (x *Exchange) begin(c *conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.began, x.started, x.phase = true, time.Now(), classify.PhaseRequest
	if c.http2 {
		x.awaiting = true
		c.payers.add(x)
	} else {
		c.socket.turns.begin()
	}
	if c.reader != nil {
		c.reader.turns.begin()
		x.head.memory, x.head.end = x.settings.Memory, x.cancel
		c.reader.head.Store(&x.head)
		if x.settings.Tap != nil {
			c.reader.tapped.Store(x)
		}
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
		x.report.Sent = true // over HTTP/2 the response may be read before the hook has run
	}
}

// errVersion is the error for a status line of another version than HTTP/1, which net/http accepts
// (RFC 9110 §2.5).
var errVersion = fault.New(classify.Protocol, classify.PhaseProcessing, "http_version")

// HTTP2 reports whether the connection uses HTTP/2, which TLS has negotiated. It must be connected.
func (x *Exchange) HTTP2() bool { return x.conn.http2 }

// Permit allows the origin to send more over HTTP/2. It is called when bytes of a body were
// read.
func (x *Exchange) Permit() { x.conn.permit() }

// Retire makes the connection take no further request. It is closed when its requests have
// ended.
func (x *Exchange) Retire() {
	if x.conn != nil {
		x.pool.retire(x.conn)
	}
}

// End closes the body of the response and gives the connection back. It may be called more
// than once.
func (x *Exchange) End() {
	x.Limit.Stop()
	if x.body != nil {
		_ = x.body.Close()
		x.body = nil
	}
	if c := x.conn; c != nil {
		if x.wentSilent() {
			x.pool.retire(c)
		}
		if x.unused {
			c.cc.Release()
		}
		if x.began && c.open.Add(-1) == 0 {
			c.permit()
		}
		c.current.Store(nil)
		if x.settings.Tap != nil && c.reader != nil {
			c.reader.tapped.Store(nil)
		}
		if closing := x.pool.release(c, x.started); closing && c.http2 {
			x.chargeClosed(c)
		}
	}
	x.cancel(nil)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.headCameLocked()
	x.conn = nil
	x.settings.Memory.Shrink(budget.Receiving, x.charged)
	x.charged, x.ended = 0, true
}

// closedTime is how long net/http keeps an HTTP/2 connection in memory that is closed soon
// after a request on it.
const closedTime = 5 * time.Second

// chargeClosed keeps a closed HTTP/2 connection charged while it is in memory: its buffers,
// which hold what was received of a head, and more. An origin could otherwise make this side
// open and close connections faster than they are freed.
func (x *Exchange) chargeClosed(c *conn) {
	n := secureBytes + 2*min(c.socket.bytes.Load(), MaxHeadBytes)
	kept := x.settings.Memory.Another()
	x.mu.Lock()
	mine := min(n, x.charged)
	if x.settings.Memory.Pay(kept, budget.Receiving, budget.Receiving, mine) {
		x.charged -= mine
		n -= mine
	}
	x.mu.Unlock()
	n -= c.payers.pay(x, kept, n)
	_ = kept.Grow(budget.Receiving, n) // if it is refused, nothing else can be done
	time.AfterFunc(closedTime, kept.Close)
}

// wentSilent reports whether a time limit passed during which nothing was received, not even
// for another request. The limit may be the deadline of the caller.
func (x *Exchange) wentSilent() bool {
	cause := context.Cause(x)
	if x.unused || !errors.Is(cause, context.DeadlineExceeded) {
		return false
	}
	since := x.started
	if !x.wrote.IsZero() {
		since = x.wrote
	}
	if limit, ok := errors.AsType[*timers.Error](cause); ok {
		if limit.Class == classify.NoClass { // the body of a redirect, which is only read to keep the connection
			return false
		}
		if began := time.Now().Add(-limit.Limit); began.After(since) {
			since = began
		}
	}
	return !x.conn.socket.readSince(since)
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

// ClassOf returns the class of an error that ended the exchange in a phase, where
// [classify.Error] would see only a text.
func (x *Exchange) ClassOf(phase classify.Phase, err error) classify.Class {
	class := classify.Error(phase, err)
	x.mu.Lock()
	defer x.mu.Unlock()
	if class == classify.Protocol && x.brokeOffLocked(err) {
		class = classify.ConnectionReset
	}
	if class == classify.ConnectionReset && phase != classify.PhaseTransfer && x.certificateAsked.Load() && !x.answered {
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

func (x *Exchange) resolved(info httptrace.DNSDoneInfo) {
	x.leave(&x.resolveStart, &x.report.Resolve)
	if info.Err == nil {
		x.setPhase(classify.PhaseConnect)
	}
}

func (x *Exchange) connecting(address string) {
	x.enter(classify.PhaseConnect, &x.connectStart)
	x.reached(address)
}

func (x *Exchange) reached(address string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.peer = address
}

// secured ends the TLS handshake with the origin.
func (x *Exchange) secured(state tls.ConnectionState) {
	x.leave(&x.tlsStart, &x.report.TLS)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.http2 = state.NegotiatedProtocol == "h2"
	x.report.TLSVersion = tls.VersionName(state.Version)
}

// protocol returns what TLS negotiated.
func (x *Exchange) protocol() (http2 bool, version string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.http2, x.report.TLSVersion
}

func (x *Exchange) wroteHeaders() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.report.Sent = true
}

func (x *Exchange) wroteRequest(info httptrace.WroteRequestInfo) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if info.Err != nil || x.over || x.phase != classify.PhaseRequest {
		return
	}
	x.wrote, x.phase = time.Now(), classify.PhaseProcessing
	x.Limit.ArmAt(x.wrote, x.settings.HeaderTimeout, classify.ResponseTimeout)
}

func (x *Exchange) gotFirstByte() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return
	}
	if c := x.conn; !c.http2 && (!c.socket.turns.answered() || c.reader != nil && !c.reader.turns.answered()) {
		x.unaskedLocked()
	}
	x.answered = true
	x.report.Processing = time.Since(x.started)
}

func (x *Exchange) reject(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rejectLocked(err)
}

// rejectLocked ends the exchange because of what the origin sent up to the end of the head.
func (x *Exchange) rejectLocked(err error) {
	x.rejected = err
	x.cancel(err)
	x.Retire()
}

// unaskedLocked ends an exchange whose answer was received before the request was sent. On a new
// connection the origin does not speak HTTP. On a reused one the answer belongs to the
// request before, as a second answer or as the 408 of an origin that waited too long: the
// connection is broken like any that was closed while it was idle.
func (x *Exchange) unaskedLocked() {
	class := classify.Protocol
	if x.report.Reused {
		class = classify.ConnectionReset
	}
	x.rejectLocked(fault.New(class, classify.PhaseProcessing, "answer_before_request"))
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

// headCameLocked records that the exchange no longer awaits a head over HTTP/2.
func (x *Exchange) headCameLocked() {
	if x.awaiting {
		x.conn.payers.remove(x)
		x.awaiting = false
	}
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
