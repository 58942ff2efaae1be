//go:build linux

package replicas

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/wait"
)

// fetched is the result of one call of a steady load.
type fetched struct {
	began, ended time.Time
	replica      string // the replica on which it ended
	err          error
	success      bool
}

// load is a number of workers that each run one unary fetch at a time.
type load struct {
	caller *caller
	origin *origin.Origin

	mu   sync.Mutex
	done []fetched
	stop context.CancelFunc
	wait sync.WaitGroup
}

// startLoad starts workers that fetch until finish.
func startLoad(ctx context.Context, c *caller, o *origin.Origin, workers int) *load {
	l := &load{caller: c, origin: o}
	ctx, l.stop = context.WithCancel(ctx)
	for i := range workers {
		l.wait.Go(func() { l.work(ctx, i) })
	}
	return l
}

func (l *load) work(ctx context.Context, worker int) {
	random := rand.New(rand.NewPCG(1, uint64(worker)))
	for ctx.Err() == nil {
		delay := 5 + random.IntN(46)
		l.one(ctx, l.origin.URL("http", fmt.Sprintf("/s/steady%d/200:size=1000,delay=%dms", worker, delay)))
	}
}

// one makes a call. The end of the load does not cancel it, because that would be a failure
// caused by the test itself.
func (l *load) one(ctx context.Context, url string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	var at peer.Peer
	f := fetched{began: time.Now()}
	resp, err := l.caller.FetchUnary(ctx, &pb.FetchRequest{Url: url}, grpc.Peer(&at))
	f.ended, f.err = time.Now(), err
	f.success = resp.GetOutcome().GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS
	if at.Addr != nil {
		f.replica = at.Addr.String()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = append(l.done, f)
}

// finish ends the load and returns all calls, in the order of their ends.
func (l *load) finish() []fetched {
	l.stop()
	l.wait.Wait()
	return l.done
}

// flow counts the successful fetches in the second that starts at at.
func flow(calls []fetched, at time.Time) int {
	n := 0
	for _, f := range calls {
		if f.success && !f.ended.Before(at) && f.ended.Before(at.Add(time.Second)) {
			n++
		}
	}
	return n
}

// serves returns when the first call that started after at succeeded on the replica.
func (l *load) serves(ctx context.Context, replica string, at time.Time) (time.Time, error) {
	seen, first := 0, time.Time{}
	err := wait.Until(ctx, 5*time.Millisecond, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for ; seen < len(l.done) && first.IsZero(); seen++ {
			if f := l.done[seen]; f.success && f.replica == replica && f.began.After(at) {
				first = f.ended
			}
		}
		return !first.IsZero()
	})
	return first, err
}

// failed describes a failed call.
func (f *fetched) failed() string {
	return fmt.Sprintf("a call on %s, %v long, ended %s: %v", f.replica, f.ended.Sub(f.began).Round(time.Millisecond), status.Code(f.err), f.err)
}

func (f *fetched) code() codes.Code { return status.Code(f.err) }
