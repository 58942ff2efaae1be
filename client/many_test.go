package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"fetchd/client"
	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server/fetchdtest"
)

// requests returns a request for each of n paths.
func (r *rig) requests(n int, path func(int) string) []*pb.FetchRequest {
	all := make([]*pb.FetchRequest, n)
	for i := range all {
		all[i] = r.request(path(i))
	}
	return all
}

func TestMany(t *testing.T) {
	r := newRig(t)
	const n = 300
	all := r.requests(n, func(i int) string {
		if i%3 == 0 {
			return fmt.Sprintf("/s/many%d/404", i)
		}
		return fmt.Sprintf("/s/many%d/503/200:size=%d", i, i)
	})
	all[7] = &pb.FetchRequest{Url: "no URL"}
	all[8] = nil
	all[1].EventLevel = pb.EventLevel_EVENT_LEVEL_ATTEMPTS
	events := make(map[*pb.FetchRequest]int) // of one stream: one goroutine, and its end is awaited
	told := func(request *pb.FetchRequest, _ *pb.FetchEvent) { events[request]++ }
	seen := make(map[*pb.FetchRequest]bool)
	for result, err := range r.client.Many(t.Context(), slices.Values(all), client.ManyOptions{Open: 16, OnEvent: told}) {
		if result == nil {
			t.Fatalf("Many ended with %v", err)
		}
		i := slices.Index(all, result.Request)
		if i < 0 || seen[result.Request] {
			t.Fatalf("request %d (%s) was not given, or came twice", i, result.Request.GetUrl())
		}
		seen[result.Request] = true
		failed, isFailure := errors.AsType[*client.Error](err)
		switch {
		case i == 7 || i == 8:
			if !isFailure || failed.Class() != pb.ErrorClass_ERROR_CLASS_INVALID_REQUEST {
				t.Errorf("request %d: %v, want INVALID_REQUEST", i, err)
			}
		case i%3 == 0:
			if !isFailure || failed.StatusCode() != 404 || !errors.Is(err, client.ErrPermanent) || failed.Outcome != result.Outcome {
				t.Errorf("request %d: %v, want a permanent 404", i, err)
			}
		case err != nil || string(result.Outcome.GetInlineBody()) != string(r.origin.Body(int64(i))):
			t.Errorf("request %d: %d bytes, %v; want %d", i, len(result.Outcome.GetInlineBody()), err, i)
		}
	}
	if len(seen) != n || len(events) != 1 || events[all[1]] < 4 {
		t.Errorf("%d results, and events of %d requests, %d of two attempts; want %d, 1, and 4 or more", len(seen), len(events), events[all[1]], n)
	}
}

// TestManyLargeBodies: requests that exceed a message together are sent in several.
func TestManyLargeBodies(t *testing.T) {
	r := newRig(t)
	all := r.requests(8, func(i int) string { return fmt.Sprintf("/s/large%d/200", i) })
	for _, request := range all {
		request.Method, request.Body = "PUT", make([]byte, 1<<20)
	}
	for result, err := range r.client.Many(t.Context(), slices.Values(all), client.ManyOptions{}) {
		if err != nil {
			t.Errorf("yields %v, %v; want no error", result, err)
		}
	}
	count(t, r.origin, "large", len(all))
}

func TestManyOfNone(t *testing.T) {
	f := &fake{many: func(manyServer) error {
		return status.Error(codes.Internal, "not to be called")
	}}
	for result, err := range f.client(t).Many(t.Context(), slices.Values([]*pb.FetchRequest(nil)), client.ManyOptions{}) {
		t.Errorf("Many of nothing yields %v, %v", result, err)
	}
}

// TestManyOpen: the sequence is read only while there is capacity, and each received result
// frees a place.
func TestManyOpen(t *testing.T) {
	for _, tt := range []struct{ open, want int }{{1, 1}, {5, 5}, {0, 64}, {-1, 64}, {1000, 256}} {
		t.Run(strconv.Itoa(tt.open), func(t *testing.T) {
			var mu sync.Mutex
			given, taken := 0, 0
			sequence := func(yield func(*pb.FetchRequest) bool) {
				for i := range 600 {
					mu.Lock()
					given++
					if ahead := given - taken; ahead > tt.want+1 { // a place is free before its result is counted
						t.Errorf("%d requests were read and have no result yet, want at most %d", ahead, tt.want+1)
					}
					mu.Unlock()
					if !yield(&pb.FetchRequest{Url: strconv.Itoa(i)}) {
						return
					}
				}
			}
			f := &fake{many: holding(tt.want)}
			for _, err := range f.client(t).Many(t.Context(), sequence, client.ManyOptions{Open: tt.open}) {
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				taken++
				mu.Unlock()
			}
			if taken != 600 {
				t.Errorf("%d results, want 600", taken)
			}
		})
	}
}

// holding answers n tasks when it has n, and the rest one by one.
func holding(n int) func(manyServer) error {
	return func(s manyServer) error {
		var tags []string
		for {
			in, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			for _, task := range in.GetTasks() {
				tags = append(tags, task.GetTag())
			}
			if len(tags) < n {
				continue
			}
			for _, tag := range tags {
				if err := s.Send(done(tag)); err != nil {
					return err
				}
			}
			n, tags = 1, nil
		}
	}
}

// done returns the answer to a task that succeeded.
func done(tag string) *pb.FetchManyResponse {
	return &pb.FetchManyResponse{Events: []*pb.TaskEvent{{Tag: tag, Event: success()}}}
}

// TestManyLeft: leaving the loop cancels the fetches in flight.
func TestManyLeft(t *testing.T) {
	r := newRig(t)
	all := r.requests(10, func(i int) string {
		if i == 0 {
			return "/s/first/200"
		}
		return "/s/silent/silent"
	})
	for result, err := range r.client.Many(t.Context(), slices.Values(all), client.ManyOptions{}) {
		if err != nil || result.Request != all[0] {
			t.Errorf("yields %v, %v; want the first request's success", result, err)
		}
		if _, err := r.origin.Await(t.Context(), "silent", 1); err != nil {
			t.Fatal(err)
		}
		break
	}
	for _, seen := range r.origin.Requests("silent") {
		<-seen.Done
	}
}

// TestManyCancelled: each fetch is yielded with the cause, and the loop ends although the
// sequence blocks.
func TestManyCancelled(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	release := make(chan struct{})
	left := make(chan struct{})
	sequence := func(yield func(*pb.FetchRequest) bool) {
		defer close(left)
		for range 3 {
			yield(r.request("/s/silent/silent"))
		}
		if _, err := r.origin.Await(t.Context(), "silent", 3); err != nil {
			t.Error(err)
		}
		cancel()
		<-release
	}
	results, last := 0, error(nil)
	for result, err := range r.client.Many(ctx, sequence, client.ManyOptions{}) {
		if status.Code(err) != codes.Canceled || !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want Canceled that matches the context's", err)
		}
		if last != nil {
			t.Errorf("%v comes after the end", result)
		}
		if result == nil {
			last = err
			continue
		}
		results++
	}
	if results != 3 || last == nil {
		t.Errorf("%d results and the end %v, want 3 and an error", results, last)
	}
	close(release)
	<-left
}

// TestManyCancelledEarly: a loop that waits for its first request ends as well.
func TestManyCancelledEarly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	release, left := make(chan struct{}), make(chan struct{})
	waiting := func(func(*pb.FetchRequest) bool) {
		defer close(left)
		cancel()
		<-release
	}
	yields := 0
	for result, err := range new(fake).client(t).Many(ctx, waiting, client.ManyOptions{}) {
		if yields++; result != nil || status.Code(err) != codes.Canceled || !errors.Is(err, context.Canceled) {
			t.Errorf("yields %v, %v; want Canceled that matches the context's, without a result", result, err)
		}
	}
	if yields != 1 {
		t.Errorf("%d yields, want 1", yields)
	}
	close(release)
	<-left
}

// TestManyRefused: the loop ends if no stream can be opened, or the service refuses it.
func TestManyRefused(t *testing.T) {
	for _, code := range []codes.Code{codes.OK, codes.Unavailable, codes.Unauthenticated, codes.ResourceExhausted} {
		t.Run(code.String(), func(t *testing.T) {
			calls := 0
			c := (&fake{many: func(manyServer) error {
				calls++
				return status.Error(code, "not you")
			}}).client(t)
			want, wantCalls := code, 1
			if code == codes.OK { // nothing listens
				l := listen(t)
				_ = l.Close()
				c, want, wantCalls = client.New(dial(t, l.Addr().String())), codes.Unavailable, 0
			}
			results, ends := 0, 0
			for result, err := range c.Many(t.Context(), endless, client.ManyOptions{Open: 4}) {
				if status.Code(err) != want || result != nil && result.Outcome != nil {
					t.Errorf("yields %v, %v; want %v without an outcome", result, err, want)
				}
				if result == nil {
					ends++
				} else {
					results++
				}
			}
			if ends != 1 || results > 4 || calls != wantCalls {
				t.Errorf("%d results and %d ends after %d calls, want at most 4, 1 and %d", results, ends, calls, wantCalls)
			}
		})
	}
}

// endless yields requests until the loop is left.
func endless(yield func(*pb.FetchRequest) bool) {
	for yield(&pb.FetchRequest{Url: "http://origin.example/"}) {
	}
}

// TestManyLost: only the fetches in flight on a broken stream are lost.
func TestManyLost(t *testing.T) {
	calls := 0
	f := &fake{many: func(s manyServer) error {
		calls++ // one after the other: the client opens the next when this one is lost
		for n := 0; ; n++ {
			in, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if n == 5 && calls == 1 {
				return status.Error(codes.Unavailable, "the machine is gone")
			}
			if err := s.Send(done(in.GetTasks()[0].GetTag())); err != nil {
				return err
			}
		}
	}}
	ok, lost := 0, 0
	for result, err := range f.client(t).Many(t.Context(), limited(50), client.ManyOptions{Open: 1}) {
		switch {
		case result != nil && err == nil:
			ok++
		case result != nil && status.Code(err) == codes.Unavailable && result.Outcome == nil:
			lost++
		default:
			t.Errorf("yields %v, %v", result, err)
		}
	}
	if ok != 49 || lost != 1 || calls != 2 {
		t.Errorf("%d fetched, %d lost, %d streams; want 49, 1, 2", ok, lost, calls)
	}
}

func limited(n int) iter.Seq[*pb.FetchRequest] {
	return func(yield func(*pb.FetchRequest) bool) {
		for range n {
			if !yield(&pb.FetchRequest{Url: "http://origin.example/"}) {
				return
			}
		}
	}
}

// TestManyReturned: a fetch that a draining service returns is sent again, unless a request was
// made, and at most twice.
func TestManyReturned(t *testing.T) {
	tests := []struct {
		name      string
		exchanges int32
		returns   int // how often it is given back
		sends     int
		ok        bool
	}{
		{"once", 0, 1, 2, true},
		{"twice", 0, 2, 3, true},
		{"each time", 0, 100, 3, false},
		{"after a request was made", 1, 1, 1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var mu sync.Mutex
			sends := 0
			f := &fake{many: func(s manyServer) error {
				in, err := s.Recv()
				if err != nil {
					return err
				}
				mu.Lock()
				sends++
				answer := done(in.GetTasks()[0].GetTag())
				if sends <= tt.returns {
					answer.Draining = true
					answer.Events[0].Event.GetOutcome().Kind = pb.OutcomeKind_OUTCOME_KIND_FAILED
					answer.Events[0].Event.GetOutcome().ExchangeCount = tt.exchanges
					answer.Events[0].Event.GetOutcome().Error = &pb.FetchError{ErrorClass: pb.ErrorClass_ERROR_CLASS_SHUTDOWN,
						FailureType: pb.FailureType_FAILURE_TYPE_TRANSIENT, Retryable: true}
				}
				mu.Unlock()
				if err := s.Send(answer); err != nil {
					return err
				}
				_, err = s.Recv() // the half-close
				if !errors.Is(err, io.EOF) {
					t.Errorf("after draining: %v, want a half-close", err)
				}
				return nil
			}}
			results := 0
			for result, err := range f.client(t).Many(t.Context(), limited(1), client.ManyOptions{}) {
				results++
				failed, _ := errors.AsType[*client.Error](err)
				if result == nil || (err == nil) != tt.ok || !tt.ok && (failed == nil || failed.Class() != pb.ErrorClass_ERROR_CLASS_SHUTDOWN) {
					t.Errorf("yields %v, %v; want success %v or else SHUTDOWN", result, err, tt.ok)
				}
			}
			if results != 1 || sends != tt.sends {
				t.Errorf("%d results, %d sends; want 1, %d", results, sends, tt.sends)
			}
		})
	}
}

// TestManyReplicas: one of two replicas shuts down, and no fetch fails.
func TestManyReplicas(t *testing.T) {
	r := newRig(t)
	second := fetchdtest.Start(t, fetchdtest.Options{Origin: r.origin}).Addr
	names := manual.NewBuilderWithScheme("replicas")
	names.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: r.addr}, {Addr: second}}})
	conn, err := grpc.NewClient("replicas:///fetchd", append(client.DialOptions(), grpc.WithResolvers(names),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())...)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	const n = 400
	all := r.requests(n, func(i int) string { return fmt.Sprintf("/s/replica%d/200:size=10", i) })
	stopped := make(chan error, 1)
	results := 0
	for result, err := range client.New(conn).Many(t.Context(), slices.Values(all), client.ManyOptions{Open: 32}) {
		if result == nil || err != nil {
			t.Errorf("yields %v, %v; want no error", result, err)
			continue
		}
		if results++; results == n/4 {
			go func() { stopped <- r.server.Shutdown(t.Context()) }()
		}
	}
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown = %v, want nil", err)
	}
	if results != n {
		t.Errorf("%d results, want %d", results, n)
	}
	count(t, r.origin, "replica", n)
}

// count checks that the origin saw n keys with this prefix, and one request for each.
func count(t *testing.T, o *origin.Origin, prefix string, n int) {
	t.Helper()
	seen := make(map[string]int)
	for _, request := range o.AllRequests() {
		if strings.HasPrefix(request.Key, prefix) {
			seen[request.Key]++
		}
	}
	for key, times := range seen {
		if times != 1 {
			t.Errorf("the origin saw %d requests for %s, want 1", times, key)
		}
	}
	if len(seen) != n {
		t.Errorf("the origin saw %d keys, want %d", len(seen), n)
	}
}
