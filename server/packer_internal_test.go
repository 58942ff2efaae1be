package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
	"fetchd/server/internal/admission"
	"fetchd/server/internal/wire"
)

// TestPacker checks when a message is sent, by the number of tasks in flight that could fill it.
func TestPacker(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		answers int
		open    int // after them
		sent    int // at once
		after   time.Duration
	}{
		{"the only task", 1, 0, 1, 0},
		{"the first of a few", 1, packAnswers - 2, 1, 0},
		{"the first of as many as fill a message", 1, packAnswers - 1, 0, packTime},
		{"the first of many", 1, 1000, 0, packTime},
		{"a full message", packAnswers, 1000, packAnswers, 0},
		{"one more than a message holds", packAnswers + 1, 1000, packAnswers, packTime},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var sent atomic.Int32
				answers := make(chan *taskAnswer)
				p := &packer{answers: answers, draining: context.Background(), over: t.Context(), limit: time.Minute, silence: time.Hour, stall: func() {},
					started: func() int { return row.open }, message: new(pb.FetchManyResponse),
					send: func(o *wire.Outgoing) error {
						m, _ := o.Message.(*pb.FetchManyResponse)
						sent.Add(int32(len(m.GetEvents())))
						return nil
					}}
				done := make(chan error, 1)
				go func() { done <- p.run() }()
				for range row.answers {
					answers <- new(taskAnswer)
				}
				if synctest.Wait(); int(sent.Load()) != row.sent {
					t.Errorf("%d answers of %d went out at once, want %d", sent.Load(), row.answers, row.sent)
				}
				<-time.After(row.after + 1)
				if synctest.Wait(); int(sent.Load()) != row.answers {
					t.Errorf("%d answers of %d went out after %v, want all", sent.Load(), row.answers, row.after)
				}
				close(answers)
				if err := <-done; err != nil {
					t.Errorf("run = %v", err)
				}
			})
		})
	}
}

// TestPackerHeartbeat checks that a stream goes on if there is no memory for a message that breaks the silence.
func TestPackerHeartbeat(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int64]int{1 << 20: 2, 1: 0} {
		synctest.Test(t, func(t *testing.T) {
			sent, answers := 0, make(chan *taskAnswer)
			p := &packer{answers: answers, draining: context.Background(), over: t.Context(), limit: time.Minute, silence: 10 * time.Second, stall: func() {},
				caller: t.Context(), memory: budget.New(limit), message: new(pb.FetchManyResponse),
				send: func(o *wire.Outgoing) error { sent++; o.Release(); return nil }}
			time.AfterFunc(25*time.Second, func() { close(answers) })
			if err := p.run(); err != nil || sent != want {
				t.Errorf("%d bytes: %d messages, %v; want %d", limit, sent, err, want)
			}
		})
	}
}

// answerOf returns an answer without an event.
func answerOf(tag string) *taskAnswer {
	a := new(taskAnswer)
	a.event.Tag = tag
	a.size = wire.SizeOf(&a.event)
	return a
}

// TestPackerChunks checks what is sent with a chunk, and the result that its task receives.
func TestPackerChunks(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	const small = "a b c"
	for _, row := range []struct {
		name   string
		memory int64 // the budget
		held   int64 // the hold-back of the task
		data   int   // bytes of the chunk
		over   bool  // its task has ended
		ending bool  // the server ends all tasks
		err    error // of the send
		sent   []string
		result error
	}{
		{"a chunk that fits into the message", 1 << 20, 0, 31 << 10, false, false, nil, []string{small + " chunk"}, nil},
		{"a chunk that does not", 1 << 20, 0, wire.LongAnswer, false, false, nil, []string{small, "chunk"}, nil},
		{"no memory", 1 << 10, 0, 1000, false, false, nil, []string{small}, fetch.ErrOutOfMemory},
		{"no memory besides the hold-back", 45_000, 31 << 10, 31 << 10, false, false, nil, []string{small + " chunk"}, nil},
		{"of a task that has ended", 1 << 20, 0, 1000, true, false, nil, []string{small}, fetch.ErrCancelled},
		{"at the end of a drain", 1 << 20, 0, 1000, false, true, nil, []string{small}, fetch.ErrCancelled},
		{"a send that fails", 1 << 20, 0, 1000, false, false, failed, []string{small + " chunk"}, failed},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var sent []string
				ending, end := context.WithCancel(context.Background())
				defer end()
				memory := budget.New(row.memory)
				answers, chunks := make(chan *taskAnswer), make(chan *taskChunk)
				p := &packer{answers: answers, chunks: chunks, draining: context.Background(), ending: ending, over: t.Context(), limit: time.Minute, silence: time.Hour,
					stall: func() {}, started: func() int { return 1000 }, message: new(pb.FetchManyResponse),
					send: func(o *wire.Outgoing) error {
						m, _ := o.Message.(*pb.FetchManyResponse)
						var tags []string
						for _, r := range m.GetEvents() {
							tags = append(tags, r.GetTag())
						}
						sent = append(sent, strings.Join(tags, " "))
						if held := memory.Usage()[budget.Answer]; (held > 0) != slices.Contains(tags, "chunk") {
							t.Errorf("%d bytes are charged for %q", held, tags)
						}
						o.Release()
						return row.err
					}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c := &taskChunk{ctx: ctx, ticket: admission.New(memory, nil, "", "", "", nil).NewTicket("", nil, nil), sent: make(chan error, 1)}
				if !c.ticket.Memory.Grow(budget.HoldBack, row.held) {
					t.Fatal("the hold-back was refused")
				}
				c.task.Tag, c.task.Event = "chunk", &c.event
				c.event.Event = &pb.FetchEvent_BodyChunk{BodyChunk: &pb.BodyChunk{Data: make([]byte, row.data)}}
				if row.over {
					cancel()
				}
				if row.ending {
					end()
				}
				go func() { chunks <- c }() // all are ready before the packer starts
				for _, tag := range strings.Fields(small) {
					go func() { answers <- answerOf(tag) }()
					synctest.Wait()
				}
				done := make(chan error, 1)
				go func() { done <- p.run() }()
				if got := <-c.sent; !errors.Is(got, row.result) {
					t.Errorf("the task gets %v, want %v", got, row.result)
				}
				synctest.Wait()
				if !slices.Equal(sent, row.sent) {
					t.Errorf("sent %q, want %q", sent, row.sent)
				}
				if row.err == nil {
					close(answers)
				}
				if err := <-done; !errors.Is(err, row.err) {
					t.Errorf("run = %v, want %v", err, row.err)
				}
				if held := memory.Usage().Total(); held != 0 {
					t.Errorf("%d bytes are held at the end", held)
				}
			})
		})
	}
}

// TestPackerSendsAnswersBetweenChunks checks that the answers that became ready while a chunk was sent
// go before the next chunk.
func TestPackerSendsAnswersBetweenChunks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		blocked := make(chan struct{})
		answers, chunks := make(chan *taskAnswer), make(chan *taskChunk)
		p := &packer{answers: answers, chunks: chunks, draining: context.Background(), ending: context.Background(), over: t.Context(), limit: time.Minute, silence: time.Hour,
			stall: func() {}, started: func() int { return 1000 }, message: new(pb.FetchManyResponse),
			send: func(o *wire.Outgoing) error {
				m, _ := o.Message.(*pb.FetchManyResponse)
				for _, r := range m.GetEvents() {
					sent = append(sent, r.GetTag())
				}
				o.Release()
				<-blocked
				return nil
			}}
		memory := budget.New(1 << 20)
		for _, tag := range []string{"one", "two"} { // chunks of two large tasks
			c := &taskChunk{ctx: t.Context(), ticket: admission.New(memory, nil, "", "", "", nil).NewTicket("", nil, nil), sent: make(chan error, 1)}
			c.task.Tag, c.task.Event = tag, &c.event
			c.event.Event = &pb.FetchEvent_BodyChunk{BodyChunk: &pb.BodyChunk{Data: make([]byte, 31<<10)}}
			go func() {
				for range 3 {
					select {
					case chunks <- c:
						if <-c.sent != nil {
							return
						}
					case <-t.Context().Done():
					}
				}
			}()
			synctest.Wait()
		}
		done := make(chan error, 1)
		go func() { done <- p.run() }()
		synctest.Wait() // the first chunk is being sent
		for i := range 40 {
			go func() { answers <- answerOf("small") }()
			if i == 19 {
				synctest.Wait()
				blocked <- struct{}{}
				synctest.Wait()
			}
		}
		synctest.Wait()
		close(blocked)
		synctest.Wait()
		close(answers)
		if err := <-done; err != nil {
			t.Errorf("run = %v", err)
		}
		want := slices.Concat([]string{"one"}, slices.Repeat([]string{"small"}, 40), []string{"two"})
		if len(sent) != 46 || !slices.Equal(sent[:42], want) {
			t.Errorf("sent %d, which start with %q; want 46, and %q", len(sent), sent[:min(len(sent), 42)], want)
		}
	})
}
