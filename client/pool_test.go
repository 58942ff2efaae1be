package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server/fetchdtest"
)

// The limits that Pool documents.
const (
	cancelTimeout = 30 * time.Second
	idleTimeout   = 10 * time.Second
)

// openPool keeps a stream to each service until the test ends.
func openPool(t *testing.T, services ...*fake) *client.Pool {
	t.Helper()
	p := client.NewPool()
	ctx, cancel := context.WithCancel(context.Background())
	for _, s := range services {
		p.Open(ctx, s.client(t), 1, nil)
	}
	t.Cleanup(func() { cancel(); p.Close() })
	return p
}

// pooled is what Do returned.
type pooled struct {
	outcome *pb.FetchOutcome
	err     error
	took    time.Duration
	events  int
}

// start starts a fetch that must be sent within a time.
func start(ctx context.Context, p *client.Pool, within time.Duration, request *pb.FetchRequest) <-chan pooled {
	c := make(chan pooled, 1)
	go func() {
		var r pooled
		started := time.Now()
		r.outcome, r.err = p.Do(ctx, client.Task{Request: request, SendBefore: started.Add(within), OnEvent: func(*pb.FetchEvent) { r.events++ }})
		r.took = time.Since(started)
		c <- r
	}()
	return c
}

// firstTag reads messages up to the first one with tasks.
func firstTag(s manyServer) (string, error) {
	for {
		m, err := s.Recv()
		if err != nil || len(m.GetTasks()) > 0 {
			return m.GetTasks()[0].GetTag(), err
		}
	}
}

func afterTask(f func(s manyServer, tag string) error) func(manyServer) error {
	return func(s manyServer) error {
		tag, err := firstTag(s)
		if err != nil {
			return nil // the client left
		}
		return f(s, tag)
	}
}

func silent(s manyServer) error {
	<-s.Context().Done()
	return nil
}

func failed(tag string, class pb.ErrorClass) *pb.FetchManyResponse {
	m := done(tag)
	o := m.GetEvents()[0].GetEvent().GetOutcome()
	o.Kind, o.Error = pb.OutcomeKind_OUTCOME_KIND_FAILED, &pb.FetchError{ErrorClass: class}
	return m
}

// TestPoolAndService: the result of Do for everything that a service may do.
func TestPoolAndService(t *testing.T) {
	t.Parallel()
	const cancelAfter, before = time.Minute, 2 * time.Minute
	const success, cancelled = pb.OutcomeKind_OUTCOME_KIND_SUCCESS, pb.ErrorClass_ERROR_CLASS_CANCELLED
	for _, row := range []struct {
		name string
		many func(manyServer) error
		kind pb.OutcomeKind
		err  error
		took time.Duration
	}{
		{"answers", afterTask(func(s manyServer, tag string) error { return s.Send(done(tag)) }), success, nil, 0},
		{"answers twice", afterTask(func(s manyServer, tag string) error {
			return errors.Join(s.Send(done(tag)), s.Send(failed(tag, cancelled)), silent(s))
		}), success, nil, 0},
		{"answers unknown tags first", afterTask(func(s manyServer, tag string) error {
			return errors.Join(s.Send(failed("", cancelled)), s.Send(failed("unknown", cancelled)), s.Send(done(tag)), silent(s))
		}), success, nil, 0},
		{"sends nothing that is known", afterTask(func(s manyServer, tag string) error {
			return errors.Join(s.Send(new(pb.FetchManyResponse)), s.Send(&pb.FetchManyResponse{Events: []*pb.TaskEvent{{Tag: tag}}}), s.Send(done(tag)), silent(s))
		}), success, nil, 0},
		{"drains, and answers unknown tags", afterTask(func(s manyServer, tag string) error {
			return errors.Join(s.Send(&pb.FetchManyResponse{Draining: true}), s.Send(done(tag)), s.Send(&pb.FetchManyResponse{Draining: true}),
				s.Send(failed("", cancelled)), s.Send(failed("", cancelled)), s.Send(failed(tag, cancelled)), silent(s))
		}), success, nil, 0},
		{"ends the stream", afterTask(func(manyServer, string) error { return nil }), 0, client.ErrContract, 0},
		{"ends with an error", afterTask(func(manyServer, string) error { return status.Error(codes.Internal, "") }), 0, client.ErrLost, 0},
		{"answers a cancel", afterTask(func(s manyServer, tag string) error {
			m, err := s.Recv()
			if err != nil || len(m.GetCancelTags()) != 1 || m.GetCancelTags()[0] != tag {
				return fmt.Errorf("%v, %w", m, err)
			}
			return errors.Join(s.Send(failed(tag, cancelled)), silent(s))
		}), pb.OutcomeKind_OUTCOME_KIND_FAILED, nil, cancelAfter},
		{"never answers", afterTask(func(s manyServer, _ string) error { return silent(s) }), 0, client.ErrLost, cancelAfter + cancelTimeout},
		{"does not read", silent, 0, client.ErrLost, cancelAfter + cancelTimeout},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := openPool(t, &fake{many: row.many})
				ctx, cancel := context.WithTimeout(t.Context(), cancelAfter)
				defer cancel()
				got := <-start(ctx, p, before, new(pb.FetchRequest))
				if got.outcome.GetKind() != row.kind || errors.Is(got.err, client.ErrLost) != (row.err != nil) || row.err != nil && !errors.Is(got.err, row.err) || got.took != row.took {
					t.Errorf("%v, %v after %v; want %v, %v after %v", got.outcome, got.err, got.took, row.kind, row.err, row.took)
				}
				if _, isFailure := errors.AsType[*client.Error](got.err); isFailure != (row.kind == pb.OutcomeKind_OUTCOME_KIND_FAILED) {
					t.Errorf("error %v for outcome %v", got.err, row.kind)
				}
				synctest.Wait() // for what comes after the outcome
			})
		})
	}
}

// TestPoolWithoutService: nothing was sent, so nothing was lost.
func TestPoolWithoutService(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name        string
		ctx, before time.Duration
		want        error
		took        time.Duration
	}{
		{name: "too late", ctx: time.Hour, before: time.Minute, want: client.ErrNotSent, took: time.Minute},
		{name: "cancelled", ctx: time.Minute, before: time.Hour, want: context.DeadlineExceeded, took: time.Minute},
		{name: "late from the start", ctx: time.Hour, before: 0, want: client.ErrNotSent},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := openPool(t, &fake{ping: func(context.Context) error { return status.Error(codes.Unavailable, "") }})
				ctx, cancel := context.WithTimeout(t.Context(), row.ctx)
				defer cancel()
				got := <-start(ctx, p, row.before, new(pb.FetchRequest))
				if !errors.Is(got.err, row.want) || errors.Is(got.err, client.ErrLost) || got.took != row.took {
					t.Errorf("%v after %v, want %v after %v", got.err, got.took, row.want, row.took)
				}
			})
		})
	}
}

// TestPoolWithoutFetches checks that a stream stays open while there is no fetch for it, longer than a
// service waits for the first message of a call.
func TestPoolWithoutFetches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, InMemory: true})
		p := client.NewPool()
		p.Open(t.Context(), client.New(s.Conn), 2, func(err error, _ time.Duration) { t.Errorf("lost: %v", err) })
		time.Sleep(10 * time.Minute) //nolint:forbidigo // time of the bubble
		if n, _ := p.Capacity(); n != 2*client.StreamTasks {
			t.Errorf("capacity for %d fetches, want %d", n, 2*client.StreamTasks)
		}
		p.Close()
	})
}

// TestPoolLost: streams are replaced, after longer and longer waits if that fails.
func TestPoolLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{ping: func(context.Context) error { return status.Error(codes.Unavailable, "") }}
		p := client.NewPool()
		var waits []time.Duration
		p.Open(t.Context(), f.client(t), 1, func(err error, retryIn time.Duration) {
			if status.Code(err) != codes.Unavailable {
				t.Errorf("lost: %v, want Unavailable", err)
			}
			waits = append(waits, retryIn)
		})
		time.Sleep(20 * time.Second) //nolint:forbidigo // time of the bubble
		p.Close()
		if got, want := fmt.Sprint(waits), "[100ms 200ms 400ms 800ms 1.6s 3.2s 5s 5s 5s]"; got != want {
			t.Errorf("waits %s, want %s", got, want)
		}
		if _, err := p.Do(t.Context(), client.Task{}); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("a closed pool returns %v, want fs.ErrClosed", err)
		}
	})
}

// TestPoolBalances: each fetch goes to the stream with the fewest.
func TestPoolBalances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		got := map[int]int{}
		release := make(chan struct{})
		var services []*fake
		for i := range 3 {
			services = append(services, &fake{many: afterTask(func(s manyServer, tag string) error {
				mu.Lock()
				got[i]++
				mu.Unlock()
				<-release
				return errors.Join(s.Send(done(tag)), silent(s))
			})})
		}
		p := openPool(t, services...)
		synctest.Wait()
		if n, _ := p.Capacity(); n != 3*client.StreamTasks {
			t.Errorf("capacity %d, want %d", n, 3*client.StreamTasks)
		}
		var all []<-chan pooled
		for range 3 {
			all = append(all, start(t.Context(), p, time.Hour, new(pb.FetchRequest)))
			synctest.Wait()
		}
		mu.Lock()
		if got[0] != 1 || got[1] != 1 || got[2] != 1 {
			t.Errorf("fetches by service: %v, want 1 each", got)
		}
		mu.Unlock()
		close(release)
		for _, c := range all {
			if r := <-c; r.err != nil {
				t.Error(r.err)
			}
		}
	})
}

// TestPoolFull: fetches beyond the capacity wait for one that ends.
func TestPoolFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const more = 3
		f := &fake{many: holding(client.StreamTasks)}
		p := openPool(t, f)
		var all []<-chan pooled
		for range client.StreamTasks - 1 {
			all = append(all, start(t.Context(), p, time.Hour, new(pb.FetchRequest)))
		}
		synctest.Wait()
		for range 1 + more { // the first completes the number that the service holds
			all = append(all, start(t.Context(), p, time.Hour, new(pb.FetchRequest)))
		}
		for _, c := range all {
			if r := <-c; r.err != nil {
				t.Error(r.err)
			}
		}
	})
}

// TestPoolDraining: a draining service finishes what it has, and gets nothing more.
func TestPoolDraining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release, halfClosed := make(chan struct{}), make(chan error, 1)
		var streams atomic.Int64
		p := openPool(t, &fake{many: func(s manyServer) error {
			if streams.Add(1) > 1 {
				return answerAll(s)
			}
			tag, err := firstTag(s)
			err = errors.Join(err, s.Send(&pb.FetchManyResponse{Draining: true}))
			<-release
			err = errors.Join(err, s.Send(done(tag)))
			_, end := s.Recv()
			halfClosed <- end
			return err
		}})
		early := start(t.Context(), p, time.Hour, new(pb.FetchRequest))
		time.Sleep(time.Second) //nolint:forbidigo // time of the bubble, in which the second stream opens
		if r := <-start(t.Context(), p, time.Hour, new(pb.FetchRequest)); r.err != nil || r.took != 0 {
			t.Errorf("the second fetch: %v after %v, want an outcome at once", r.err, r.took)
		}
		close(release)
		if r := <-early; r.err != nil {
			t.Errorf("the first fetch: %v, %v; want its outcome", r.outcome, r.err)
		}
		if err := <-halfClosed; !errors.Is(err, io.EOF) {
			t.Errorf("the first stream ends with %v, want a half-close", err)
		}
		if n := streams.Load(); n != 2 {
			t.Errorf("%d streams, want 2", n)
		}
	})
}

// TestPoolCloses: streams end in order, and those that their service does not end are broken.
func TestPoolCloses(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		service *fake
		took    time.Duration
	}{
		"a service that ends streams":     {&fake{many: answerAll}, 0},
		"a service that does not":         {&fake{many: silent}, idleTimeout},
		"a service that is not available": {&fake{ping: func(context.Context) error { return status.Error(codes.Unavailable, "") }}, 0},
		"a service that does not answer":  {&fake{ping: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := client.NewPool()
				p.Open(t.Context(), row.service.client(t), 1, nil)
				synctest.Wait()
				started := time.Now()
				p.Close()
				if took := time.Since(started); took != row.took {
					t.Errorf("closing took %v, want %v", took, row.took)
				}
			})
		})
	}
}

// TestPoolLeavesSilentStream: a stream whose service does not answer a cancel gets no more
// fetches.
func TestPoolLeavesSilentStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Duration, 1)
		var streams atomic.Int64
		p := openPool(t, &fake{many: func(s manyServer) error {
			if streams.Add(1) > 1 {
				return answerAll(s)
			}
			started := time.Now()
			<-s.Context().Done()
			ended <- time.Since(started)
			return nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r := <-start(ctx, p, time.Hour, new(pb.FetchRequest)); !errors.Is(r.err, client.ErrLost) {
			t.Errorf("%v, want ErrLost", r.err)
		}
		if r := <-start(t.Context(), p, time.Hour, new(pb.FetchRequest)); r.err != nil {
			t.Errorf("%v, want an outcome by another stream", r.err)
		}
		if got, want := <-ended, time.Second+cancelTimeout+idleTimeout; got != want {
			t.Errorf("the first stream lasted %v, want %v", got, want)
		}
	})
}

// TestPoolBlockedStream: a service does not read, so two fetches fill the buffers and others are
// not sent. They are withdrawn when they are late, the service cannot answer them, and they move
// to another stream when this one ends.
func TestPoolBlockedStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		guess, release := make(chan struct{}), make(chan struct{})
		var streams atomic.Int64
		p := openPool(t, &fake{many: func(s manyServer) error {
			if streams.Add(1) > 1 {
				return answerAll(s)
			}
			<-guess
			if err := s.Send(done("4")); err != nil {
				return err
			}
			<-release
			return status.Error(codes.Unavailable, "")
		}})
		large := &pb.FetchRequest{Body: make([]byte, 1<<20)}
		first := start(t.Context(), p, time.Hour, large)
		synctest.Wait()
		second := start(t.Context(), p, time.Hour, large)
		synctest.Wait()
		request := &pb.FetchRequest{Body: make([]byte, 1<<20)}
		withdrawn := weak.Make(request)
		late := <-start(t.Context(), p, time.Minute, request)
		if !errors.Is(late.err, client.ErrNotSent) || late.took != time.Minute {
			t.Errorf("the late fetch: %v after %v, want ErrNotSent after a minute", late.err, late.took)
		}
		if runtime.GC(); withdrawn.Value() != nil {
			t.Error("the stream keeps a fetch that was withdrawn")
		}
		moved := start(t.Context(), p, time.Hour, large)
		synctest.Wait()
		close(guess)
		synctest.Wait()
		if len(moved) > 0 {
			t.Fatalf("the service answers a fetch that it did not receive, and Do returns %v", <-moved)
		}
		close(release)
		for _, sent := range []<-chan pooled{first, second} {
			if r := <-sent; !errors.Is(r.err, client.ErrLost) || status.Code(r.err) != codes.Unavailable {
				t.Errorf("a fetch that was sent: %v, want ErrLost with Unavailable", r.err)
			}
		}
		if r := <-moved; r.err != nil {
			t.Errorf("the fetch that was not sent: %v, want its outcome by another stream", r.err)
		}
	})
}

// TestPoolEvents: events are delivered in order before the outcome, and none after.
func TestPoolEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 1000
		p := openPool(t, &fake{many: afterTask(func(s manyServer, tag string) error {
			beat := &pb.FetchManyResponse{Events: []*pb.TaskEvent{{Tag: tag,
				Event: &pb.FetchEvent{Event: &pb.FetchEvent_Heartbeat{Heartbeat: new(pb.Heartbeat)}}}}}
			for range many {
				if err := s.Send(beat); err != nil {
					return err
				}
			}
			return errors.Join(s.Send(done(tag)), s.Send(beat), silent(s))
		})})
		if r := <-start(t.Context(), p, time.Hour, new(pb.FetchRequest)); r.err != nil || r.events != many {
			t.Errorf("%d events, %v; want %d", r.events, r.err, many)
		}
	})
}

// hooked is a context that runs a function each time its Done is called.
type hooked struct {
	context.Context
	done func() <-chan struct{}
}

func (h hooked) Done() <-chan struct{} { return h.done() }

// TestPoolLateOnBrokenStream: a fetch that was not sent in time was not lost with its stream.
func TestPoolLateOnBrokenStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := make(chan struct{})
		p := openPool(t, &fake{many: func(manyServer) error {
			<-broken
			return status.Error(codes.Unavailable, "")
		}})
		synctest.Wait()
		ctx := hooked{t.Context(), sync.OnceValue(func() <-chan struct{} { // before Do sees that it is late
			time.Sleep(time.Second) //nolint:forbidigo // time of the bubble, in which the stream drops the fetch
			close(broken)
			time.Sleep(time.Second) //nolint:forbidigo // and ends
			return nil
		})}
		if o, err := p.Do(ctx, client.Task{Request: new(pb.FetchRequest), SendBefore: time.Now()}); o != nil || !errors.Is(err, client.ErrNotSent) {
			t.Errorf("%v, %v; want ErrNotSent", o, err)
		}
	})
}

// TestPoolClosedAndCancelled: a fetch waits for a stream when the pool is closed and its context
// ends at the same time.
func TestPoolClosedAndCancelled(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	close(ended)
	for range 30 { // either may be noticed first
		p := client.NewPool()
		ctx := hooked{t.Context(), func() <-chan struct{} { p.Close(); return ended }}
		if o, err := p.Do(ctx, client.Task{}); o != nil || !errors.Is(err, fs.ErrClosed) {
			t.Fatalf("%v, %v; want fs.ErrClosed", o, err)
		}
	}
}

// refusing is a service whose streams have failed when they are opened.
type refusing struct{ pb.FetchServiceClient }

func (refusing) FetchMany(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[pb.FetchManyRequest, pb.FetchManyResponse], error) {
	return refusedStream{}, nil
}

type refusedStream struct{ grpc.ClientStream }

func (refusedStream) Send(*pb.FetchManyRequest) error { return io.EOF }
func (refusedStream) CloseSend() error                { return nil }
func (refusedStream) Recv() (*pb.FetchManyResponse, error) {
	return nil, status.Error(codes.Unimplemented, "")
}

func (refusing) Explain(context.Context, *pb.ExplainRequest, ...grpc.CallOption) (*pb.ExplainResponse, error) {
	return nil, nil
}

// TestPoolRefusedAtOnce: a stream may end while it is being opened. It gets no fetch then.
func TestPoolRefusedAtOnce(t *testing.T) {
	t.Parallel()
	p := client.NewPool()
	var lost sync.WaitGroup
	lost.Add(1000)
	for range 1000 {
		var once sync.Once
		p.Open(t.Context(), client.Wrap(refusing{}), 1, func(error, time.Duration) { once.Do(lost.Done) })
	}
	lost.Wait()
	p.Close()
	if n, _ := p.Capacity(); n != 0 {
		t.Errorf("capacity %d without a stream", n)
	}
}

// TestPoolSendsOnce: whatever services do at random, no request reaches them twice, and none that
// Do reports as not sent reaches them at all.
func TestPoolSendsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const fetches, streams = 3000, 4
		var mu sync.Mutex
		received, unsent := make(map[string]int), make(map[string]bool)
		unreliable := &fake{many: func(s manyServer) error {
			r := rand.New(rand.NewPCG(rand.Uint64(), 0)) //nolint:gosec // not a secret
			for {
				m, err := s.Recv()
				if err != nil {
					return nil // half-closed or broken
				}
				mu.Lock()
				for _, task := range m.GetTasks() {
					received[task.GetRequest().GetUrl()]++
				}
				mu.Unlock()
				time.Sleep(time.Duration(r.Int64N(int64(50 * time.Millisecond)))) //nolint:forbidigo // time of the bubble
				for _, task := range m.GetTasks() {
					switch n := r.IntN(1000); {
					case n == 0:
						return status.Error(codes.Unavailable, "")
					case n == 1:
						return nil
					case n == 2:
						err = s.Send(&pb.FetchManyResponse{Draining: true})
					case n < 10:
						continue // never answered
					}
					if err = errors.Join(err, s.Send(done(task.GetTag()))); err != nil {
						return err
					}
				}
			}
		}}
		p := client.NewPool()
		ctx, cancel := context.WithCancel(context.Background())
		p.Open(ctx, unreliable.client(t), streams, nil)
		var running sync.WaitGroup
		var succeeded, lost atomic.Int64
		for i := range fetches {
			running.Go(func() {
				within := time.Duration(rand.Int64N(int64(5 * time.Second)))
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(10*time.Second))))
				defer cancel()
				url := strconv.Itoa(i)
				o, err := p.Do(ctx, client.Task{Request: &pb.FetchRequest{Url: url}, SendBefore: time.Now().Add(within)})
				switch {
				case o != nil && err == nil:
					succeeded.Add(1)
				case o == nil && errors.Is(err, client.ErrLost): // it may have been received
					lost.Add(1)
				case o == nil && err != nil:
					mu.Lock()
					unsent[url] = true
					mu.Unlock()
				default:
					t.Errorf("Do returns %v, %v", o, err)
				}
			})
		}
		running.Wait()
		cancel()
		p.Close()
		time.Sleep(time.Second) //nolint:forbidigo // time of the bubble, in which the service ends
		for url, n := range received {
			if n != 1 || unsent[url] {
				t.Errorf("fetch %s was received %d times; reported as not sent: %v", url, n, unsent[url])
			}
		}
		t.Logf("%d succeeded, %d lost, %d not sent", succeeded.Load(), lost.Load(), len(unsent))
	})
}
