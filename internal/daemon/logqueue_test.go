package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"fetchd/test/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipe is a writer whose reader can stop. It is used in a bubble.
type pipe struct {
	gate   chan struct{} // a write waits for it; closed while the reader reads
	mu     sync.Mutex
	text   bytes.Buffer
	writes [][]byte
	full   error // the error of a write after its first byte
}

// reading returns a pipe that is read, and stuck one that is not read until gate is
// closed.
func reading() *pipe {
	p := stuck()
	close(p.gate)
	return p
}

func stuck() *pipe { return &pipe{gate: make(chan struct{})} }

func (p *pipe) Write(b []byte) (int, error) {
	<-p.gate
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full != nil {
		p.text.Write(b[:1])
		return 1, p.full
	}
	p.writes = append(p.writes, bytes.Clone(b))
	return p.text.Write(b)
}

func (p *pipe) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func (p *pipe) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.full = err
}

// rig is a queue in front of a pipe, in a bubble.
type rig struct {
	*testing.T
	*LogQueue
	pipe *pipe
}

func start(t *testing.T, p *pipe) *rig {
	q := NewLogQueue(p)
	q.notice = func(n uint64) []byte { return fmt.Appendf(nil, "%d dropped\n", n) }
	return &rig{t, q, p}
}

// line writes a line, which must not wait.
func (r *rig) line(text string) {
	r.Helper()
	before := time.Now()
	if n, err := r.Write([]byte(text + "\n")); n != len(text)+1 || err != nil || time.Since(before) != 0 {
		r.Errorf("Write(%.20q) = %d, %v after %s, want %d, nil at once", text, n, err, time.Since(before), len(text)+1)
	}
}

// later writes a line that may wait for others.
func (r *rig) later(text string) { r.add([]byte(text+"\n"), false) }

// want compares what has been written and dropped.
func (r *rig) want(text string, dropped uint64) {
	r.Helper()
	synctest.Wait()
	if diff := cmp.Diff(text, r.pipe.String()); diff != "" {
		r.Errorf("written (-want +got):\n%s", diff)
	}
	if got := r.Dropped(); got != dropped {
		r.Errorf("Dropped() = %d, want %d", got, dropped)
	}
}

// TestRead checks that each line is written at once and in order if the reader reads.
func TestRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, reading())
		r.line("a")
		r.want("a\n", 0)
		want := "a\n"
		for i := range 1000 {
			r.line(fmt.Sprint(i))
			want += fmt.Sprintln(i)
		}
		r.Close(time.Second)
		r.want(want, 0)
		r.Close(time.Second)
		r.line("after the end")
		r.want(want, 1)
	})
}

// TestLater checks that lines wait for others for logDelay, and no longer, in one write, and that a line that is
// written at once overtakes none of them.
func TestLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, reading())
		want := ""
		for i := range 3 {
			r.later("first")
			wait.For(t.Context(), logDelay-1)
			r.later("second")
			r.want(want, 0)
			wait.For(t.Context(), time.Nanosecond)
			want += "first\nsecond\n"
			r.want(want, 0)
			r.later("third")
			wait.For(t.Context(), logDelay-1)
			r.line("urgent")
			r.later("fourth")
			want += "third\nurgent\nfourth\n"
			r.want(want, 0)
			r.later("fifth")
			wait.For(t.Context(), 2*time.Nanosecond) // the time of the third
			r.want(want, 0)
			wait.For(t.Context(), logDelay-2)
			want += "fifth\n"
			r.want(want, 0)
			if got := len(r.pipe.writes); got != 3*(i+1) {
				r.Errorf("%d writes, want %d", got, 3*(i+1))
			}
			wait.For(t.Context(), time.Hour)
		}
		r.later("last")
		r.Close(time.Second)
		r.want(want+"last\n", 0)
	})
}

// TestStuck checks that no write waits if the reader stops, that all blocks together are bounded,
// and that the gap is reported once, in its place.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, stuck())
		r.line("in the write that blocks")
		synctest.Wait()
		const lines, line = 4 * logLimit / 1000, 1000 // a block has room for a short line more
		text := strings.Repeat("x", line-1)
		for range lines {
			r.line(text)
		}
		r.line("short, but after the gap")
		kept := (logLimit/logBlock - 1) * (logBlock / line)
		r.want("", lines-uint64(kept)+1)
		held := 0
		for _, block := range r.waiting {
			held += cap(block)
		}
		if held += logBlock; held > logLimit || r.size != held { // with the block in the write
			r.Errorf("the blocks hold %d bytes, and count as %d, want at most %d", held, r.size, logLimit)
		}
		close(r.pipe.gate)
		want := "in the write that blocks\n" + strings.Repeat(text+"\n", kept) + fmt.Sprintf("%d dropped\n", lines-kept+1)
		r.want(want, lines-uint64(kept)+1)
		r.line("again")
		r.want(want+"again\n", lines-uint64(kept)+1)
		if r.size != logBlock {
			r.Errorf("the blocks of an empty queue hold %d bytes, want %d", r.size, logBlock)
		}
		for _, block := range r.waiting[:cap(r.waiting)] {
			if block != nil {
				r.Fatal("an empty queue holds a block that was written")
			}
		}
		r.Close(time.Second)
	})
}

// TestPieces checks that each write to the pipe has whole lines, and no more than the pipe
// accepts atomically, so that the text of another writer cannot appear within a line.
func TestPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, stuck())
		var want strings.Builder
		for i := range 1000 {
			line := strings.Repeat("z", i*7%(pipePiece/2))
			r.line(line)
			want.WriteString(line + "\n")
		}
		long := strings.Repeat("y", 2*pipePiece)
		r.line(long)
		r.line("last")
		close(r.pipe.gate)
		r.want(want.String()+long+"\nlast\n", 0)
		for _, write := range r.pipe.writes {
			if one := bytes.Count(write, []byte("\n")) == 1; !bytes.HasSuffix(write, []byte("\n")) || len(write) > pipePiece && !one {
				t.Errorf("a write of %d bytes ends with %.10q, want whole lines, and more than %d bytes only for one line", len(write), write[max(0, len(write)-10):], pipePiece)
			}
		}
		r.Close(time.Second)
	})
}

// TestLong checks that a line that is longer than the queue is dropped, and no other.
func TestLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, reading())
		r.line("")
		r.line(strings.Repeat("x", logLimit))
		r.want("\n1 dropped\n", 1)
		long := strings.Repeat("y", logLimit-logBlock-1)
		r.line(long)
		r.want("\n1 dropped\n"+long+"\n", 1)
		r.Close(time.Second)
	})
}

// TestCloseStuck checks that Close waits for the reader for as long as it is given, and
// no longer.
func TestCloseStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, stuck())
		r.line("a")
		r.line("b")
		before := time.Now()
		r.Close(time.Minute)
		if waited := time.Since(before); waited != time.Minute {
			t.Errorf("Close returned after %s, want %s", waited, time.Minute)
		}
		r.line("after the end")
		r.want("", 1)
		close(r.pipe.gate) // ends the goroutine, for which the bubble waits
	})
}

// TestCloseLate checks that queued lines are written at the end if the reader returns in
// time.
func TestCloseLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, stuck())
		r.line("a")
		synctest.Wait()
		r.line("b")
		time.AfterFunc(time.Second, func() { close(r.pipe.gate) })
		before := time.Now()
		r.Close(time.Minute)
		if waited := time.Since(before); waited != time.Second {
			t.Errorf("Close returned after %s, want %s", waited, time.Second)
		}
		r.want("a\nb\n", 0)
	})
}

// TestFailing checks that lines that cannot be written count as dropped.
func TestFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, reading())
		r.pipe.fail(errors.New("no space left"))
		for i := range uint64(3) {
			r.line("lost")
			synctest.Wait()
			if got := r.Dropped(); got != i+1 {
				t.Errorf("Dropped() = %d, want %d", got, i+1)
			}
		}
		r.pipe.fail(nil)
		written := r.pipe.String()
		r.line("good")
		r.want(written+"good\n3 dropped\n", 3)
		r.Close(time.Second)
	})
}

// TestNoNotice checks that the lines are counted without a notice.
func TestNoNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, reading())
		r.notice = nil
		r.line(strings.Repeat("x", logLimit))
		r.want("", 1)
		r.Close(time.Second)
	})
}

// TestManyWriters checks that no line is lost or split.
func TestManyWriters(t *testing.T) {
	t.Parallel()
	const writers, lines = 8, 500
	p := reading()
	q := NewLogQueue(p)
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for i := range lines {
				q.add([]byte("0123456789\n"), i%10 == 0)
			}
		})
	}
	all.Wait()
	q.Close(time.Minute)
	if got, want := p.String(), strings.Repeat("0123456789\n", writers*lines); got != want || q.Dropped() != 0 {
		t.Errorf("%d bytes, %d lines dropped, want %d and none", len(got), q.Dropped(), len(want))
	}
}
