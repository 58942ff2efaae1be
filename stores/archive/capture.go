package archive

import (
	"errors"
	"sync"

	"fetchd/internal/budget"
)

// Capture takes the bytes of one exchange. [Capture.Sent] and [Capture.Received] may be called at the
// same time, and after the capture has ended: they have no effect then.
type Capture struct {
	archive *Archive
	memory  *budget.Lease
	disk    *budget.Lease // of temporary files; nil: there are none

	mu             sync.Mutex
	ended          bool
	err            error // of Sent or Received
	sent, received spool
	small          *small // nil: both directions have none or more
}

var errEnded = errors.New("the capture has ended")

// Sent adds bytes of the request. It keeps a copy. The error is [budget.ErrRefused] or an [*Error];
// Commit returns it, too.
func (c *Capture) Sent(p []byte) error { return c.add(&c.sent, p) }

// Received adds bytes of the response, as Sent does of the request.
func (c *Capture) Received(p []byte) error { return c.add(&c.received, p) }

func (c *Capture) add(s *spool, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.err != nil {
		return c.err
	}
	c.err = s.write(c, p)
	return c.err
}

// Discard ends the capture without records. It may be called again, and after Commit.
func (c *Capture) Discard() {
	if c.end() {
		c.free()
	}
}

// end reports whether the capture was not ended before.
func (c *Capture) end() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.ended
	c.ended = true
	return first
}

func (c *Capture) free() {
	c.sent.free(c)
	c.received.free(c)
	if c.disk != nil {
		c.disk.Close()
	}
	if c.small != nil {
		smalls.Put(c.small)
		c.memory.Shrink(budget.Body, int64(len(c.small)))
		c.small = nil
	}
}

// Commit writes the records of the exchange, all or none. They are in the file when it returns. It
// ends the capture. If no byte was sent, there are no records.
//
// The error is that of Sent or Received, or an [*Error].
func (c *Capture) Commit(e Exchange) ([]Record, error) {
	if !c.end() {
		return nil, errEnded
	}
	defer c.free()
	if c.err != nil { // add does not change it any more
		return nil, c.err
	}
	if c.sent.size() == 0 {
		return nil, nil
	}
	a := c.archive
	if err := a.enter(); err != nil {
		return nil, err
	}
	defer a.leave()
	if c.sent.file != nil || c.received.file != nil {
		a.long <- struct{}{}
		defer func() { <-a.long }()
	}
	a.slots <- struct{}{}
	defer func() { <-a.slots }()
	w, _ := a.pool.Get().(*encoder)
	if w == nil {
		var err error
		if w, err = newEncoder(a); err != nil {
			return nil, err
		}
	}
	defer a.pool.Put(w)
	return w.commit(c, &e)
}
