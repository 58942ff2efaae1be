package client

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"sync/atomic"

	pb "fetchd/gen/fetchd/v1"
)

// Response is the response of a fetch. Except for closing the body it must be used by one
// goroutine at a time.
type Response struct {
	// StatusCode is 0 if no response was read, which needs a delivery such as NONE.
	StatusCode int
	// Header has names in canonical form. A value that is not UTF-8 holds the bytes that were
	// received.
	Header http.Header
	// FinalURL is the URL of the response, after redirects.
	FinalURL string
	// ContentLength is the length in bytes that the origin announced, before decoding. It is
	// -1 if the origin announced none.
	ContentLength int64
	// AttemptCount is the number of attempts started, 1 or more. It may grow while the body is
	// read.
	AttemptCount int
	// Body is never nil. A read returns an [*Error] if the fetch fails, a [*RestartError] if
	// the body starts over, and a gRPC status if the call fails. Close cancels the call and
	// does not block; any goroutine may call it.
	Body io.ReadCloser

	outcome  *pb.FetchOutcome
	protocol string // such as "HTTP/1.1"
}

// Outcome returns how the fetch ended. It is nil until a read of the body has returned
// [io.EOF] or an [*Error]. With delivery store, digest or none it is there at once.
func (r *Response) Outcome() *pb.FetchOutcome { return r.outcome }

// RestartError reports that the body starts over at an offset that was already read. It occurs
// only if the request sets recovery: RESTART. The next read continues at Offset: a caller that
// keeps the body must first drop all bytes from there on.
type RestartError struct {
	// Offset is counted in bytes from the start of the body.
	Offset int64
	// Response is the head of the new body.
	Response *pb.HttpResponse
}

// Error implements error.
func (e *RestartError) Error() string {
	return fmt.Sprintf("the body starts over at byte %d: drop the bytes from there on and continue reading", e.Offset)
}

var errClosed = fmt.Errorf("read of a response body: %w", fs.ErrClosed)

// body is the Body of a Response.
type body struct {
	reader
	event  func(*pb.FetchEvent)
	closed atomic.Bool

	response Response
	rest     []byte // received and not read yet
	err      error  // returned after rest
}

// open reads until there is something to return.
func (b *body) open() (*Response, error) {
	for !b.begun && b.err == nil {
		_ = b.advance() // nil: nothing was read that could start over
	}
	if b.err != nil && !errors.Is(b.err, io.EOF) {
		return nil, b.err
	}
	b.response.Body = b
	return &b.response, nil
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	for {
		switch {
		case b.closed.Load():
			return 0, errClosed
		case len(b.rest) > 0:
			n := copy(p, b.rest)
			b.rest = b.rest[n:]
			return n, nil
		case b.err != nil:
			return 0, b.err
		case len(p) == 0:
			return 0, nil
		}
		if err := b.advance(); err != nil && !b.closed.Load() {
			return 0, err
		}
	}
}

// Close implements io.Closer. It returns nil.
func (b *body) Close() error {
	b.closed.Store(true)
	b.cancel()
	return nil
}

// advance handles one event. It returns a [RestartError], or nil. The end of the body is in
// b.err.
func (b *body) advance() error {
	begun, offset := b.begun, b.offset
	m, err := b.next()
	if m == nil { // a call that fails after the outcome has done its work
		b.end(err)
		return nil
	}
	switch e := m.GetEvent().(type) {
	case *pb.FetchEvent_BodyChunk:
		if !begun {
			b.fill(b.head.GetResponse())
			b.response.FinalURL = b.head.GetUrl()
		}
		b.rest = e.BodyChunk.GetData()
		return b.restarted(begun, offset, e.BodyChunk.GetOffsetBytes())
	case nil, *pb.FetchEvent_Heartbeat:
		return nil
	case *pb.FetchEvent_Outcome:
		b.finish(e.Outcome)
	case *pb.FetchEvent_ResponseStarted:
		b.response.AttemptCount = int(e.ResponseStarted.GetAttempt())
	}
	b.event(m)
	return b.restarted(begun, offset, b.offset)
}

// restarted returns a [RestartError] if the body continues at now, before its end so far.
func (b *body) restarted(begun bool, end, now int64) error {
	if begun && now < end {
		return &RestartError{now, b.head.GetResponse()}
	}
	return nil
}

// fill sets the fields that come from the head of a response.
func (b *body) fill(r *pb.HttpResponse) {
	b.response.StatusCode, b.response.ContentLength = int(r.GetStatusCode()), -1
	if r != nil && r.ContentLength != nil {
		b.response.ContentLength = r.GetContentLength()
	}
	h := make(http.Header, len(r.GetHeaders()))
	for _, f := range r.GetHeaders() {
		value := f.GetValue()
		if len(f.GetRawValue()) > 0 {
			value = string(f.GetRawValue())
		}
		h.Add(f.GetName(), value)
	}
	b.response.Header, b.response.protocol = h, r.GetProtocol()
}

func (b *body) finish(o *pb.FetchOutcome) {
	r := &b.response
	r.outcome, r.FinalURL, r.AttemptCount = o, o.GetFinalUrl(), int(o.GetAttemptCount())
	if !b.begun {
		b.fill(o.GetResponse())
		b.rest = o.GetInlineBody()
	}
	if o.GetKind() == pb.OutcomeKind_OUTCOME_KIND_FAILED || o.GetError() != nil {
		b.end(&Error{o})
		return
	}
	b.end(io.EOF)
}

// end sets the error that follows the body, and ends the call.
func (b *body) end(err error) {
	if b.closed.Load() {
		err = errClosed
	}
	b.err = err
	b.cancel()
}
