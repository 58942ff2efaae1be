package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"sync/atomic"

	"google.golang.org/grpc"

	pb "fetchd/gen/fetchd/v1"
)

// Response is a fetch whose body is being read. All but closing the body is for one
// goroutine at a time.
type Response struct {
	// StatusCode is the status of the response. 0 where none was read, which only
	// delivery NONE and the like can bring about.
	StatusCode int
	// Header is the response's, its names in canonical form. Values that are not
	// UTF-8 have the bytes that were received.
	Header http.Header
	// FinalURL is the URL of the response, redirects followed. Empty until the end of
	// the body where the request asks for an event_level below ALL.
	FinalURL string
	// ContentLength is that which the origin announced, before decoding. -1 where it
	// announced none.
	ContentLength int64
	// Attempts is the number of attempts begun, 1 or more. It grows while the body is
	// read, if that has to be continued. 0 until the end of the body at event level
	// OUTCOME.
	Attempts int
	// Body is never nil. A read fails with an [*Error] where the fetch does, with a
	// [*RestartError] where the body begins again, and with a gRPC status where the
	// call ends. Closing it ends the call and waits for nothing; it may be closed
	// from another goroutine.
	Body io.ReadCloser

	outcome *pb.FetchOutcome
}

// Outcome is how the fetch ended. It is nil until the body has been read to its
// end, which is [io.EOF] or an [*Error].
func (r *Response) Outcome() *pb.FetchOutcome { return r.outcome }

// RestartError says that the body begins again, of which more had been read. It
// comes only where the request says recovery: RESTART. The next read continues at
// Offset: a caller that keeps what it reads first drops all that lies beyond.
type RestartError struct {
	// Offset is where the body goes on, counted in bytes from its beginning.
	Offset int64
	// Response is the head that the new body belongs to.
	Response *pb.HttpResponse
}

// Error tells the offset.
func (e *RestartError) Error() string {
	return fmt.Sprintf("the body begins again at byte %d: drop what was read beyond, and read on", e.Offset)
}

// errClosed is what a read after Close says.
var errClosed = fmt.Errorf("read of a response body: %w", fs.ErrClosed)

// body is a call of Fetch, read message by message.
type body struct {
	ctx    context.Context
	stream grpc.ServerStreamingClient[pb.FetchResponse]
	cancel context.CancelFunc
	event  func(*pb.FetchResponse)
	closed atomic.Bool

	response Response
	all      bool                // every event is told, redirects too
	begun    bool                // a byte has come
	url      string              // of the request under way, as far as it is told
	head     *pb.ResponseStarted // the last
	read     int64               // offset of the byte that the caller reads next
	rest     []byte              // from there, received
	err      error               // at the end of rest; it stays
}

// open reads until there is something to return.
func (b *body) open() (*Response, error) {
	for !b.begun && b.err == nil {
		_ = b.advance() // nil: nothing has been read that could be dropped
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
			b.rest, b.read = b.rest[n:], b.read+int64(n)
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

// Close implements io.Closer. Its error is nil.
func (b *body) Close() error {
	b.closed.Store(true)
	b.cancel()
	return nil
}

// advance takes in one message. Its error is a [RestartError], after which reading
// goes on; what ends the body is in b.err.
func (b *body) advance() error {
	m, err := b.stream.Recv()
	switch {
	case errors.Is(err, io.EOF):
		b.end(fmt.Errorf("%w: the call ended without an outcome", ErrContract))
		return nil
	case err != nil:
		b.end(statusError(b.ctx, err))
		return nil
	}
	switch e := m.GetEvent().(type) {
	case *pb.FetchResponse_BodyChunk:
		b.chunk(e.BodyChunk)
		return nil
	case nil, *pb.FetchResponse_Heartbeat:
		return nil
	case *pb.FetchResponse_Outcome:
		b.finish(e.Outcome)
		b.event(m)
		return nil
	case *pb.FetchResponse_AttemptStarted:
		b.url = e.AttemptStarted.GetUrl()
		b.response.Attempts = int(e.AttemptStarted.GetAttempt())
	case *pb.FetchResponse_RedirectFollowed:
		b.url = e.RedirectFollowed.GetHop().GetLocationUrl()
	case *pb.FetchResponse_ResponseStarted:
		b.event(m)
		return b.started(e.ResponseStarted)
	}
	b.event(m)
	return nil
}

// started notes a head, and whether its body begins before what was read. All that
// was received has been: nothing is taken in before.
func (b *body) started(head *pb.ResponseStarted) error {
	b.head = head
	offset := head.GetBodyOffsetBytes()
	if offset < b.read && b.begun {
		b.read = offset
		return &RestartError{offset, head.GetResponse()}
	}
	if !b.begun {
		b.read = offset // of a resume point
	}
	return nil
}

// chunk takes in a piece of the body. Its place must be the one where the last
// ended.
func (b *body) chunk(c *pb.BodyChunk) {
	switch {
	case b.head == nil:
		b.end(fmt.Errorf("%w: a body came before its head", ErrContract))
		return
	case c.GetOffsetBytes() != b.read:
		b.end(fmt.Errorf("%w: the body goes on at byte %d, want %d", ErrContract, c.GetOffsetBytes(), b.read))
		return
	}
	if !b.begun {
		b.begun = true
		b.fill(b.head.GetResponse())
		if b.all {
			b.response.FinalURL = b.url
		}
	}
	b.rest = c.GetData()
}

// fill tells the head of a response.
func (b *body) fill(r *pb.HttpResponse) {
	b.response.StatusCode, b.response.ContentLength = int(r.GetStatusCode()), -1
	if r != nil && r.ContentLength != nil {
		b.response.ContentLength = r.GetContentLength()
	}
	b.response.Header = header(r)
}

// finish notes the outcome, which nothing may follow.
func (b *body) finish(o *pb.FetchOutcome) {
	if m, err := b.stream.Recv(); err == nil {
		b.end(fmt.Errorf("%w: an event %T came after the outcome", ErrContract, m.GetEvent()))
		return
	}
	r := &b.response
	r.outcome, r.FinalURL, r.Attempts = o, o.GetFinalUrl(), int(o.GetAttempts())
	if !b.begun {
		b.fill(o.GetResponse())
		b.rest = bytes.Clone(o.GetInlineBody())
	}
	if o.GetKind() == pb.OutcomeKind_OUTCOME_KIND_FAILED || o.GetError() != nil {
		b.end(&Error{o})
		return
	}
	b.end(io.EOF)
}

// end notes what the body ends with, and lets go of the call.
func (b *body) end(err error) {
	if b.closed.Load() {
		err = errClosed
	}
	b.err = err
	b.cancel()
}

// header is a response's as net/http has it.
func header(r *pb.HttpResponse) http.Header {
	h := make(http.Header, len(r.GetHeaders()))
	for _, f := range r.GetHeaders() {
		value := f.GetValue()
		if len(f.GetRawValue()) > 0 {
			value = string(f.GetRawValue())
		}
		h.Add(f.GetName(), value)
	}
	return h
}
