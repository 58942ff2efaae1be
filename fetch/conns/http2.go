package conns

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"time"

	"fetchd/classify"
	"fetchd/fetch/timers"
	"fetchd/internal/budget"
)

// begin2Locked counts the request, and charges the exchange for the head that it awaits.
func (x *Exchange) begin2Locked(c *conn) {
	c.open.Add(1)
	c.permit()
	x.awaiting = true
	c.payers.add(x)
}

// send2 sends a request over HTTP/2, and reads the head.
func (x *Exchange) send2(req *http.Request) (*http.Response, error) {
	c := x.conn
	resp, err := c.h2.RoundTrip(req.WithContext(httptrace.WithClientTrace(x.Context(), &httptrace.ClientTrace{
		WroteHeaders: func() { x.wroteHeaders(c) },
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				x.sent()
			}
		},
		GotFirstResponseByte: x.firstByte,
		Got1xxResponse:       x.gotInformational,
	})))
	if err != nil {
		return nil, err
	}
	x.body = body{x: x, from: resp.Body}
	resp.Body = &x.body
	return resp, nil
}

// wroteHeaders records that the origin may see the request from now on. HTTP/2 calls it under its write lock,
// right after it has tried to write the headers.
func (x *Exchange) wroteHeaders(c *conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.report.Sent, x.stream = true, c.frames.takeOpened()
}

// explain returns the error with which this side has closed a connection of HTTP/2 because of what the
// origin sent, or else err. What uses the connection then can fail with any error of a closed one.
func (x *Exchange) explain(err error) error {
	if x.conn.h2 != nil && errors.Is(x.conn.socket.readError(), errUnasked) {
		return errUnasked
	}
	return err
}

// headCameLocked records that the exchange no longer awaits a head over HTTP/2.
func (x *Exchange) headCameLocked() {
	if x.awaiting {
		x.conn.payers.remove(x)
		x.awaiting = false
	}
}

// end2 gives a connection of HTTP/2 back.
func (x *Exchange) end2(c *conn) {
	if x.body.from != nil {
		_ = x.body.from.Close()
		x.body.from = nil
	}
	if x.wentSilent() {
		x.pool.retire(c)
	}
	if x.unused {
		c.h2.Release()
	}
	if x.began && c.open.Add(-1) == 0 {
		c.permit()
	}
	if x.pool.release(c, x.started) {
		x.chargeClosed(c)
	}
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

// wentSilent reports whether a time limit passed before the request was written, or during which nothing
// was received, not even for another request. The limit may be the deadline of the caller.
func (x *Exchange) wentSilent() bool {
	cause := x.Cause()
	if x.unused || !errors.Is(cause, context.DeadlineExceeded) {
		return false
	}
	since := x.started
	switch {
	case !x.wrote.IsZero():
		since = x.wrote
	case x.report.Protocol == "": // there is no response, and the origin may have closed the window of the connection
		return true
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
