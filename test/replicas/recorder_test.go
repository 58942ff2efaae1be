//go:build linux

package replicas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
)

// recorder makes calls and records them.
type recorder struct {
	caller *caller
	origin *origin.Origin

	mu    sync.Mutex
	calls []*call
	at    map[*call]string // the replica on which a call ended
}

// work makes one call after the other until ctx ends. The calls depend only on the seed.
func (r *recorder) work(ctx context.Context, worker int) {
	random := rand.New(rand.NewPCG(2, uint64(worker)))
	for n := 0; ctx.Err() == nil; n++ {
		row := &rows[random.IntN(len(rows))]
		key := fmt.Sprintf("h%d-%d", worker, n)
		c := &call{id: key, kind: row.name, unsure: row.unsure, unary: random.IntN(10) < 3,
			request: row.request(r.origin.URL(row.listener, row.script(key)))}
		if c.unary { // it has no stream
			c.request.BodyPolicy = nil
		}
		var leave time.Duration
		if random.IntN(10) == 0 {
			leave = time.Duration(1+random.IntN(80)) * time.Millisecond
		}
		r.make(ctx, c, leave)
	}
}

// make makes one call and cancels it after leave, unless that is 0. The end of the run does
// not cancel it.
func (r *recorder) make(ctx context.Context, c *call, leave time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	if leave > 0 {
		timer := time.AfterFunc(leave, cancel)
		defer timer.Stop()
	}
	r.mu.Lock()
	r.calls = append(r.calls, c)
	r.mu.Unlock()
	var at peer.Peer
	var err error
	c.began = time.Now()
	if c.unary {
		c.answer, err = r.caller.FetchUnary(ctx, c.request, grpc.Peer(&at))
	} else {
		err = r.stream(ctx, c, &at)
	}
	c.ended, c.code = time.Now(), status.Code(err)
	c.left = leave > 0 && c.code == codes.Canceled
	if at.Addr != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.at[c] = at.Addr.String()
	}
}

func (r *recorder) stream(ctx context.Context, c *call, at *peer.Peer) error {
	stream, err := r.caller.Fetch(ctx, c.request, grpc.Peer(at))
	if err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(m.GetEvents()) == 0 {
			c.events = append(c.events, event{time.Now(), new(pb.FetchEvent)}) // it has no number, which check reports
		}
		for _, e := range m.GetEvents() {
			c.events = append(c.events, event{time.Now(), e})
		}
	}
}

// history returns the recorded calls once all have ended. It marks those that were in
// flight on the killed replica.
func (r *recorder) history(killed string, from, to time.Time) *history {
	h := &history{calls: r.calls, content: r.origin.Body(2 << 20)}
	for _, c := range r.calls {
		c.killed = r.at[c] == killed && c.began.Before(to) && c.ended.After(from)
	}
	for _, q := range r.origin.AllRequests() {
		h.requests = append(h.requests, seen{q.Key, q.Time, q.Method, q.Path, q.End == origin.EndBroken})
	}
	return h
}
