package server

import (
	"context"
	"math"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
)

// sentAtOnce is how many bytes of a stream are sent without a second goroutine:
// gRPC takes the first 64 KiB of a stream without waiting for its reader. Most
// fetches never send more, and ten thousand of them may wait at once.
const sentAtOnce = 48 << 10

// eventStream sends one fetch's events, numbered, and a heartbeat where there
// is none for a while. It gives up a caller that has stopped reading, which
// would hold a send for ever, and which keepalive does not notice (spec B7).
type eventStream struct {
	post    func(*outgoing) error
	ctx     context.Context // of the call
	copies  int64           // of a message that are held while it is sent
	ticket  *ticket
	giveUp  context.CancelFunc // ends the fetch
	start   time.Time
	silence time.Duration // after which a heartbeat is due
	limit   time.Duration // how long a send may take

	mu       sync.Mutex
	sequence int64
	heart    *time.Timer // nil: none
	silent   time.Time   // since when
	closed   bool
	err      error // of a send; none follows it
	telling  telling
	// The message that is sent, and when: it is encoded before the next is made.
	message pb.FetchResponse
	elapsed durationpb.Duration

	room    int            // bytes that may be sent at once
	out     chan *outgoing // to [sender]; nil: there is none yet
	done    chan error     // from it, once for each message
	patient *time.Timer
}

func newEventStream(ctx context.Context, post func(*outgoing) error, by way, t *ticket, limit time.Duration, giveUp context.CancelFunc) *eventStream {
	return &eventStream{ctx: ctx, post: post, copies: by.copies, ticket: t, giveUp: giveUp, start: time.Now(), limit: limit, room: by.atOnce}
}

// beatAfter begins the heartbeats.
func (e *eventStream) beatAfter(silence time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.silent, e.silence = time.Now(), silence
	e.heart = time.AfterFunc(math.MaxInt64, e.beat)
	e.heart.Reset(silence) // beat finds it, however short that is
}

// sink is the fetch's [fetch.Sink].
func (e *eventStream) sink(ev fetch.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil { // what it failed at may still be with the sender
		return e.err
	}
	e.telling.event(&e.message, ev)
	if err := e.locked(&e.message); err != nil {
		return err
	}
	e.message.Event = nil // it is not to be kept through a wait
	return nil
}

// send sends one message. It blocks while the caller does not read.
func (e *eventStream) send(resp *pb.FetchResponse) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.locked(resp)
}

// finish sends the last message. No heartbeat follows it, though one be due.
func (e *eventStream) finish(resp *pb.FetchResponse) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	return e.locked(resp)
}

func (e *eventStream) locked(resp *pb.FetchResponse) error {
	if e.err != nil {
		return e.err
	}
	e.sequence++
	elapsed := time.Since(e.start)
	e.elapsed.Seconds, e.elapsed.Nanos = int64(elapsed/time.Second), int32(elapsed%time.Second)
	resp.Sequence, resp.ElapsedOffset = e.sequence, &e.elapsed
	o, err := e.ticket.pay(e.ctx, resp, e.copies)
	if err != nil {
		e.sequence-- // nothing was sent, and more may follow
		return err
	}
	e.err = e.pass(o)
	if e.heart != nil {
		e.silent = time.Now() // a slow caller has just heard something
	}
	return e.err
}

// pass gives a message to gRPC, and waits for it to be taken, but not for ever.
// What it gave up on ends when the handler returns: then gRPC fails the send.
func (e *eventStream) pass(o *outgoing) error {
	if e.out == nil {
		if o.size <= e.room {
			e.room -= o.size
			return e.post(o)
		}
		e.out, e.done = make(chan *outgoing), make(chan error, 1)
		e.patient = time.NewTimer(e.limit)
		go sender(e.post, e.out, e.done)
	}
	e.patient.Reset(e.limit)
	defer e.patient.Stop()
	e.out <- o
	select {
	case err := <-e.done:
		return err
	case <-e.patient.C:
		e.giveUp()
		return stalledError(e.limit)
	}
}

// sender sends what comes until out is closed.
func sender(post func(*outgoing) error, out <-chan *outgoing, done chan<- error) {
	for o := range out {
		done <- post(o)
	}
}

// stalledError tells a caller that it did not read.
func stalledError(limit time.Duration) error {
	st := status.Newf(codes.Aborted, "the caller has read nothing for %s: read on, or ask for another delivery", limit)
	return withDetails(st, &errdetails.ErrorInfo{Reason: "CONSUMER_STALLED", Domain: errorDomain})
}

// beat sends a heartbeat where one is due, and sees to the next: what is sent leaves
// the timer as it is. Nothing is due while something is just being sent.
func (e *eventStream) beat() {
	if !e.mu.TryLock() {
		e.heart.Reset(e.silence)
		return
	}
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	if left := e.silence - time.Since(e.silent); left > 0 {
		e.heart.Reset(left)
		return
	}
	_ = e.locked(&pb.FetchResponse{Event: &pb.FetchResponse_Heartbeat{Heartbeat: &pb.Heartbeat{}}}) // the fetch's next event meets the same error
	e.heart.Reset(e.silence)
}

// failed returns the error that a send met, or nil.
func (e *eventStream) failed() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// close ends the heartbeats and the sender. A stream must not be used after its
// handler.
func (e *eventStream) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.heart != nil {
		e.heart.Stop()
	}
	if e.out != nil {
		close(e.out)
	}
}
