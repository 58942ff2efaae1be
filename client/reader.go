package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
)

// ErrContract is matched by errors that say how a service broke its contract: an event after
// the outcome, a call without an outcome, body bytes that are missing.
var ErrContract = errors.New("the service broke its contract")

// Events runs a fetch and yields every event of the stream as it arrives, pieces of the body
// and heartbeats included. The request is sent as it is.
//
// The sequence ends with the outcome, after the call has ended in order, or with a nil event
// and an error: a gRPC status, or an error that matches [ErrContract]. A fetch that failed is
// an outcome here, not an error. Leaving the loop cancels the fetch.
//
// The offsets of the body fit together: each [pb.BodyChunk] continues the body, unless a
// [pb.ResponseStarted] before it has gone back to a lower offset. Drop the bytes from that
// offset on when the next chunk arrives, or the outcome of a success; a response that fails
// has no chunks.
func (c *Client) Events(ctx context.Context, request *pb.FetchRequest) iter.Seq2[*pb.FetchEvent, error] {
	return func(yield func(*pb.FetchEvent, error) bool) {
		r, err := c.fetch(ctx, request)
		if err != nil {
			yield(nil, err)
			return
		}
		defer r.cancel()
		for {
			m, err := r.next()
			if err != nil {
				m = nil
			}
			if !yield(m, err) || err != nil || m.GetOutcome() != nil {
				return
			}
		}
	}
}

// reader reads the events of one Fetch and checks them.
type reader struct {
	ctx    context.Context
	cancel context.CancelFunc
	stream grpc.ServerStreamingClient[pb.FetchResponse]
	events []*pb.FetchEvent // received, and not returned yet
	once   string           // the method, if the request must not be sent twice
	// reopen sends the request again. It is nil once the service has answered.
	reopen   func() (grpc.ServerStreamingClient[pb.FetchResponse], error)
	answered bool
	position
}

func (c *Client) fetch(ctx context.Context, request *pb.FetchRequest) (reader, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.rpc.Fetch(ctx, request)
	if err != nil {
		cancel()
		return reader{}, statusError(ctx, err)
	}
	reopen := func() (grpc.ServerStreamingClient[pb.FetchResponse], error) { return c.rpc.Fetch(ctx, request) }
	return reader{ctx: ctx, cancel: cancel, stream: stream, reopen: reopen, once: onceOf(request), position: position{request: request}}, nil
}

// next returns the next event. Nothing follows an outcome or an error. If the call fails after
// the outcome, next returns both.
func (r *reader) next() (*pb.FetchEvent, error) {
	for len(r.events) == 0 {
		m, err := r.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil, lost(r.once, fmt.Errorf("%w: the call ended without an outcome", ErrContract))
		case err != nil && !r.answered && waitForQuota(r.ctx, err):
			if r.stream, err = r.reopen(); err != nil {
				return nil, statusError(r.ctx, err)
			}
			continue
		case err != nil && !r.answered && isRefusal(err) && r.ctx.Err() == nil:
			return nil, err
		case err != nil && !r.answered && isRefusal(err): // while it waited
			return nil, statusError(r.ctx, status.FromContextError(r.ctx.Err()).Err())
		case err != nil:
			return nil, lost(r.once, statusError(r.ctx, err))
		}
		r.events, r.answered, r.reopen = m.GetEvents(), true, nil
	}
	m := r.events[0]
	r.events = r.events[1:]
	if err := r.take(m); err != nil {
		return nil, err
	}
	if m.GetOutcome() != nil {
		if len(r.events) > 0 {
			return nil, fmt.Errorf("%w: an event %T came after the outcome", ErrContract, r.events[0].GetEvent())
		}
		switch after, err := r.stream.Recv(); {
		case err == nil:
			return nil, fmt.Errorf("%w: a message with %d events came after the outcome", ErrContract, len(after.GetEvents()))
		case !errors.Is(err, io.EOF):
			return m, statusError(r.ctx, err)
		}
	}
	return m, nil
}

// position is the position in the body of one fetch. It checks that the pieces fit together.
type position struct {
	request *pb.FetchRequest

	head  *pb.ResponseStarted // the last one
	begun bool                // a body byte has arrived

	offset   int64 // of the end of the body so far
	expected int64 // of the next chunk: lower than offset after the head of a new body
}

// take checks the next event of the fetch. An error matches [ErrContract].
func (p *position) take(m *pb.FetchEvent) error {
	switch e := m.GetEvent().(type) {
	case *pb.FetchEvent_ResponseStarted:
		p.head = e.ResponseStarted
		if err := checkResponse("a response", p.head.GetResponse()); err != nil {
			return err
		}
		if at := p.head.GetBodyOffsetBytes(); at < 0 {
			return fmt.Errorf("%w: a body begins at byte %d", ErrContract, at)
		}
		if !p.begun {
			p.offset = p.head.GetBodyOffsetBytes()
		}
		// An attempt that fails before it delivers a byte takes nothing back: a later one may
		// continue the body where it is.
		p.expected = min(p.head.GetBodyOffsetBytes(), p.offset)
	case *pb.FetchEvent_BodyChunk:
		switch {
		case p.head == nil:
			return fmt.Errorf("%w: a body came before its head", ErrContract)
		case e.BodyChunk.GetOffsetBytes() != p.expected:
			return fmt.Errorf("%w: the body continues at byte %d, want %d", ErrContract, e.BodyChunk.GetOffsetBytes(), p.expected)
		case !p.begun && p.expected > p.resumePoint():
			return fmt.Errorf("%w: a body begins at byte %d, want byte %d at most", ErrContract, p.expected, p.resumePoint())
		case p.expected > math.MaxInt64-int64(len(e.BodyChunk.GetData())):
			return fmt.Errorf("%w: the body has more bytes than can be counted", ErrContract)
		}
		p.begun = true
		p.expected += int64(len(e.BodyChunk.GetData()))
		p.offset = p.expected
	case *pb.FetchEvent_Outcome:
		if err := checkOutcome(e.Outcome); err != nil || e.Outcome.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
			return err
		}
		p.offset = p.expected // lower if the new body is empty
		return p.checkSize(e.Outcome)
	}
	return nil
}

// resumePoint returns where the caller's part of the body ends.
func (p *position) resumePoint() int64 {
	policy := p.request.GetBodyPolicy()
	return max(policy.GetStream().GetResumePoint().GetOffsetBytes(), policy.GetAuto().GetResumePoint().GetOffsetBytes())
}

// checkSize compares what has arrived of a body with the size in the outcome.
func (p *position) checkSize(o *pb.FetchOutcome) error {
	got, want := int64(0), o.GetBodySummary().GetSizeBytes()
	if text := o.GetTextSummary(); text != nil { // it was delivered instead of the body
		want = text.GetSizeBytes()
	}
	switch p.request.GetBodyPolicy().GetDelivery().(type) {
	case *pb.BodyPolicy_Digest, *pb.BodyPolicy_None, *pb.BodyPolicy_Store:
		return nil // it was not delivered
	}
	switch {
	case p.begun:
		got = p.offset
	case p.resumePoint() > 0:
		return nil // the caller may have all of it
	default:
		got = int64(len(o.GetInlineBody()))
	}
	if got != want {
		return fmt.Errorf("%w: the body has %d bytes, but %d came", ErrContract, want, got)
	}
	return nil
}

// checkOutcome returns what an outcome lacks. Without it a failure could be taken for a success.
func checkOutcome(o *pb.FetchOutcome) error {
	kind := o.GetKind()
	switch failed := kind == pb.OutcomeKind_OUTCOME_KIND_FAILED; {
	case kind == pb.OutcomeKind_OUTCOME_KIND_UNSPECIFIED || pb.OutcomeKind_name[int32(kind)] == "":
		return fmt.Errorf("%w: the outcome has the kind %d", ErrContract, kind)
	case failed && o.GetError() == nil:
		return fmt.Errorf("%w: the outcome is a failure without an error", ErrContract)
	case !failed && o.GetError() != nil:
		return fmt.Errorf("%w: the outcome has an error, and is none", ErrContract)
	case !failed:
		return checkResponse("the outcome", o.GetResponse())
	}
	return nil
}

// checkResponse returns an error if there is no response.
func checkResponse(of string, r *pb.HttpResponse) error {
	if code := r.GetStatusCode(); code < 100 || code > 999 {
		return fmt.Errorf("%w: %s has no response with a status: %d", ErrContract, of, code)
	}
	return nil
}

// defaultBodyBytes limits a streamed body of [Pool.Do] and [Client.Many] if the request does
// not.
const defaultBodyBytes = 16 << 20

// ErrBodyTooLong is matched by the error of [Pool.Do] and [Client.Many] for a streamed body
// that they cannot keep. The fetch was cancelled. [Client.Do] reads bodies of any size.
var ErrBodyTooLong = errors.New("the body is longer than the client keeps")

// assembly is the body of a task that is streamed.
type assembly struct {
	position
	to     BodyWriter // nil: the assembly keeps the body
	limit  int64      // maximum number of bytes from start on
	start  int64      // offset of the first byte: more than 0 after a resume point
	pieces [][]byte   // the body, unless to has it; joined at the end, so that each byte is copied once
}

// add adds an event. It fails if the body has more than limit bytes, or if to fails.
func (a *assembly) add(m *pb.FetchEvent) error {
	end, begun := a.offset, a.begun
	if err := a.take(m); err != nil {
		return err
	}
	data := m.GetBodyChunk().GetData()
	at := a.offset - int64(len(data))
	switch {
	case begun && at < end:
		a.start = min(a.start, at)
		if a.to == nil {
			a.truncate(at - a.start)
		} else if err := a.to.Truncate(at); err != nil {
			return err
		}
	case !begun:
		a.start = at
	}
	if a.offset-a.start > a.limit {
		return fmt.Errorf("%w: more than %d bytes: raise body_policy.max_size_bytes, or use Do", ErrBodyTooLong, a.limit)
	}
	if len(data) == 0 {
		return nil
	}
	if a.to == nil {
		a.keep(data)
		return nil
	}
	_, err := a.to.Write(data)
	return err
}

// pieceBytes is the size of a piece that collects small chunks. A chunk of at least half of it is a piece itself.
const pieceBytes = 16 << 10

// keep adds a chunk to the pieces.
func (a *assembly) keep(data []byte) {
	if last := len(a.pieces) - 1; last >= 0 && len(data) <= cap(a.pieces[last])-len(a.pieces[last]) {
		a.pieces[last] = append(a.pieces[last], data...)
		return
	}
	if len(data) < pieceBytes/2 {
		data = append(make([]byte, 0, pieceBytes), data...)
	}
	a.pieces = append(a.pieces, data)
}

// truncate shortens the pieces to size bytes.
func (a *assembly) truncate(size int64) {
	for i, piece := range a.pieces {
		if int64(len(piece)) >= size {
			a.pieces[i] = piece[:size]
			a.pieces = a.pieces[:i+1]
			return
		}
		size -= int64(len(piece))
	}
}
