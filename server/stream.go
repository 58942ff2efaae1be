package server

import (
	"bytes"
	"context"
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
	interval time.Duration // between heartbeats; 0: none
	limit    time.Duration // how long a send may take

	mu         sync.Mutex
	sequence   int64
	heartbeats *wire.Delays[*eventStream]
	wire.Delayed[*eventStream]
	heartbeat *time.Timer // nil: the stream is in heartbeats, or has none
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
	bytes   int   // of the message with the events that wait
	paid    int64 // for them
	events  []*streamEvent
	refs    [4]*streamEvent   // of the first events
	sent    [4]*pb.FetchEvent // of most messages

	unblocked  int                 // bytes that may still be sent without a second goroutine
	out        chan *wire.Outgoing // to sendAll; nil means it is not started yet
	done       chan error          // receives the result of each message
	stallTimer *time.Timer
}

func newEventStream(ctx context.Context, post func(*wire.Outgoing) error, mode calls.Mode, t *admission.Ticket, limit time.Duration) *eventStream {
	e := &eventStream{ctx: ctx, post: post, copies: mode.Copies, ticket: t, start: time.Now(), limit: limit, unblocked: mode.Unblocked}
	e.events, e.message.Events = e.refs[:0], e.sent[:0]
	return e
}

// newHeartbeats returns the list of streams to which something was sent less than interval ago. Most fetches end
// while they are in it, so their heartbeats cost no timer.
func newHeartbeats(interval time.Duration) *wire.Delays[*eventStream] {
	return wire.NewDelays(interval, func(e *eventStream) { go e.beat() }) // ends after one send
}

// startHeartbeats sends a heartbeat whenever nothing was sent for the interval of all.
func (e *eventStream) startHeartbeats(all *wire.Delays[*eventStream]) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lastSent, e.interval, e.heartbeats = e.start, all.Delay(), all
	all.Add(&e.Delayed, e)
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

// nextLocked returns an event that is not in use.
func (e *eventStream) nextLocked() *streamEvent {
	used := len(e.message.Events)
	if used == len(e.events) {
		two := new([2]streamEvent)
		e.events = append(e.events, &two[0], &two[1])
	}
	return e.events[used]
}

// addLocked numbers an event that nextLocked returned, charges the copies of it, and adds it to the message.
// It sends the message, unless more follows.
func (e *eventStream) addLocked(s *streamEvent, copies int64, more bool) error {
	elapsed := time.Since(e.start)
	s.elapsed.Seconds, s.elapsed.Nanos = int64(elapsed/time.Second), int32(elapsed%time.Second)
	s.event.Sequence, s.event.ElapsedOffset = e.sequence+1, &s.elapsed
	size := wire.SizeOf(&s.event)
	outcome := s.event.GetOutcome() != nil
	if e.bytes > 0 && (e.bytes+wire.PartBytes(size) > wire.LongAnswer || !e.joinLocked(size, copies, outcome)) {
		used := len(e.message.Events)
		e.events[0], e.events[used] = s, e.events[0]
		if err := e.flushLocked(); err != nil {
			return err
		}
	}
	if e.bytes == 0 || outcome {
		if e.pending == nil {
			e.pending = new(wire.Outgoing)
		}
		var err error
		if size, err = e.pending.Pay(e.ctx, e.ticket, &s.event, size, copies); err != nil {
			s.event.Event = nil
			return err // this event is not sent, and more may follow
		}
		e.paid += copies * wire.AnswerBytes(size)
	}
	e.sequence++
	e.message.Events = append(e.message.Events, &s.event)
	if e.bytes += wire.PartBytes(size); more {
		return nil
	}
	return e.flushLocked()
}

// joinLocked charges what the message costs more with one more event than it has paid. An outcome pays for itself, and
// the copies that only this event has are added. It reports whether that was granted.
func (e *eventStream) joinLocked(size int, copies int64, outcome bool) bool {
	more := e.copies*wire.AnswerBytes(e.bytes+wire.PartBytes(size)) - e.paid
	if outcome {
		more -= copies * wire.AnswerBytes(size)
	} else {
		more += (copies - e.copies) * wire.AnswerBytes(size)
	}
	if more <= 0 {
		return true
	}
	if !e.pending.Grow(more) {
		return false
	}
	e.paid += more
	return true
}

// flushLocked sends the message, if it has an event.
func (e *eventStream) flushLocked() error {
	if len(e.message.Events) == 0 {
		return nil
	}
	o := e.pending
	o.Fill(&e.message, e.bytes)
	e.pending, e.bytes, e.paid = nil, 0, 0
	if e.err = e.transmitLocked(o); e.err != nil {
		return e.err // the events are still in use
	}
	if e.interval > 0 {
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

// beat runs when the stream is due. It sends a heartbeat if nothing was sent meanwhile, and lists the stream again.
// Sends do not change its place, so it may be due early. While a send is in progress no heartbeat is.
func (e *eventStream) beat() {
	if !e.mu.TryLock() {
		e.heartbeats.Add(&e.Delayed, e)
		return
	}
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	if left := e.interval - time.Since(e.lastSent); left > 0 {
		e.heartbeat = time.AfterFunc(left, e.beat)
		return
	}
	_ = e.sendLocked(&pb.FetchEvent{Event: &pb.FetchEvent_Heartbeat{Heartbeat: &pb.Heartbeat{}}}, false) // the next event returns the error, unless it is for want of memory
	e.heartbeats.Add(&e.Delayed, e)
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
	if e.heartbeats != nil {
		e.heartbeats.Remove(&e.Delayed)
	}
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
