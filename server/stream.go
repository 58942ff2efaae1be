package server

import (
	"context"
	"math"
	"sync"
	"time"

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
	cancel   context.CancelFunc // ends the fetch
	start    time.Time
	interval time.Duration // between heartbeats
	limit    time.Duration // how long a send may take

	mu        sync.Mutex
	sequence  int64
	heartbeat *time.Timer // nil means no heartbeats
	lastSent  time.Time
	closed    bool
	err       error // of the first failed send; nothing is sent after it
	convert   conversion.Events
	// The message to send, and its time. Both are reused, because a message is encoded before
	// the next one is made.
	message pb.FetchResponse
	elapsed durationpb.Duration

	unblocked  int                 // bytes that may still be sent without a second goroutine
	out        chan *wire.Outgoing // to sendAll; nil means it is not started yet
	done       chan error          // receives the result of each message
	stallTimer *time.Timer
}

func newEventStream(ctx context.Context, post func(*wire.Outgoing) error, mode calls.Mode, t *admission.Ticket, limit time.Duration, cancel context.CancelFunc) *eventStream {
	return &eventStream{ctx: ctx, post: post, copies: mode.Copies, ticket: t, cancel: cancel, start: time.Now(), limit: limit, unblocked: mode.Unblocked}
}

// startHeartbeats sends a heartbeat whenever nothing was sent for interval.
func (e *eventStream) startHeartbeats(interval time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lastSent, e.interval = time.Now(), interval
	e.heartbeat = time.AfterFunc(math.MaxInt64, e.beat)
	e.heartbeat.Reset(interval) // only now, because beat uses e.heartbeat
}

// sink is the [fetch.Sink] of the fetch.
func (e *eventStream) sink(ev fetch.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil { // sendAll may still use e.message, and the chunk that it refers to
		return e.err
	}
	e.convert.Event(&e.message, ev)
	if err := e.sendLocked(&e.message); err != nil {
		return err
	}
	e.message.Event = nil // so that it can be collected during a wait
	return nil
}

// send sends a message. It blocks while the caller does not read.
func (e *eventStream) send(resp *pb.FetchResponse) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sendLocked(resp)
}

// finish sends the last message. No heartbeat follows it, even if one is due.
func (e *eventStream) finish(resp *pb.FetchResponse) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	return e.sendLocked(resp)
}

func (e *eventStream) sendLocked(resp *pb.FetchResponse) error {
	if e.err != nil {
		return e.err
	}
	e.sequence++
	elapsed := time.Since(e.start)
	e.elapsed.Seconds, e.elapsed.Nanos = int64(elapsed/time.Second), int32(elapsed%time.Second)
	resp.Sequence, resp.ElapsedOffset = e.sequence, &e.elapsed
	o, err := wire.Pay(e.ctx, e.ticket, resp, e.copies)
	if err != nil {
		e.sequence-- // nothing was sent, and more may follow
		return err
	}
	e.err = e.transmitLocked(o)
	if e.heartbeat != nil {
		e.lastSent = time.Now() // after the send: a slow caller has just read a message
	}
	return e.err
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
		e.cancel()
		return calls.Stalled(e.limit)
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
	_ = e.sendLocked(&pb.FetchResponse{Event: &pb.FetchResponse_Heartbeat{Heartbeat: &pb.Heartbeat{}}}) // the next event returns the same error
	e.heartbeat.Reset(e.interval)
}

// failed returns the error of the first failed send, or nil.
func (e *eventStream) failed() error {
	e.mu.Lock()
	defer e.mu.Unlock()
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
}
