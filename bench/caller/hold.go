package caller

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/wait"
)

// HoldOptions describes fetches to hold open.
type HoldOptions struct {
	// Kind is the method: "unary", "stream" or "many".
	Kind string
	// Target is a URL with a long delay, or one that is always busy.
	Target string
	// GRPC is the HOST:PORT of the service.
	GRPC string
	// Open is the number of fetches; 1 or more.
	Open int
}

// Fetches are started in small batches, because the memory of a burst is not measured.
const (
	openedAtOnce = 40
	openedEvery  = 10 * time.Millisecond
)

// longest is the backoff of held fetches. It is longer than any measurement.
const longest = 5 * time.Minute

// Hold starts fetches that do not end, writes the line "measuring" to log when all are
// started, and holds them until ctx ends. It returns an error if one ends earlier.
func Hold(ctx context.Context, o HoldOptions, log io.Writer) error {
	open, found := map[string]func(*holder, context.Context, int) error{
		"unary": (*holder).unary, "stream": (*holder).stream, "many": (*holder).many,
	}[o.Kind]
	if !found || o.Open < 1 {
		return fmt.Errorf("hold %d by %q: give 1 or more, and unary, stream or many", o.Open, o.Kind)
	}
	clients, closed, err := dial(o.GRPC, o.Open)
	if err != nil {
		return err
	}
	defer closed()
	h := &holder{clients: clients, failed: make(chan error, 1), request: &pb.FetchRequest{Url: o.Target,
		RetryPolicy:   &pb.RetryPolicy{BaseDelay: durationpb.New(longest), MaxDelay: durationpb.New(longest)},
		TimeoutPolicy: &pb.TimeoutPolicy{TotalTimeout: durationpb.New(2 * longest), AttemptTimeout: durationpb.New(longest), HeaderTimeout: durationpb.New(longest)}}}
	ctx, cancel := context.WithCancel(ctx)
	defer h.running.Wait()
	defer cancel()
	if err := open(h, ctx, o.Open); err != nil {
		return err
	}
	_, _ = io.WriteString(log, "measuring\n")
	select {
	case err := <-h.failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

type holder struct {
	clients []pb.FetchServiceClient
	request *pb.FetchRequest
	running sync.WaitGroup
	failed  chan error
}

// fail records that a fetch ended too early.
func (h *holder) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	select {
	case h.failed <- err:
	default: // one error is enough
	}
}

// paced calls start n times, in batches.
func paced(ctx context.Context, n int, start func(i int) error) error {
	for i := range n {
		if i%openedAtOnce == 0 && !wait.For(ctx, openedEvery) {
			return context.Cause(ctx)
		}
		if err := start(i); err != nil {
			return err
		}
	}
	return nil
}

func (h *holder) unary(ctx context.Context, n int) error {
	req := &pb.FetchUnaryRequest{Request: h.request}
	return paced(ctx, n, func(i int) error {
		h.running.Go(func() {
			resp, err := h.clients[i%len(h.clients)].FetchUnary(ctx, req)
			h.fail(ctx, fmt.Errorf("a fetch that is held ended: %v, %w", resp.GetOutcome(), err))
		})
		return nil
	})
}

func (h *holder) stream(ctx context.Context, n int) error {
	return paced(ctx, n, func(i int) error {
		h.running.Go(func() {
			for m, err := range client.Wrap(h.clients[i%len(h.clients)]).Events(ctx, h.request) {
				if err != nil || m.GetOutcome() != nil {
					h.fail(ctx, fmt.Errorf("a fetch that is held ended: %v, %w", m.GetOutcome(), err))
				}
			}
		})
		return nil
	})
}

func (h *holder) many(ctx context.Context, n int) error {
	pool := client.NewPool()
	pool.Open(ctx, client.Wrap(h.clients[0]), (n+client.StreamTasks-1)/client.StreamTasks, nil)
	h.running.Go(func() {
		<-ctx.Done()
		pool.Close()
	})
	return paced(ctx, n, func(int) error {
		h.running.Go(func() {
			outcome, err := pool.Do(ctx, client.Task{Request: h.request})
			h.fail(ctx, fmt.Errorf("a task that is held ended: %v, %w", outcome, err))
		})
		return nil
	})
}
