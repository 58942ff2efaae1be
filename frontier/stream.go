package frontier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	pb "fetchd/gen/fetchd/v1"
)

// call is one fetch on a stream.
type call struct {
	tag     string
	request *pb.FetchRequest
	before  time.Time             // not sent later
	done    chan *pb.FetchOutcome // nil if there will be none
	sent    bool                  // guarded by the stream's lock; settled before done

	mu    sync.Mutex
	event func(*pb.FetchResponse) // nil when nobody waits any more
}

func (c *call) tell(r *pb.FetchResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.event != nil {
		c.event(r)
	}
}

// deafen returns when event is not running and will not be called again.
func (c *call) deafen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.event = nil
}

// stream is one call of FetchMany. Three goroutines belong to it.
type stream struct {
	conn    pb.FetchService_FetchManyClient
	stop    context.CancelFunc // ends it at once
	queue   chan func(*pb.FetchManyRequest)
	ended   chan struct{} // closed when no answer will come any more
	left    chan struct{} // closed when it takes no more fetches
	drained chan struct{} // closed when it has no more of them either

	mu    sync.Mutex
	calls map[string]*call
	over  bool // takes no more
	err   error
}

func (st *stream) load() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return len(st.calls)
}

func (st *stream) takes() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return !st.over && len(st.calls) < streamTasks
}

// begin queues c, unless the stream has just ended or filled up.
func (st *stream) begin(c *call) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.over || len(st.calls) >= streamTasks {
		return false
	}
	put := func(m *pb.FetchManyRequest) {
		st.mu.Lock()
		defer st.mu.Unlock()
		switch {
		case st.calls[c.tag] != c: // given up
		case !time.Now().Before(c.before): // the process was stopped, or the service did not read
			st.drop(c.tag)
			c.done <- nil
		default:
			c.sent = true
			m.Tasks = append(m.Tasks, &pb.Task{Tag: c.tag, Request: c.request})
		}
	}
	select {
	case st.queue <- put:
		st.calls[c.tag] = c
		return true
	default: // the service does not read, and calls were given up meanwhile
		return false
	}
}

// await returns the outcome of c, or nil if there will be none.
func (st *stream) await(ctx context.Context, c *call) *pb.FetchOutcome {
	late := time.NewTimer(time.Until(c.before))
	defer late.Stop()
	for waiting := true; waiting; {
		select {
		case outcome := <-c.done:
			return outcome
		case <-late.C:
			if st.takeBack(c) {
				return nil
			}
		case <-ctx.Done():
			waiting = false
		}
	}
	if st.takeBack(c) {
		return nil
	}
	select {
	case st.queue <- func(m *pb.FetchManyRequest) { m.CancelledTags = append(m.CancelledTags, c.tag) }:
	default: // so much is queued that the service does not read
	}
	patience := time.NewTimer(cancelTime)
	defer patience.Stop()
	select {
	case outcome := <-c.done:
		return outcome
	case <-patience.C:
		return st.giveUp(c)
	}
}

// takeBack forgets c if it was not sent, and says so.
func (st *stream) takeBack(c *call) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.calls[c.tag] != c || c.sent {
		return false
	}
	st.drop(c.tag)
	return true
}

// giveUp forgets c, which the service does not answer, and wants no more of the
// stream. It returns an outcome that came after all.
func (st *stream) giveUp(c *call) *pb.FetchOutcome {
	st.leave(fmt.Errorf("the service did not answer for a cancelled fetch in %v", cancelTime))
	c.deafen()
	st.mu.Lock()
	open := st.calls[c.tag] == c
	if open {
		st.drop(c.tag)
	}
	st.mu.Unlock()
	if open {
		return nil
	}
	return <-c.done
}

// messageTasks go in one message at most.
const messageTasks = 16

// send writes what is queued, as much in one message as there is.
func (st *stream) send() {
	for {
		select {
		case <-st.ended:
			return
		case <-st.drained:
			_ = st.conn.CloseSend() // always nil
			return
		case put := <-st.queue:
			m := new(pb.FetchManyRequest)
			put(m)
		more:
			for len(m.GetTasks())+len(m.GetCancelledTags()) < messageTasks {
				select {
				case put := <-st.queue:
					put(m)
				default:
					break more
				}
			}
			if len(m.GetTasks())+len(m.GetCancelledTags()) == 0 {
				continue // all given up
			}
			if err := st.conn.Send(m); err != nil {
				return // receive hears why
			}
		}
	}
}

// finish ends a stream that has nothing to do and that the service does not end.
func (st *stream) finish() {
	select {
	case <-st.drained:
	case <-st.ended:
		return
	}
	patience := time.NewTimer(endTime)
	defer patience.Stop()
	select {
	case <-patience.C:
		st.stop()
	case <-st.ended:
	}
}

// receive hands answers to their calls until the stream ends.
func (st *stream) receive() {
	defer st.stop()
	for {
		m, err := st.conn.Recv()
		if err != nil {
			st.end(err)
			return
		}
		if m.GetDraining() {
			st.leave(nil)
		}
		for _, r := range m.GetResponses() {
			st.answer(r)
		}
	}
}

func (st *stream) answer(r *pb.TaskResponse) {
	outcome := r.GetResponse().GetOutcome()
	st.mu.Lock()
	c := st.calls[r.GetTag()]
	if c != nil && outcome != nil {
		st.drop(c.tag)
	}
	st.mu.Unlock()
	switch {
	case c == nil: // given up, or never asked for
	case outcome != nil:
		c.done <- outcome
	default:
		c.tell(r.GetResponse())
	}
}

// leave has the stream take no more fetches.
func (st *stream) leave(err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.over {
		st.over, st.err = true, err
		close(st.left)
		st.drop("")
	}
}

// drop forgets a call. The lock is held.
func (st *stream) drop(tag string) {
	before := len(st.calls)
	delete(st.calls, tag)
	if st.over && len(st.calls) == 0 && (before > 0 || tag == "") {
		close(st.drained)
	}
}

// end tells every call that its outcome will not come.
func (st *stream) end(err error) {
	if errors.Is(err, io.EOF) {
		err = errors.New("the service ended the stream")
	}
	st.leave(err)
	close(st.ended)
	st.mu.Lock()
	defer st.mu.Unlock()
	for tag, c := range st.calls {
		st.drop(tag)
		c.done <- nil
	}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
