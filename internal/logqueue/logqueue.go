// Package logqueue keeps a log that nobody reads from stopping the program that
// writes it.
package logqueue

import (
	"bytes"
	"io"
	"sync"
	"time"
)

const (
	// limit bounds the bytes that wait: some 20,000 lines, so that a reader may pause
	// for a second under load. As many more may be in the write in flight.
	limit = 8 << 20
	// keep is the largest buffer that is kept for the next lines.
	keep = 64 << 10
	// piece is the most that a pipe takes in one piece (PIPE_BUF of Linux), whoever
	// else writes to it.
	piece = 4 << 10
)

// Queue is an [io.Writer] whose Write never waits for the writer behind it. One
// goroutine writes the lines, in their order and as soon as they come. Lines that
// come while the queue is full are dropped and counted. It is safe for concurrent
// use. [Queue.Close] ends it.
type Queue struct {
	w    io.Writer
	wake chan struct{} // has a token if there may be something to write; closed by Close
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	notice  func(dropped uint64) []byte
	waiting []byte
	lost    uint64 // lines dropped after those that wait
	dropped uint64 // lines dropped in all
	closed  bool
}

// New returns a queue before w and starts its goroutine.
func New(w io.Writer) *Queue {
	q := &Queue{w: w, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go q.run()
	return q
}

// Notice sets the function that makes the line about dropped lines. The line is
// written where they are missing, once w takes bytes again. Without a notice they
// are only counted.
func (q *Queue) Notice(line func(dropped uint64) []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.notice = line
}

// Write queues a line, or drops it. It never fails. A call is one line.
func (q *Queue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.lost > 0 || len(q.waiting)+len(line) > limit {
		q.lost++ // and so is each line after it, so that the gap has one place
		q.dropped++
	} else {
		q.waiting = append(q.waiting, line...)
	}
	if !q.closed {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
	return len(line), nil
}

// Dropped returns how many lines were dropped, or could not be written, so far.
func (q *Queue) Dropped() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// Close writes the lines that wait and ends the goroutine. It returns after
// patience even if w still blocks: what waits is lost then, and the goroutine ends
// with the write that blocks. Lines that come later are dropped.
func (q *Queue) Close(patience time.Duration) {
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
func (q *Queue) run() {
	defer close(q.done)
	var spare []byte
	var missing uint64 // lines dropped that no notice has reported
	for open := true; open; {
		_, open = <-q.wake
		lines, lost, notice := q.take(spare)
		missing += lost + q.write(lines)
		if missing > 0 && notice != nil {
			if _, err := q.w.Write(notice(missing)); err == nil {
				missing = 0
			}
		}
		if spare = lines[:0]; cap(spare) > keep {
			spare = nil
		}
	}
}

// take returns all that waits, and puts an empty buffer in its place.
func (q *Queue) take(empty []byte) (lines []byte, lost uint64, notice func(uint64) []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines, lost = q.waiting, q.lost
	q.waiting, q.lost = empty, 0
	return lines, lost, q.notice
}

// write returns how many lines it could not write. It writes whole lines, as many
// at once as a pipe takes in one piece: what else the process writes to standard
// error, such as the runtime's trace of the collector, then lands between lines.
func (q *Queue) write(lines []byte) uint64 {
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

// whole returns the length of the lines at the start that fit into one piece, or of
// the first line if that alone is longer.
func whole(lines []byte) int {
	if len(lines) <= piece {
		return len(lines)
	}
	if end := bytes.LastIndexByte(lines[:piece], '\n'); end >= 0 {
		return end + 1
	}
	if end := bytes.IndexByte(lines, '\n'); end >= 0 {
		return end + 1
	}
	return len(lines)
}
