package daemon

import (
	"bytes"
	"io"
	"sync"
	"time"
)

const (
	// logLimit is the maximum size of all blocks: some 20,000 lines, so that a reader may pause for a second
	// under load.
	logLimit = 8 << 20
	// logBlock is the size of a block. A line that is longer is alone in a larger block.
	logBlock = 32 << 10
	// logDelay is how long a line may wait for others, so that one write has many lines under load.
	logDelay = 5 * time.Millisecond
	// pipePiece is how many bytes a pipe accepts atomically (PIPE_BUF of Linux), whatever else
	// writes to it.
	pipePiece = 4 << 10
)

// LogQueue is an [io.Writer] whose Write never waits for the underlying writer. One goroutine writes the
// lines in order. Lines that arrive while the queue is full are dropped and counted. It is safe for
// concurrent use. [LogQueue.Close] ends it.
type LogQueue struct {
	w     io.Writer
	wake  chan struct{} // has a token if there may be something to write; closed by Close
	timer *time.Timer   // fires when waiting lines are due
	done  chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	notice  func(dropped uint64) []byte // formats the line that replaces dropped lines
	waiting [][]byte                    // blocks of whole lines
	spare   []byte                      // an empty block, or nil
	size    int                         // of all blocks: waiting, being written, and the spare one
	lost    uint64                      // lines dropped after the waiting ones
	dropped uint64                      // lines dropped in all
	closed  bool
}

// NewLogQueue returns a queue in front of w and starts its goroutine.
func NewLogQueue(w io.Writer) *LogQueue {
	q := &LogQueue{w: w, wake: make(chan struct{}, 1), timer: time.NewTimer(logDelay), done: make(chan struct{})}
	go q.run()
	return q
}

// Write queues a line to be written at once, or drops it. It never fails. Each call must be one line.
func (q *LogQueue) Write(line []byte) (int, error) {
	q.add(line, true)
	return len(line), nil
}

// add queues a line, or drops it. The line and those before it are written at once, or after logDelay.
func (q *LogQueue) add(line []byte, atOnce bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	first := len(q.waiting) == 0
	if q.closed || q.lost > 0 || !q.extend(len(line)) {
		q.lost++ // later lines are dropped too, so that the gap is in one place
		q.dropped++
		atOnce = true
	} else {
		last := &q.waiting[len(q.waiting)-1]
		*last = append(*last, line...)
	}
	switch {
	case q.closed:
	case atOnce:
		select {
		case q.wake <- struct{}{}:
		default:
		}
	case first: // else the timer is set already
		q.timer.Reset(logDelay)
	}
}

// extend makes the last block long enough for n more bytes. It reports whether the limit allows that.
func (q *LogQueue) extend(n int) bool {
	if last := len(q.waiting) - 1; last >= 0 && cap(q.waiting[last])-len(q.waiting[last]) >= n {
		return true
	}
	block := q.spare
	if block != nil && n <= logBlock {
		q.spare = nil
	} else if n = max(n, logBlock); q.size+n <= logLimit {
		block = make([]byte, 0, n)
		q.size += n
	} else {
		return false
	}
	q.waiting = append(q.waiting, block)
	return true
}

// Dropped returns how many lines have been dropped, or could not be written.
func (q *LogQueue) Dropped() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// Close writes the queued lines and ends the goroutine. It returns after patience even if
// w still blocks. The queued lines are then lost, and the goroutine ends with the write
// that blocks. Later lines are dropped.
func (q *LogQueue) Close(patience time.Duration) {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.wake)
	}
	q.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-q.done:
	case <-timer.C:
	}
}

// run writes until the queue is closed and empty.
func (q *LogQueue) run() {
	defer close(q.done)
	var blocks [][]byte
	var missing uint64 // lines dropped that no notice has reported
	for open := true; open; {
		select {
		case _, open = <-q.wake:
		case <-q.timer.C:
		}
		var lost uint64
		var notice func(uint64) []byte
		blocks, lost, notice = q.take(blocks)
		for i, block := range blocks {
			missing += q.write(block)
			blocks[i] = nil
			q.release(block)
		}
		missing += lost
		if missing > 0 && notice != nil {
			if _, err := q.w.Write(notice(missing)); err == nil {
				missing = 0
			}
		}
	}
}

// take returns the waiting blocks, and replaces them by an empty list in the memory of done.
func (q *LogQueue) take(done [][]byte) (blocks [][]byte, lost uint64, notice func(uint64) []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	blocks, lost = q.waiting, q.lost
	q.waiting, q.lost = done[:0], 0
	return blocks, lost, q.notice
}

// release makes room for another block.
func (q *LogQueue) release(block []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.spare == nil && cap(block) == logBlock {
		q.spare = block[:0]
	} else {
		q.size -= cap(block)
	}
}

// write returns how many lines it could not write. Each write has whole lines, as many as
// a pipe accepts atomically. Other output on standard error, such as the runtime's trace
// of the collector, then appears between lines.
func (q *LogQueue) write(lines []byte) uint64 {
	for len(lines) > 0 {
		n, err := q.w.Write(lines[:whole(lines)])
		lines = lines[n:]
		if err != nil {
			failed := uint64(bytes.Count(lines, []byte("\n")))
			q.mu.Lock()
			defer q.mu.Unlock()
			q.dropped += failed
			return failed
		}
	}
	return 0
}

// whole returns the length of the lines at the start that fit into one pipePiece, or of
// the first line if that alone is longer.
func whole(lines []byte) int {
	if len(lines) <= pipePiece {
		return len(lines)
	}
	if end := bytes.LastIndexByte(lines[:pipePiece], '\n'); end >= 0 {
		return end + 1
	}
	if end := bytes.IndexByte(lines, '\n'); end >= 0 {
		return end + 1
	}
	return len(lines)
}
