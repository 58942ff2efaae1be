package server

import (
	"bytes"
	"context"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server/internal/admission"
	"fetchd/server/internal/calls"
	"fetchd/server/internal/conversion"
	"fetchd/server/internal/wire"
)

// eventStream numbers and sends the events of one fetch, and heartbeats in between. It ends the
// fetch if the caller stops reading: the send would block forever, and keepalive does not notice
// (spec B7).
type eventStream struct {
	post     func(*wire.Outgoing) error
	ctx      context.Context // the context of the call
	copies   int64           // copies of a message that are held while it is sent
	ticket   *admission.Ticket
	start    time.Time
	interval time.Duration // between heartbeats
	limit    time.Duration // how long a send may take

	mu        sync.Mutex
	sequence  int64
	heartbeat *time.Timer // nil means no heartbeats
	lastSent  time.Time
	closed    bool
	err       error // of the first failed send; nothing is sent after it
	stalled   bool  // the caller stopped reading, so the call was cancelled
	convert   conversion.Events
	// The message to send, with the events that wait for the next one, and its charges: nil if none
	// waits. The message and its events are reused, because a message is encoded before the next one is
	// made.
	message pb.FetchResponse
	pending *wire.Outgoing
	bytes   int   // of the events that wait
	paid    int64 // for them
	events  []*streamEvent

	unblocked  int                 // bytes that may still be sent without a second goroutine
	out        chan *wire.Outgoing // to sendAll; nil means it is not started yet
	done       chan error          // receives the result of each message
	stallTimer *time.Timer
}

func newEventStream(ctx context.Context, post func(*wire.Outgoing) error, mode calls.Mode, t *admission.Ticket, limit time.Duration) *eventStream {
	return &eventStream{ctx: ctx, post: post, copies: mode.Copies, ticket: t, start: time.Now(), limit: limit, unblocked: mode.Unblocked}
}

// startHeartbeats sends a heartbeat whenever nothing was sent for interval.
func (e *eventStream) startHeartbeats(interval time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lastSent, e.interval = time.Now(), interval
	e.heartbeat = time.AfterFunc(math.MaxInt64, e.beat)
	e.heartbeat.Reset(interval) // only now, because beat uses e.heartbeat
}

// streamEvent is an event with its time, to make both in one allocation.
type streamEvent struct {
	event   pb.FetchEvent
	elapsed durationpb.Duration
}

// sink is the [fetch.Sink] of the fetch. An event that another one follows at once waits for it.
func (e *eventStream) sink(ev fetch.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil { // sendAll may still use the events, and the chunk that one refers to
		return e.err
	}
	more, copies := false, e.copies
	switch ev := ev.(type) {
	case fetch.ResponseStarted:
		more = ev.More
	case fetch.AttemptFinished:
		more = ev.More
	case fetch.BodyChunk:
		more = ev.More
	}
	s := e.nextLocked()
	e.convert.Event(&s.event, ev)
	if chunk := s.event.GetBodyChunk(); chunk != nil && more {
		if more = len(chunk.Data) <= maxWaiting; more {
			chunk.Data = bytes.Clone(chunk.Data) // the fetch uses its memory again
			copies++
		}
	}
	return e.addLocked(s, copies, more)
}

// maxWaiting is the maximum size of a chunk that waits for the next event. A longer one would fill the message.
const maxWaiting = 16 << 10

// admitted adds the first event, which waits for the start of the first attempt.
func (e *eventStream) admitted(event *pb.FetchEvent) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sendLocked(event, true)
}

// sendLocked sends an event, and those that wait for it. If more is true, the event waits for the next one.
// It blocks while the caller does not read.
func (e *eventStream) sendLocked(event *pb.FetchEvent, more bool) error {
	if e.err != nil {
		return e.err
	}
	s := e.nextLocked()
	s.event.Event = event.GetEvent()
	return e.addLocked(s, e.copies, more)
}

// finish sends the last event. No heartbeat follows it, even if one is due.
func (e *eventStream) finish(outcome *pb.FetchEvent) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	err := e.sendLocked(outcome, false)
	if err != nil && e.err == nil { // no memory for the outcome
		_ = e.flushLocked() // the call ends with err
	}
	return err
}

// eventFrame is the maximum size of the tag and the length of an event in its message.
const eventFrame = 4

// nextLocked returns an event that is not in use.
func (e *eventStream) nextLocked() *streamEvent {
	used := len(e.message.Events)
	if used == len(e.events) {
		e.events = append(e.events, new(streamEvent))
	}
	return e.events[used]
}

// addLocked numbers an event that nextLocked returned, charges the copies of it, and adds it to the message.
// It sends the message, unless more follows.
func (e *eventStream) addLocked(s *streamEvent, copies int64, more bool) error {
	elapsed := time.Since(e.start)
	s.elapsed.Seconds, s.elapsed.Nanos = int64(elapsed/time.Second), int32(elapsed%time.Second)
	s.event.Sequence, s.event.ElapsedOffset = e.sequence+1, &s.elapsed
	size := wire.SizeOf(&s.event) + eventFrame
	if e.bytes > 0 && (e.bytes+size > wire.LongAnswer || !e.joinLocked(size)) {
		used := len(e.message.Events)
		e.events[0], e.events[used] = s, e.events[0]
		if err := e.flushLocked(); err != nil {
			return err
		}
	}
	if e.pending == nil {
		e.pending = new(wire.Outgoing)
	}
	if err := e.pending.Pay(e.ctx, e.ticket, &s.event, copies); err != nil {
		s.event.Event = nil
		return err // this event is not sent, and more may follow
	}
	e.sequence++
	e.message.Events = append(e.message.Events, &s.event)
	e.bytes, e.paid = e.bytes+size, e.paid+wire.AnswerBytes(size)
	if more {
		return nil
	}
	return e.flushLocked()
}

// joinLocked charges what the buffer for the message and one more event costs more than one for each. It
// reports whether that was granted.
func (e *eventStream) joinLocked(size int) bool {
	more := wire.AnswerBytes(e.bytes+size) - e.paid - wire.AnswerBytes(size)
	if more <= 0 {
		return true
	}
	e.paid += more
	return e.pending.Grow(e.copies * more)
}

// flushLocked sends the message, if it has an event.
func (e *eventStream) flushLocked() error {
	if len(e.message.Events) == 0 {
		return nil
	}
	o := e.pending
	o.Fill(&e.message)
	e.pending, e.bytes, e.paid = nil, 0, 0
	if e.err = e.transmitLocked(o); e.err != nil {
		return e.err // the events are still in use
	}
	if e.heartbeat != nil {
		e.lastSent = time.Now() // after the send: a slow caller has just read a message
	}
	for _, event := range e.message.Events {
		event.Event = nil // so that it can be collected during a wait
	}
	e.message.Events = e.message.Events[:0]
	return nil
}

// transmitLocked passes a message to gRPC and waits until it is accepted, up to the limit. A send
// that is still blocked then fails when the handler returns.
func (e *eventStream) transmitLocked(o *wire.Outgoing) error {
	if e.out == nil {
		if o.Size <= e.unblocked {
			e.unblocked -= o.Size
			return e.post(o)
		}
		e.out, e.done = make(chan *wire.Outgoing), make(chan error, 1)
		e.stallTimer = time.NewTimer(e.limit)
		go sendAll(e.post, e.out, e.done)
	}
	e.stallTimer.Reset(e.limit)
	defer e.stallTimer.Stop()
	e.out <- o
	select {
	case err := <-e.done:
		return err
	case <-e.stallTimer.C:
		e.stalled = true
		err := calls.Stalled(e.limit)
		wire.CallOf(e.ctx).Cancel(err) // ends the fetch
		return err
	}
}

// sendAll sends the messages from out until it is closed.
func sendAll(post func(*wire.Outgoing) error, out <-chan *wire.Outgoing, done chan<- error) {
	for o := range out {
		done <- post(o)
	}
}

// beat runs when the timer fires. It sends a heartbeat if one is due, and sets the timer again.
// Sends do not reset the timer, so it may fire early. While a send is in progress none is due.
func (e *eventStream) beat() {
	if !e.mu.TryLock() {
		e.heartbeat.Reset(e.interval)
		return
	}
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	if left := e.interval - time.Since(e.lastSent); left > 0 {
		e.heartbeat.Reset(left)
		return
	}
	_ = e.sendLocked(&pb.FetchEvent{Event: &pb.FetchEvent_Heartbeat{Heartbeat: &pb.Heartbeat{}}}, false) // the next event returns the error, unless it is for want of memory
	e.heartbeat.Reset(e.interval)
}

// failed returns the error of the call, or that of the first failed send.
func (e *eventStream) failed() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if gone := e.ctx.Err(); gone != nil && !e.stalled {
		return status.FromContextError(gone).Err()
	}
	return e.err
}

// close stops the heartbeats and sendAll: a gRPC stream must not be used after its handler returns.
func (e *eventStream) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.heartbeat != nil {
		e.heartbeat.Stop()
	}
	if e.out != nil {
		close(e.out)
	}
	if e.pending != nil { // the call ends without these events
		e.pending.Release()
	}
}
