package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"fetchd/classify"
	"fetchd/fetch/conns"
	"fetchd/fetch/fault"
	"fetchd/internal/budget"
)

// recordBytes is the memory of a Record, with its copies in the outcome.
const recordBytes = 1 << 10

// tap is the [conns.Tap] of a recording. Its errors know their class.
type tap struct{ recording Recording }

func (t tap) Sent(p []byte) error     { return tapError(t.recording.Sent(p)) }
func (t tap) Received(p []byte) error { return tapError(t.recording.Received(p)) }

func tapError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, budget.ErrRefused):
		return fault.OutOfMemory
	}
	_, reason := storeText(err)
	return fmt.Errorf("%w: %w", fault.New(classify.StoreFailure, classify.NoPhase, reason), err)
}

// recordedBody is a response body that is recorded. It knows how far it was read.
type recordedBody struct {
	io.ReadCloser
	n   int64
	err error // that ended it, such as io.EOF
}

// Read implements io.Reader.
func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	if err != nil {
		b.err = err
	}
	return n, err
}

// recordedTime limits how long the body of a redirect or of a failed response is read for the
// record.
const recordedTime = 10 * time.Second

// beginRecording starts the recording of the next exchange, if the fetch is recorded.
func (a *attempt) beginRecording(s *conns.Settings) {
	a.recorded = nil
	if recorder := a.run.req.Recorder; recorder != nil {
		a.run.recording = recorder.Begin(a.run.req.Memory)
		s.Tap = tap{a.run.recording}
	}
}

// watchBody makes the response remember how far its body was read, if the fetch is recorded.
func (a *attempt) watchBody(resp *http.Response) {
	if a.run.recording != nil {
		a.recorded = &recordedBody{ReadCloser: resp.Body}
		resp.Body = a.recorded
	}
}

// endExchange ends the exchange, and writes its records. It reports whether they are written.
func (a *attempt) endExchange(resp *http.Response) bool {
	recording := a.run.recording
	if recording == nil {
		a.exchange.End()
		return true
	}
	began := time.Now()
	a.readRest(resp)
	a.hops[len(a.hops)-1].Exchange.Transfer += time.Since(began)
	e := a.recordedExchange(resp)
	a.exchange.End()
	a.run.recording = nil
	if !a.hops[len(a.hops)-1].Exchange.Sent || a.exchange.Surplus() { // the response may be the answer to another request
		recording.Discard()
		return true
	}
	began = time.Now()
	left := a.limit.Pause(began)
	records, err := recording.Commit(e)
	a.resume(began, left)
	return a.keepRecords(records, err)
}

// drain reads a short body, but hardly waits for it. One that is recorded is read as far as it is
// recorded.
func (a *attempt) drain(resp *http.Response) {
	const drainBytes, drainTime = 2 << 10, 250 * time.Millisecond
	if a.recorded != nil {
		a.readRest(resp)
	} else if resp.ContentLength > 0 && resp.ContentLength <= drainBytes {
		began := time.Now()
		a.exchange.Limit.ArmAt(began, drainTime, classify.NoClass)
		_, _ = io.CopyN(io.Discard, resp.Body, resp.ContentLength+1)
		a.hops[len(a.hops)-1].Exchange.Transfer = time.Since(began)
	}
}

// readRest reads what is left of a body, so that its record is whole. Errors do not change the
// outcome.
func (a *attempt) readRest(resp *http.Response) {
	b := a.recorded
	if resp == nil || b.err != nil || resp.StatusCode < 200 || a.tooLong() || unframed(a.hop.method, resp.StatusCode) {
		return
	}
	var end time.Time // zero: the limit of the attempt is enough
	if resp.StatusCode > 299 {
		end = time.Now().Add(recordedTime)
	}
	room := a.run.req.bodyLimit() + codingOverhead
	buf := make([]byte, 4<<10) // part of the 40 KiB of each fetch
	for b.err == nil && b.n < room {
		now := time.Now()
		limit := a.run.req.IdleTimeout
		if left := end.Sub(now); !end.IsZero() && (limit == 0 || left < limit) {
			limit = max(left, 1)
		}
		a.exchange.Limit.ArmAt(now, limit, classify.NoClass)
		_, _ = b.Read(buf)
		a.exchange.Limit.Rest()
	}
}

// unframed reports whether a response ends with its head (RFC 9112 section 6.3). A 205 has no content,
// but an origin may send some.
func unframed(method string, status int) bool {
	return method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified
}

// tooLong reports whether the body exceeds its limit.
func (a *attempt) tooLong() bool { return a.body.Truncated || a.faults.Has(classify.BodyTooLarge) }

// recordedExchange describes the exchange for its records. resp is nil if no head was read.
func (a *attempt) recordedExchange(resp *http.Response) *RecordedExchange {
	hop := &a.hops[len(a.hops)-1]
	e := &RecordedExchange{URL: hop.URL, Method: hop.Method, Start: a.run.start.Add(hop.Start), ContentLength: -1,
		RemoteAddress: hop.Exchange.RemoteAddress, Protocol: hop.Exchange.Protocol, TLSVersion: hop.Exchange.TLSVersion,
		RequestLength: int64(len(a.hop.body)), Truncated: a.truncation(), RedactResponse: a.exchange.ProxyFields()}
	for _, f := range a.added {
		e.Redact = append(e.Redact, f.Name)
	}
	if resp != nil {
		e.ContentLength, e.Chunked = resp.ContentLength, slices.Contains(resp.TransferEncoding, "chunked")
		e.Bodyless = unframed(hop.Method, resp.StatusCode)
		if e.Bodyless {
			e.Truncated = Whole
		}
	}
	return e
}

// truncation returns why the exchange's response was not read to its end.
func (a *attempt) truncation() Truncation {
	b := a.recorded
	switch cause := a.exchange.Cause(); {
	case b != nil && errors.Is(b.err, io.EOF):
		return Whole
	case a.tooLong() || b != nil && b.err == nil && b.n >= a.run.req.bodyLimit():
		return TooLong
	case cause != nil:
		if _, limit := errors.AsType[*TimeoutError](cause); limit || errors.Is(cause, context.DeadlineExceeded) {
			return TookTooLong
		}
		return Stopped
	case b != nil && b.err == nil:
		return Stopped
	}
	return Disconnected
}

// keepRecords adds records to the outcome. It reports whether there was no error.
func (a *attempt) keepRecords(records []Record, err error) bool {
	if errors.Is(err, budget.ErrRefused) {
		a.outOfMemory(classify.NoPhase)
		return false
	}
	if err != nil {
		a.noteError(classify.StoreFailure, classify.NoPhase, err, nil)
		_, reason := storeText(err)
		a.fail(classify.StoreFailure, classify.NoPhase, reason)
		return false
	}
	if !(memory{a}).Grow(budget.Head, int64(len(records))*recordBytes) {
		a.outOfMemory(classify.NoPhase)
		return false
	}
	for i := range records {
		records[i].Attempt, records[i].Hop = a.number, len(a.hops)
	}
	a.run.records = append(a.run.records, records...)
	return true
}
