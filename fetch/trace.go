package fetch

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"reflect"
	"sync"
	"time"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/fetch/timers"
)

// handshake runs a TLS handshake and tells the trace of ctx about it.
func handshake(ctx context.Context, conn *tls.Conn) error {
	trace := httptrace.ContextClientTrace(ctx)
	if trace != nil && trace.TLSHandshakeStart != nil {
		trace.TLSHandshakeStart()
	}
	err := conn.HandshakeContext(ctx)
	if trace != nil && trace.TLSHandshakeDone != nil {
		trace.TLSHandshakeDone(conn.ConnectionState(), err)
	}
	return err
}

// trace watches one exchange through httptrace: which phase it is in, how long
// each took, how often the transport sent it. Its hooks run in goroutines of
// the transport, some after the exchange is over.
type trace struct {
	watch  *timers.Limit
	limits *Request
	end    context.CancelCauseFunc // ends the exchange

	mu sync.Mutex
	// None counts further than classify.MaxExchanges or so, and ten thousand may wait.
	left          int16 // exchanges that the fetch may still make
	conns         int16
	informational int16
	sent          int16
	ready         bool // a connection was got, and no other is being waited for
	over          bool // the head is read: no hook sets a limit any more
	written       bool // on the connection that was last got
	answered      bool // with a first byte
	phase         classify.Phase
	refused       bool // the connection is spent; nothing is written to it
	conn          net.Conn
	awaits        *observedConn // the HTTP/2 connection on which a head may be arriving, or nil
	held          *observedConn // until release, or nil
	head          *partialHead  // arriving over HTTP/1, or nil
	peer          string        // address that was dialled last, or empty
	dialled       int64         // bytes charged for a new connection
	gone          bool          // the exchange has ended: nothing is charged to it
	exchange      Exchange
	client        httptrace.ClientTrace // its hooks

	resolve, connect, tls, got time.Time
}

// hooks returns the trace of a request as httptrace takes it. shakes reports whether
// net/http does the TLS handshake with the origin itself, through a proxy.
func (t *trace) hooks(shakes bool) *httptrace.ClientTrace {
	t.client = httptrace.ClientTrace{
		GetConn:              t.wait,
		GotConn:              t.gotConn,
		WroteHeaders:         t.wroteHeaders,
		WroteRequest:         t.wroteRequest,
		GotFirstResponseByte: t.gotFirstByte,
		Got1xxResponse:       t.gotInformational,
	}
	if shakes {
		t.client.TLSHandshakeStart, t.client.TLSHandshakeDone = t.handshakes, t.shookHands
	}
	return &t.client
}

// dialHooks returns what a dial tells of, beside hooks: most requests dial nothing.
func (t *trace) dialHooks() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		DNSStart: func(httptrace.DNSStartInfo) { t.enter(classify.PhaseResolve, &t.resolve) },
		DNSDone:  t.resolved,
		ConnectStart: func(_, address string) {
			t.enter(classify.PhaseConnect, &t.connect)
			t.dials(address)
		},
		ConnectDone:       func(string, string, error) { t.leave(&t.connect, &t.exchange.Connect) },
		TLSHandshakeStart: t.handshakes,
		TLSHandshakeDone:  t.shookHands,
	}
}

// dials notes an address that is dialled.
func (t *trace) dials(address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over && !t.ready {
		t.peer = address
	}
}

// lastPeer is the address that was dialled last; empty where none was.
func (t *trace) lastPeer() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peer
}

func (t *trace) handshakes() { t.enter(classify.PhaseTLS, &t.tls) }

func (t *trace) shookHands(tls.ConnectionState, error) { t.leave(&t.tls, &t.exchange.TLS) }

// wait begins the search for a connection: the first, or another because the
// transport sends the request again.
func (t *trace) wait(string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	t.ready, t.phase = false, classify.PhaseConnect
	if t.conns >= maxConnectionsPerHop || t.conns >= t.left {
		t.over = true // what it does from here on reaches nobody
		// Before it dials: golang/go#52459.
		t.end(fault.New(classify.ConnectionReset, classify.PhaseConnect, "connection_limit"))
		return
	}
	t.watch.Arm(t.limits.ConnectTimeout, classify.ConnectTimeout)
}

// enter begins a phase of connecting. Where a pooled connection came first the
// dial goes on for others, and is none of ours.
func (t *trace) enter(p classify.Phase, since *time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || t.ready || !since.IsZero() {
		return
	}
	*since = time.Now()
	t.phase = p
}

func (t *trace) leave(since *time.Time, took *time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || t.ready || since.IsZero() {
		return
	}
	*took = time.Since(*since)
}

// resolved ends the lookup. Where it failed, or was given up, the exchange ends
// in that phase.
func (t *trace) resolved(info httptrace.DNSDoneInfo) {
	t.leave(&t.resolve, &t.exchange.Resolve)
	t.mu.Lock()
	defer t.mu.Unlock()
	if info.Err == nil && t.phase == classify.PhaseResolve {
		t.phase = classify.PhaseConnect
	}
}

func (t *trace) gotConn(info httptrace.GotConnInfo) {
	seen := observed(info.Conn)
	if seen != nil && seen.keep != nil {
		seen.keep() // from here on net/http ends it with its exchange, or keeps it for others
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.hold(seen)
	}
	if seen != nil && (seen.spent.Load() || info.Reused && seen.isOutdated()) {
		t.refuse(seen, isHTTP2(info.Conn))
	}
	if t.over {
		return
	}
	t.ready, t.phase, t.got, t.conn = true, classify.PhaseRequest, time.Now(), info.Conn
	t.exchange.Reused = info.Reused
	t.exchange.RemoteAddress = remoteAddress(seen, info.Conn)
	t.exchange.TLSVersion = tlsVersion(seen, info.Conn)
	t.conns++
	t.written = false
	watchHead(info.Conn, t)
	t.awaitHead(seen, info.Conn)
	t.watch.ArmAt(t.got, t.limits.HeaderTimeout, classify.WriteTimeout)
}

// awaitHead records that the fetch awaits a head on an HTTP/2 connection.
func (t *trace) awaitHead(seen *observedConn, conn net.Conn) {
	t.headCame() // of a connection on which the request was sent before
	if seen != nil && isHTTP2(conn) {
		t.awaits = seen
		seen.heads.add(t)
	}
}

// headCame records that the fetch no longer awaits a head.
func (t *trace) headCame() {
	if t.awaits != nil {
		t.awaits.heads.remove(t)
		t.awaits = nil
	}
}

// tlsVersion is empty without TLS. Through a proxy net/http shakes hands.
func tlsVersion(seen *observedConn, conn net.Conn) string {
	if seen != nil && seen.tls != "" {
		return seen.tls
	}
	if secure, ok := conn.(*tls.Conn); ok {
		return tls.VersionName(secure.ConnectionState().Version)
	}
	return ""
}

// remoteAddress is where a connection leads to. Where the proxy stands is no caller's
// business.
func remoteAddress(seen *observedConn, conn net.Conn) string {
	switch {
	case seen != nil:
		return seen.remote
	case conn == nil || conn.RemoteAddr() == nil:
		return ""
	}
	return conn.RemoteAddr().String()
}

func (t *trace) wroteHeaders() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent++
	t.written = true
}

func (t *trace) wroteRequest(info httptrace.WroteRequestInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if info.Err != nil || t.over || t.phase != classify.PhaseRequest {
		return
	}
	t.phase = classify.PhaseProcessing
	t.watch.Arm(t.limits.HeaderTimeout, classify.ResponseTimeout)
}

func (t *trace) gotFirstByte() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.written && t.conn != nil && !isHTTP2(t.conn) {
		t.broken("answer_before_request") // over HTTP/1 it answers somebody else's request
	}
	t.answered = true
	t.exchange.Processing = time.Since(t.got)
}

// broken ends an exchange whose origin does what HTTP does not allow.
func (t *trace) broken(reason string) {
	t.end(fault.New(classify.Protocol, classify.PhaseProcessing, reason))
}

// maxInformational is how many 1xx responses may come before the one that counts.
const maxInformational = 16

var errInformational = fault.New(classify.Protocol, classify.PhaseProcessing, "too_many_informational_responses")

// gotInformational counts the 1xx responses. Each has the limit of a head.
func (t *trace) gotInformational(_ int, h textproto.MIMEHeader) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spend(http.Header(h))
	if fields(h) > maxHeaderFields {
		t.broken(errFields.Reason)
		return errFields
	}
	if t.informational++; t.informational <= maxInformational {
		return nil
	}
	t.broken(errInformational.Reason)
	return errInformational
}

// result ends the trace with the exchange's head and writes what is known to e.
func (t *trace) result(e *Exchange, resp *http.Response) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.headCame()
	t.head.drop() // if it is not complete
	*e = t.exchange
	e.Requests = int(t.sent)
	if !t.written && t.conn != nil && (resp != nil || isHTTP2(t.conn)) {
		e.Requests++ // over HTTP/2 a request can be answered before the hook that tells of it
	}
	e.Resends = max(e.Requests-1, 0)
	if resp != nil {
		e.Protocol = resp.Proto
		t.spend(resp.Header)
	}
}

func isHTTP2(conn net.Conn) bool {
	secure, ok := conn.(*tls.Conn)
	return ok && secure.ConnectionState().NegotiatedProtocol == "h2"
}

// current returns the phase the exchange is in.
func (t *trace) current() classify.Phase {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.phase
}

// brokeOff reports whether err, which has no type that says so, means that the
// connection ended: it was read to its end; or it was never written to, so that
// what failed cannot be what came over it; or nothing of a response was read, and
// the error is no more than a text, as net/http's for a GOAWAY before the first
// stream was taken.
func (t *trace) brokeOff(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.conn != nil && (t.sent == 0 || readError(t.conn) != nil || !t.answered && isText(err))
}

// isText tells an error that errors.New or fmt.Errorf made, and nothing else.
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
