package server

import (
	"context"
	"time"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
)

// A message of FetchMany goes out once it has so many answers or bytes, when its
// first answer has waited so long, or when the stream has too few tasks under way to
// fill it.
const (
	packAnswers = 16
	packBytes   = 256 << 10
	packTime    = 5 * time.Millisecond
)

// packer puts answers together into messages.
type packer struct {
	answers  <-chan *taskAnswer
	draining context.Context
	over     context.Context // the call's
	send     func(*outgoing) error
	limit    time.Duration // how long a send may take
	stalled  chan struct{} // closed when one took longer
	stall    func()        // closes it
	started  func() int    // tasks
	ended    int           // of them, by the outcomes that were taken

	message *pb.FetchManyResponse
	bytes   int
	memory  []*budget.Lease // charged for the message
	tickets []*ticket
}

// run sends until there are no more answers, or a send fails. It tells once that
// the server is going away.
func (p *packer) run() error {
	defer func() { (&answer{memory: p.memory, tickets: p.tickets}).release() }() // of the answers that are not sent
	draining := p.draining.Done()
	patience := time.NewTimer(packTime)
	patience.Stop()
	for {
		select {
		case answer, more := <-p.answers:
			if !more {
				return p.flush()
			}
			if len(p.message.Responses) == 0 {
				patience.Reset(packTime)
			}
			if err := p.add(answer); err != nil {
				return err
			}
			continue
		case <-p.over.Done():
			return p.over.Err()
		case <-patience.C:
		case <-draining:
			draining, p.message.Draining = nil, true
		}
		if err := p.flush(); err != nil {
			return err
		}
	}
}

// add puts an answer into the message, and sends what is full.
func (p *packer) add(a *taskAnswer) error {
	size := sizeOf(a.response)
	if a.response.GetResponse().GetOutcome() != nil {
		p.ended++
	}
	var err error
	if p.bytes+size > packBytes {
		err = p.flush()
	}
	p.memory, p.tickets = append(p.memory, a.memory...), append(p.tickets, a.tickets...)
	if err != nil {
		return err
	}
	p.message.Responses, p.bytes = append(p.message.Responses, a.response), p.bytes+size
	if len(p.message.Responses) >= packAnswers || p.bytes >= packBytes || len(p.message.Responses)+p.started()-p.ended < packAnswers {
		return p.flush()
	}
	return nil
}

func (p *packer) flush() error {
	if len(p.message.Responses) == 0 && !p.message.Draining {
		return nil
	}
	o := &outgoing{message: p.message, size: sizeOf(p.message), memory: p.memory, tickets: p.tickets}
	p.message, p.bytes, p.memory, p.tickets = new(pb.FetchManyResponse), 0, nil, nil
	defer time.AfterFunc(p.limit, p.stall).Stop()
	return p.send(o)
}
