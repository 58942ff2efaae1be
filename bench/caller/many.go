package caller

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"

	pb "fetchd/gen/fetchd/v1"
)

const (
	batch    = 16  // tasks in a message
	perShare = 240 // tasks open on one stream, of the 256 that a server reads
)

// many is FetchMany, with tasks in messages of 16, or of fewer where fewer are
// open. Where more are open than one stream takes there are several.
func many(o *Options, size int64) (*load, error) {
	streams := (o.Open + perShare - 1) / perShare
	clients, closed, err := dial(o.GRPC, 1)
	if err != nil {
		return nil, err
	}
	l := &load{loops: make([]loop, streams), close: closed}
	for i := range l.loops {
		open := o.Open / streams
		if i < o.Open%streams {
			open++
		}
		l.loops[i] = func(ctx context.Context, r *recorder) {
			for !r.over() {
				s, err := clients[0].FetchMany(ctx)
				if err == nil {
					m := &manyLoop{stream: s, recorder: r, target: o.Target, size: size, open: open, began: make(map[string]time.Time, open)}
					err = m.run()
				}
				if err != nil {
					r.done(time.Now(), err)
				}
			}
		}
	}
	return l, nil
}

// manyLoop keeps the tasks of one stream open.
type manyLoop struct {
	stream   grpc.BidiStreamingClient[pb.FetchManyRequest, pb.FetchManyResponse]
	recorder *recorder
	target   string
	size     int64
	open     int
	next     int
	began    map[string]time.Time // by tag
}

// run sends tasks and reads outcomes until the recorder is over, and then the last
// outcomes.
func (m *manyLoop) run() error {
	for {
		for !m.recorder.over() && m.open-len(m.began) >= min(batch, m.open) {
			if err := m.send(); err != nil {
				return err
			}
		}
		if len(m.began) == 0 {
			return m.stream.CloseSend()
		}
		answer, err := m.stream.Recv()
		if err != nil {
			return err
		}
		for _, a := range answer.GetResponses() {
			if err := m.ended(a); err != nil {
				return err
			}
		}
	}
}

// send begins as many tasks as a message has.
func (m *manyLoop) send() error {
	message := &pb.FetchManyRequest{Tasks: make([]*pb.Task, min(batch, m.open))}
	now := time.Now()
	for i := range message.Tasks {
		m.next++
		tag := strconv.Itoa(m.next)
		message.Tasks[i] = &pb.Task{Tag: tag, Request: &pb.FetchRequest{Url: m.target}}
		m.began[tag] = now
	}
	return m.stream.Send(message)
}

// ended notes an outcome. The error is that of an answer that nobody asked for.
func (m *manyLoop) ended(a *pb.TaskResponse) error {
	out := a.GetResponse().GetOutcome()
	began, known := m.began[a.GetTag()]
	if out == nil || !known {
		return fmt.Errorf("%w: of task %q, which is not open, or no outcome: %v", errResponse, a.GetTag(), a)
	}
	delete(m.began, a.GetTag())
	n := int64(len(out.GetInlineBody()))
	m.recorder.arrived(n)
	m.recorder.done(began, checkOutcome(out, out.GetResponse(), n, m.size))
	return nil
}
