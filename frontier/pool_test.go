package frontier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
)

// openPool keeps a stream to each service until the test ends.
func openPool(t *testing.T, services ...Service) *pool {
	t.Helper()
	p := newPool(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	p.open(ctx, services, 1)
	t.Cleanup(func() {
		p.close()
		cancel()
		p.wait()
	})
	return p
}

// result is what a fetch of the pool returned.
type result struct {
	outcome *pb.FetchOutcome
	err     error
	took    time.Duration
	events  int
}

// ask fetches, and sends what came of it.
func ask(ctx context.Context, p *pool, within time.Duration) <-chan result {
	c := make(chan result, 1)
	go func() {
		var r result
		begun := time.Now()
		request := &pb.FetchRequest{Url: "http://a.test/"}
		r.outcome, r.err = p.fetch(ctx, begun.Add(within), request, func(*pb.FetchResponse) { r.events++ })
		r.took = time.Since(begun)
		c <- r
	}()
	return c
}

// first reads one message with tasks, and returns the tag of the first.
func first(s manyStream) (string, error) {
	for {
		m, err := s.Recv()
		if err != nil {
			return "", err
		}
		if len(m.GetTasks()) > 0 {
			return m.GetTasks()[0].GetTag(), nil
		}
	}
}

// afterTask does f with the tag of the first task.
func afterTask(f func(s manyStream, tag string) error) func(int, manyStream) error {
	return func(_ int, s manyStream) error {
		tag, err := first(s)
		if err != nil {
			return nil // the caller left
		}
		return f(s, tag)
	}
}

func silent(s manyStream) error {
	<-s.Context().Done()
	return nil
}

// TestPoolAndService: what a fetch returns, whatever the service does.
func TestPoolAndService(t *testing.T) {
	t.Parallel()
	const cancelAfter, before = time.Minute, 2 * time.Minute
	cancelled := failed(0, pb.ErrorClass_ERROR_CLASS_CANCELLED, false, 0)
	for _, row := range []struct {
		name string
		many func(n int, s manyStream) error
		kind pb.OutcomeKind
		err  error
		took time.Duration
	}{
		{"answers", afterTask(func(s manyStream, tag string) error { return s.Send(told(tag, page("x"))) }), success, nil, 0},
		{"answers twice", afterTask(func(s manyStream, tag string) error {
			return errors.Join(s.Send(told(tag, page("x"))), s.Send(told(tag, cancelled)), silent(s))
		}), success, nil, 0},
		{"answers for others first", afterTask(func(s manyStream, tag string) error {
			return errors.Join(s.Send(told("", cancelled)), s.Send(told("nobody", cancelled)), s.Send(told(tag, page("x"))), silent(s))
		}), success, nil, 0},
		{"says nothing that is known", afterTask(func(s manyStream, tag string) error {
			return errors.Join(s.Send(&pb.FetchManyResponse{}), s.Send(&pb.FetchManyResponse{Responses: []*pb.TaskResponse{{Tag: tag}}}),
				s.Send(told(tag, page("x"))), silent(s))
		}), success, nil, 0},
		{"is going away, and answers for nobody again and again", afterTask(func(s manyStream, tag string) error {
			return errors.Join(s.Send(&pb.FetchManyResponse{Draining: true}), s.Send(told(tag, page("x"))), s.Send(&pb.FetchManyResponse{Draining: true}),
				s.Send(told("", cancelled)), s.Send(told("", cancelled)), s.Send(told(tag, cancelled)), silent(s))
		}), success, nil, 0},
		{"ends in order", afterTask(func(manyStream, string) error { return nil }), 0, errLost, 0},
		{"ends with an error", afterTask(func(manyStream, string) error { return status.Error(codes.Internal, "") }), 0, errLost, 0},
		{"answers a cancel", afterTask(func(s manyStream, tag string) error {
			m, err := s.Recv()
			if err != nil || len(m.GetCancelledTags()) != 1 || m.GetCancelledTags()[0] != tag {
				return fmt.Errorf("%v, %w", m, err)
			}
			return errors.Join(s.Send(told(tag, cancelled)), silent(s))
		}), failure, nil, cancelAfter},
		{"never answers", afterTask(func(s manyStream, _ string) error { return silent(s) }), 0, errLost, cancelAfter + cancelTime},
		{"does not read", func(_ int, s manyStream) error { return silent(s) }, 0, errLost, cancelAfter + cancelTime},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := openPool(t, (&script{many: row.many}).start(t, "one"))
				ctx, cancel := context.WithTimeout(t.Context(), cancelAfter)
				defer cancel()
				got := <-ask(ctx, p, before)
				if got.outcome.GetKind() != row.kind || !errors.Is(got.err, row.err) || got.took != row.took {
					t.Errorf("%v, %v after %v; want %v, %v after %v", got.outcome, got.err, got.took, row.kind, row.err, row.took)
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
		{name: "too late", ctx: time.Hour, before: time.Minute, want: errLate, took: time.Minute},
		{name: "given up", ctx: time.Minute, before: time.Hour, want: context.DeadlineExceeded, took: time.Minute},
		{name: "late from the start", ctx: time.Hour, before: 0, want: errLate},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := openPool(t, (&script{hello: status.Error(codes.Unavailable, "")}).start(t, "one"))
				ctx, cancel := context.WithTimeout(t.Context(), row.ctx)
				defer cancel()
				got := <-ask(ctx, p, row.before)
				if !errors.Is(got.err, row.want) || errors.Is(got.err, errLost) || got.took != row.took {
					t.Errorf("%v after %v, want %v after %v", got.err, got.took, row.want, row.took)
				}
			})
		})
	}
}

// TestPoolBalances: each fetch goes to the stream with the fewest.
func TestPoolBalances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		got := map[string]int{}
		release := make(chan struct{})
		var services []Service
		for _, name := range []string{"one", "two", "three"} {
			s := &script{many: func(_ int, s manyStream) error {
				return fetchedAll(s, func(*pb.FetchRequest) {
					mu.Lock()
					got[name]++
					mu.Unlock()
					<-release
				})
			}}
			services = append(services, s.start(t, name))
		}
		p := openPool(t, services...)
		synctest.Wait()
		var asked []<-chan result
		for range 3 {
			asked = append(asked, ask(t.Context(), p, time.Hour))
			synctest.Wait()
		}
		mu.Lock()
		for name, n := range got {
			if n != 1 {
				t.Errorf("%s has %d fetches of three, want 1", name, n)
			}
		}
		mu.Unlock()
		for _, st := range p.streams {
			if n := st.load(); n != 1 {
				t.Errorf("a stream has %d fetches under way, want 1", n)
			}
		}
		close(release)
		for _, c := range asked {
			if r := <-c; r.err != nil {
				t.Error(r.err)
			}
		}
		for _, st := range p.streams {
			if n := st.load(); n != 0 {
				t.Errorf("a stream has %d fetches under way at the end, want 0", n)
			}
		}
	})
}

// TestPoolDraining: a service that goes away finishes what it has, and gets no more.
func TestPoolDraining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release, halfClosed := make(chan struct{}), make(chan error, 1)
		service := &script{many: func(n int, s manyStream) error {
			if n > 1 {
				return fetchedAll(s, nil)
			}
			tag, err := first(s)
			err = errors.Join(err, s.Send(&pb.FetchManyResponse{Draining: true}))
			<-release
			err = errors.Join(err, s.Send(told(tag, page("x"))))
			_, end := s.Recv()
			halfClosed <- end
			return err
		}}
		p := openPool(t, service.start(t, "one"))
		early := ask(t.Context(), p, time.Hour)
		time.Sleep(time.Second) //nolint:forbidigo // bubble time, in which the second stream opens
		if r := <-ask(t.Context(), p, time.Hour); r.err != nil || r.took != 0 {
			t.Errorf("the second fetch: %v after %v, want an outcome at once", r.err, r.took)
		}
		close(release)
		if r := <-early; r.outcome.GetKind() != success {
			t.Errorf("the first fetch: %v, %v; want its outcome", r.outcome, r.err)
		}
		if err := <-halfClosed; !errors.Is(err, io.EOF) {
			t.Errorf("the stream of the first ends with %v, want a half-close", err)
		}
		if n := service.opened(); n != 2 {
			t.Errorf("%d streams, want 2", n)
		}
	})
}

// TestPoolCloses: streams end in order, and one whose service does not end it is cut.
func TestPoolCloses(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		service *script
		took    time.Duration
	}{
		"a service that ends it":         {&script{many: func(_ int, s manyStream) error { return fetchedAll(s, nil) }}, 0},
		"a service that does not":        {&script{many: func(_ int, s manyStream) error { return silent(s) }}, endTime},
		"a service that is not there":    {&script{hello: status.Error(codes.Unavailable, "")}, 0},
		"a service that does not answer": {&script{hang: true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPool(slog.New(slog.DiscardHandler))
				p.open(t.Context(), []Service{row.service.start(t, "one")}, 1)
				synctest.Wait()
				begun := time.Now()
				p.close()
				p.wait()
				if took := time.Since(begun); took != row.took {
					t.Errorf("closing took %v, want %v", took, row.took)
				}
			})
		})
	}
}

// TestPoolLeavesSilentStream: who does not answer a cancel gets no more work there.
func TestPoolLeavesSilentStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Duration, 1)
		service := &script{many: func(n int, s manyStream) error {
			if n > 1 {
				return fetchedAll(s, nil)
			}
			begun := time.Now()
			<-s.Context().Done()
			ended <- time.Since(begun)
			return nil
		}}
		p := openPool(t, service.start(t, "one"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r := <-ask(ctx, p, time.Hour); !errors.Is(r.err, errLost) {
			t.Errorf("%v, want the fetch lost", r.err)
		}
		if r := <-ask(t.Context(), p, time.Hour); r.err != nil {
			t.Errorf("%v, want an outcome by another stream", r.err)
		}
		if got, want := <-ended, time.Second+cancelTime+endTime; got != want {
			t.Errorf("the first stream lasted %v, want %v", got, want)
		}
	})
}

// TestPoolMovesWhatWasNotSent to another stream.
func TestPoolMovesWhatWasNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := openPool(t)
		stuck := &stream{queue: make(chan func(*pb.FetchManyRequest), 1), calls: make(map[string]*call),
			ended: make(chan struct{}), left: make(chan struct{}), drained: make(chan struct{})} // nothing is ever sent
		p.add(stuck)
		moved := ask(t.Context(), p, time.Hour)
		synctest.Wait()
		if n := stuck.load(); n != 1 {
			t.Fatalf("%d calls on the stream, want 1", n)
		}
		p.open(t.Context(), []Service{(&script{many: func(_ int, s manyStream) error { return fetchedAll(s, nil) }}).start(t, "one")}, 1)
		p.remove(stuck)
		stuck.end(io.EOF)
		if r := <-moved; r.outcome.GetKind() != success {
			t.Errorf("%v, %v; want its outcome by the other stream", r.outcome, r.err)
		}
	})
}

// TestPoolTakesBackWhatIsLate: a call that waits for its turn on a stream is not
// sent late, and not lost either.
func TestPoolTakesBackWhatIsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := openPool(t)
		stuck := &stream{queue: make(chan func(*pb.FetchManyRequest), 1), calls: make(map[string]*call),
			ended: make(chan struct{}), left: make(chan struct{}), drained: make(chan struct{})}
		p.add(stuck)
		r := <-ask(t.Context(), p, time.Minute)
		if !errors.Is(r.err, errLate) || r.took != time.Minute || stuck.load() != 0 {
			t.Errorf("%v after %v, %d calls left; want errLate after a minute and none", r.err, r.took, stuck.load())
		}
		m := new(pb.FetchManyRequest)
		(<-stuck.queue)(m)
		if len(m.GetTasks()) != 0 {
			t.Errorf("%v is sent after all", m)
		}
	})
}

// TestPoolTellsEvents before the outcome, in order.
func TestPoolTellsEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 1000
		p := openPool(t, (&script{many: afterTask(func(s manyStream, tag string) error {
			beat := heartbeat(tag)
			for range many {
				if err := s.Send(beat); err != nil {
					return err
				}
			}
			return errors.Join(s.Send(told(tag, page("x"))), s.Send(beat), silent(s))
		})}).start(t, "one"))
		if r := <-ask(t.Context(), p, time.Hour); r.err != nil || r.events != many {
			t.Errorf("%d events, %v; want %d", r.events, r.err, many)
		}
	})
}
