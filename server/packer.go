package server

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
	"fetchd/server/internal/admission"
	"fetchd/server/internal/wire"
)

// A message of FetchMany is sent when it has packAnswers answers or packBytes bytes, when its first
// answer has waited for packTime, or when too few tasks are in flight to fill it.
const (
	packAnswers = 16
	packBytes   = 256 << 10
	packTime    = 5 * time.Millisecond
)

// maxOpen limits the tasks of a stream in flight. Beyond it the tasks of a message wait, the server
// reads no other message, and HTTP/2 flow control makes the caller wait.
const maxOpen = 256

// packer packs answers into messages.
type packer struct {
	answers  <-chan *taskAnswer
	chunks   <-chan *taskChunk
	draining context.Context
	ending   context.Context // done when the fetches in flight end as SHUTDOWN
	over     context.Context // done when the handler returns
	send     func(*wire.Outgoing) error
	limit    time.Duration // how long a send may take
	stalled  context.Context
	stall    context.CancelFunc // ends stalled when a send took longer
	started  func() int         // returns the number of tasks started
	ended    int                // number of tasks whose outcome was packed
	silence  time.Duration      // after which a message without events is sent
	caller   context.Context    // of the call
	memory   *budget.Budget     // for messages without events
	lastSent time.Time

	message *pb.FetchManyResponse
	bytes   int
	held    wire.Held // for the message
}

// run sends messages until answers is closed or a send fails. It sets draining in one message when a
// drain starts, and breaks the silence: a proxy may end a stream on which nothing is sent.
func (p *packer) run() error {
	defer func() { p.held.Release() }() // of the answers that were not sent
	draining := p.draining.Done()
	packTimer := time.NewTimer(packTime)
	packTimer.Stop()
	heartbeat := time.NewTimer(p.silence)
	defer heartbeat.Stop()
	p.lastSent = time.Now()
	for {
		select {
		case answer, more := <-p.answers:
			if !more {
				return p.flush()
			}
			if len(p.message.Events) == 0 {
				packTimer.Reset(packTime)
			}
			if err := p.add(answer); err != nil {
				return err
			}
			continue
		case c := <-p.chunks:
			if err := p.sendChunk(c); err != nil {
				return err
			}
			continue
		case <-p.over.Done():
			return p.over.Err()
		case <-packTimer.C:
		case <-heartbeat.C:
			if time.Since(p.lastSent) >= p.silence {
				if o := wire.Charged(p.caller, p.memory, new(pb.FetchManyResponse)); o != nil { // else a proxy may end the stream, but other calls go on
					if err := p.post(o); err != nil {
						return err
					}
				}
				p.lastSent = time.Now()
			}
			heartbeat.Reset(p.silence - time.Since(p.lastSent))
			continue
		case <-draining:
			draining, p.message.Draining = nil, true
		}
		if err := p.flush(); err != nil {
			return err
		}
	}
}

// add adds an answer to the message, and sends the message if it is full.
func (p *packer) add(a *taskAnswer) error {
	size := wire.PartBytes(a.size)
	if a.event.GetEvent().GetOutcome() != nil {
		p.ended++
	}
	var err error
	if p.bytes+size > packBytes {
		err = p.flush()
	}
	p.held.Add(a.memory, a.ticket)
	if err != nil {
		return err
	}
	p.message.Events, p.bytes = append(p.message.Events, &a.event), p.bytes+size
	if len(p.message.Events) >= packAnswers || p.bytes >= packBytes || len(p.message.Events)+p.started()-p.ended < packAnswers {
		return p.flush()
	}
	return nil
}

// sendChunk sends the answers that wait, and then a chunk. They can be in one message if it fits into a
// pooled buffer.
func (p *packer) sendChunk(c *taskChunk) error {
	if err := p.addWaiting(); err != nil {
		return err
	}
	size := wire.SizeOf(&c.task)
	if p.bytes+wire.PartBytes(size) > wire.LongAnswer {
		if err := p.flush(); err != nil {
			return err
		}
	}
	if c.ctx.Err() != nil || p.ending.Err() != nil { // its outcome need not wait for the caller to read the chunk
		c.sent <- fetch.ErrCancelled
		return p.flush()
	}
	memory := new(budget.Lease)
	if _, err := wire.Pay(c.ctx, c.ticket, memory, &c.task, &c.event, size, 1); err != nil {
		c.sent <- err
		return p.flush()
	}
	p.held.Add(memory, nil)
	p.message.Events, p.bytes = append(p.message.Events, &c.task), p.bytes+wire.PartBytes(size)
	err := p.flush()
	c.sent <- err
	return err
}

// addWaiting adds the answers that wait, so that a chunk does not delay them. There may be more than
// the tasks of a stream, but then some came later.
func (p *packer) addWaiting() error {
	for range maxOpen {
		select {
		case a, more := <-p.answers:
			if !more {
				return nil
			}
			if err := p.add(a); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

func (p *packer) flush() error {
	if len(p.message.Events) == 0 && !p.message.Draining {
		return nil
	}
	if p.message.Draining {
		p.bytes = wire.SizeOf(p.message)
	}
	o := wire.NewOutgoing(p.message, p.bytes, p.held)
	p.message, p.bytes, p.held = new(pb.FetchManyResponse), 0, wire.Held{}
	return p.post(o)
}

func (p *packer) post(o *wire.Outgoing) error {
	defer time.AfterFunc(p.limit, p.stall).Stop()
	err := p.send(o)
	p.lastSent = time.Now() // after the send: a slow caller has just read a message
	return err
}

// taskAnswer is an answer to a task, with its charges.
type taskAnswer struct {
	event   pb.TaskEvent
	elapsed durationpb.Duration
	size    int
	memory  *budget.Lease     // nil: an outcome
	ticket  *admission.Ticket // nil: no outcome
}

// taskChunk is a chunk of a task's body that waits to be sent. It is charged when it is sent; until
// then its bytes are in the memory of the fetch. A task uses it again for the next chunk.
type taskChunk struct {
	ctx    context.Context // of the task
	ticket *admission.Ticket
	sent   chan error // receives the result; it never blocks

	task    pb.TaskEvent
	event   pb.FetchEvent // of task
	elapsed durationpb.Duration
}
