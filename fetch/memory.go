package fetch

import (
	"net/http"
	"time"
	"unicode/utf8"

	"fetchd/classify"
	"fetchd/fetch/conns"
	"fetchd/internal/budget"
)

// hopBytes is the memory of each hop after the first without its URLs: its timings and its
// request with the header, which the loop check needs.
const hopBytes = 4 << 10

// tlsDetailsBytes is the memory of [conns.TLSDetails], also as a message. That of the first hop is part
// of the fixed charge.
const tlsDetailsBytes = 2 << 10

// memory charges the fetch of an attempt for what it cannot do without. It waits while other fetches of the caller
// have hold-backs that leave nothing. They can always end: a hold-back pays for the messages with its bytes.
type memory struct{ a *attempt }

// Grow implements [coding.Memory].
func (m memory) Grow(k budget.Kind, n int64) bool {
	charge := m.a.run.req.Memory
	return charge.Grow(k, n) || m.await(func() bool { return charge.Grow(k, n) })
}

// Shrink implements [coding.Memory].
func (m memory) Shrink(k budget.Kind, n int64) { m.a.run.req.Memory.Shrink(k, n) }

// await repeats a charge that was refused. The attempt's time limit is paused meanwhile.
func (m memory) await(charge func() bool) bool {
	began := time.Now()
	left := m.a.limit.Pause(began)
	defer m.a.resume(began, left)
	return m.a.run.req.Memory.Await(m.a.run.waitContext, charge)
}

// headBytes is an upper bound for the memory of a head and for its size as a message. A
// value that is not UTF-8 is sent twice: as its bytes, and as text with up to three
// bytes for each invalid one.
func headBytes(h http.Header) (n int64) {
	for name, values := range h {
		for _, value := range values {
			n += int64(len(name)+len(value)) + conns.HeaderLineBytes
			if !utf8.ValidString(value) {
				n += 3 * int64(len(value))
			}
		}
	}
	return n
}

// chargeHead charges the fetch for the head of a response. If it returns false, it has recorded
// why.
func (a *attempt) chargeHead(resp *http.Response) bool {
	if conns.Fields(resp.Header) > conns.MaxHeaderFields {
		a.fail(conns.ErrFields.Class, conns.ErrFields.Phase, conns.ErrFields.Reason)
		return false
	}
	n := headBytes(resp.Header)
	if !(memory{a}).Grow(budget.Head, n) {
		a.outOfMemory(classify.PhaseProcessing)
		return false
	}
	a.headCharge = n
	return true
}

// releaseHead releases the charge of chargeHead.
func (a *attempt) releaseHead() {
	a.run.req.Memory.Shrink(budget.Head, a.headCharge)
	a.headCharge = 0
}

// chargeHop charges the fetch for a hop after the first.
func (a *attempt) chargeHop(next *hopRequest) bool {
	n := hopBytes + 4*int64(len(next.urlText())) // parsed, as text, as Location, and in the events
	if a.run.req.TLSDetails {
		n += tlsDetailsBytes
	}
	if !(memory{a}).Grow(budget.Head, n) {
		a.outOfMemory(classify.PhasePolicy)
		return false
	}
	a.hopsCharge += n
	return true
}

// keepCharges moves the attempt's charges to the run, and releases those that they replace.
func (r *run) keepCharges(a *attempt) {
	m := r.req.Memory
	if a.response != nil {
		m.Shrink(budget.Head, r.charges.lastHead)
		m.Shrink(budget.Body, r.charges.errorBody)
		r.charges.lastHead, r.charges.errorBody = 0, int64(len(a.errorBody))
	}
	switch {
	case a.response == nil || a.head.response != a.response: // the head is not kept: there is none, or callers see the one before it
		a.releaseHead()
	case r.delivered != nil && r.delivered.head.response == a.response:
		m.Shrink(budget.Head, r.charges.bodyHead)
		r.charges.bodyHead = a.headCharge
	default:
		r.charges.lastHead = a.headCharge
	}
	m.Shrink(budget.Head, r.charges.hops)
	r.charges.hops = a.hopsCharge
}

// chargeWindow charges the fetch for the body that HTTP/2 receives ahead of its reader.
// It returns the charge, and reports whether it was granted.
func (a *attempt) chargeWindow() (n int64, ok bool) {
	if a.exchange.HTTP2() {
		n = conns.WindowBytes
		if known := a.resp.ContentLength; known >= 0 {
			n = min(n, known)
		}
	}
	if !(memory{a}).Grow(budget.Receiving, n) {
		a.outOfMemory(classify.PhaseTransfer)
		return 0, false
	}
	return n, true
}
