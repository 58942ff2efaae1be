package server

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "fetchd/gen/fetchd/v1"
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
				p := &packer{answers: answers, draining: context.Background(), over: t.Context(), limit: time.Minute, stall: func() {},
					started: func() int { return row.open }, message: new(pb.FetchManyResponse),
					send: func(o *outgoing) error {
						m, _ := o.message.(*pb.FetchManyResponse)
						sent.Add(int32(len(m.GetResponses())))
						return nil
					}}
				done := make(chan error, 1)
				go func() { done <- p.run() }()
				for range row.answers {
					answers <- &taskAnswer{response: new(pb.TaskResponse)}
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
