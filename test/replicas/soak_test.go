//go:build linux

package replicas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

// TestSoak loads one service with every kind of call for FETCHD_SOAK, and checks that it
// uses no more afterwards than before.
func TestSoak(t *testing.T) {
	t.Parallel()
	const warming, most = 15 * time.Second, 3 * time.Minute // most: time for everything except the soak itself
	duration := 2 * time.Minute
	if text := os.Getenv("FETCHD_SOAK"); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("FETCHD_SOAK: %v", err)
		}
	}
	ctx := rig.Long(t, duration+most)
	// Each stage has its own origin, which is closed at its end, so that the service has
	// no idle connections in either look.
	first, second := rig.Origin(t), rig.Origin(t)
	s := newService(t, first, second)
	s.http, s.env = "127.0.0.1:0", []string{"GODEBUG=gctrace=1"} // reports the live heap
	p := s.start(ctx, "127.0.0.1:0", "--max-connections-per-caller", "2000")
	i := &idle{process: p, probe: pb.NewFetchServiceClient(rig.Dial(t, p.GRPC))}

	warm := &soak{T: t, addr: p.GRPC, origin: first}
	warm.crowd(ctx)
	warm.run(ctx, warming)
	_ = first.Close() // it always returns nil
	wait.For(ctx, 2*time.Second)
	before := i.look(ctx)
	t.Logf("before: %s", before)

	main := &soak{T: t, addr: p.GRPC, origin: second}
	used, began := p.cpu(), time.Now()
	main.run(ctx, duration)
	t.Logf("%d calls in %v, the service used %v of CPU time: %s", main.total(), time.Since(began).Round(time.Second), p.cpu()-used, main)
	peak := p.Heap.Live.Load()
	_ = second.Close() // it always returns nil
	after := i.backTo(ctx, before)
	t.Logf("after: %s; live heap under load was %d MiB at the last collection", after, peak)
	for _, excess := range after.excess(before) {
		t.Errorf("after the load: %s", excess)
	}
}

// soak is a load of every kind of call.
type soak struct {
	*testing.T
	addr   string
	origin *origin.Origin

	mu     sync.Mutex
	counts map[string]int
}

const (
	soakers  = 24
	stallers = 8
	redial   = 100 // calls on a connection
)

// crowd runs more fetches at once than the service keeps idle goroutines, so that it has
// all of these goroutines before the first look.
func (s *soak) crowd(ctx context.Context) {
	client := pb.NewFetchServiceClient(rig.Dial(s.T, s.addr))
	var group sync.WaitGroup
	for i := range 400 {
		group.Go(func() {
			_, err := client.FetchUnary(ctx, &pb.FetchRequest{Url: s.origin.URL("http", fmt.Sprintf("/s/crowd%d/200:delay=1s", i))})
			if err != nil {
				s.Error(err)
			}
		})
	}
	group.Wait()
}

// run loads the service for d and waits for the last call.
func (s *soak) run(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var group sync.WaitGroup
	for i := range soakers {
		group.Go(func() { s.work(ctx, i) })
	}
	for i := range stallers {
		group.Go(func() { s.stall(ctx, i) })
	}
	group.Wait()
}

// work makes one call after the other, on a new connection every so often.
func (s *soak) work(ctx context.Context, worker int) {
	random := rand.New(rand.NewPCG(3, uint64(worker)))
	for round := 0; ctx.Err() == nil; round++ {
		s.connected(func(client pb.FetchServiceClient) {
			for n := 0; n < redial && ctx.Err() == nil; n++ {
				row := &rows[random.IntN(len(rows))]
				in := row.request(s.origin, fmt.Sprintf("w%d-%d-%d", worker, round, n))
				var leave time.Duration
				if random.IntN(8) == 0 {
					leave = time.Duration(1+random.IntN(80)) * time.Millisecond
				}
				s.one(ctx, client, row.name, in, leave)
				wait.For(ctx, time.Duration(random.IntN(20))*time.Millisecond)
			}
		})
	}
}

// connected calls f with a new connection.
func (s *soak) connected(f func(pb.FetchServiceClient)) {
	conn, err := grpc.NewClient("passthrough:///"+s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		s.Error(err)
		return
	}
	defer conn.Close()
	f(pb.NewFetchServiceClient(conn))
}

// one reads a fetch of a row to its end, or cancels it after leave. The end of the soak does not
// cancel it.
func (s *soak) one(ctx context.Context, client pb.FetchServiceClient, name string, in *pb.FetchRequest, leave time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if leave > 0 {
		timer := time.AfterFunc(leave, cancel)
		defer timer.Stop()
	}
	stream, err := client.Fetch(ctx, in)
	if err == nil {
		err = drain(stream)
	}
	switch code := status.Code(err); {
	case code == codes.OK:
		s.count("read to the end")
	case code == codes.Canceled && leave > 0:
		s.count("cancelled")
	default:
		s.Errorf("%s: %s ended %v", name, in.GetUrl(), err)
	}
}

func drain(stream grpc.ServerStreamingClient[pb.FetchResponse]) error {
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// stall requests long bodies and reads only their start. Now and then it waits until the
// service ends the call.
func (s *soak) stall(ctx context.Context, worker int) {
	const patience = 32 * time.Second // the service waits 30 s
	random := rand.New(rand.NewPCG(4, uint64(worker)))
	for round := 0; ctx.Err() == nil; round++ {
		size := int64(1) << 30
		listener := []string{"http", "https"}[round%2]
		in := &pb.FetchRequest{
			Url:        s.origin.URL(listener, fmt.Sprintf("/s/stall%d-%d/200:size=%d", worker, round, size)),
			BodyPolicy: &pb.BodyPolicy{MaxSizeBytes: &size},
		}
		wait := time.Second + time.Duration(random.IntN(2000))*time.Millisecond
		if round%8 == worker {
			wait = patience
		}
		s.connected(func(client pb.FetchServiceClient) { s.stallOnce(ctx, client, in, wait, wait == patience) })
	}
}

func (s *soak) stallOnce(ctx context.Context, client pb.FetchServiceClient, in *pb.FetchRequest, unread time.Duration, aborted bool) {
	calling, leave := context.WithCancel(ctx)
	defer leave()
	stream, err := client.Fetch(calling, in)
	for n := 0; n < 4 && err == nil; n++ {
		_, err = stream.Recv()
	}
	if err != nil {
		if ctx.Err() == nil {
			s.Errorf("%s ended %v while it was read", in.GetUrl(), err)
		}
		return
	}
	wait.For(ctx, unread)
	if !aborted || ctx.Err() != nil {
		s.count("left unread")
		return
	}
	if err := drain(stream); status.Code(err) != codes.Aborted && ctx.Err() == nil {
		s.Errorf("%s, not read for %v, ended %v, want ABORTED", in.GetUrl(), unread, err)
	}
	s.count("ended by the service")
}

func (s *soak) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = make(map[string]int)
	}
	s.counts[what]++
}

func (s *soak) total() int {
	n := 0
	for _, count := range s.counts {
		n += count
	}
	return n
}

func (s *soak) String() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(s.counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", s.counts[what], what))
	}
	return strings.Join(parts, ", ")
}
