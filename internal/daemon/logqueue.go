package daemon

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// logLimit is the maximum of queued bytes: some 20,000 lines, so that a reader may pause
	// for a second under load. The write in progress may hold as many again.
	logLimit = 8 << 20
	// logKept is the largest buffer that is kept for later lines.
	logKept = 64 << 10
	// pipePiece is how many bytes a pipe accepts atomically (PIPE_BUF of Linux), whatever else
	// writes to it.
	pipePiece = 4 << 10
)

// NewLogger returns a logger for the formats text and json.
func NewLogger(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// LogQueue is an [io.Writer] whose Write never waits for the underlying writer. One
// goroutine writes the lines in order, as soon as they arrive. Lines that arrive while
// the queue is full are dropped and counted. It is safe for concurrent use.
// [LogQueue.Close] ends it.
type LogQueue struct {
	w    io.Writer
	wake chan struct{} // has a token if there may be something to write; closed by Close
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	notice  func(dropped uint64) []byte
	waiting []byte
	lost    uint64 // lines dropped after the queued ones
	dropped uint64 // lines dropped in all
	closed  bool
}

// NewLogQueue returns a queue in front of w and starts its goroutine.
func NewLogQueue(w io.Writer) *LogQueue {
	q := &LogQueue{w: w, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go q.run()
	return q
}

// Notice sets the function that formats the line about dropped lines. The line is written
// in their place, once w accepts bytes again. Without a notice they are only counted.
func (q *LogQueue) Notice(line func(dropped uint64) []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.notice = line
}

// Write queues a line, or drops it. It never fails. Each call must be one line.
func (q *LogQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.lost > 0 || len(q.waiting)+len(line) > logLimit {
		q.lost++ // later lines are dropped too, so that the gap is in one place
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
		if spare = lines[:0]; cap(spare) > logKept {
			spare = nil
		}
	}
}

// take returns the queued lines, and replaces them by an empty buffer.
func (q *LogQueue) take(empty []byte) (lines []byte, lost uint64, notice func(uint64) []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines, lost = q.waiting, q.lost
	q.waiting, q.lost = empty, 0
	return lines, lost, q.notice
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
