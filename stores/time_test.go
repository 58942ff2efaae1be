package stores_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/internal/budget"
	"fetchd/stores"
)

// fake is a store in a bubble.
type fake struct {
	mu    sync.Mutex
	start time.Time
	seen  []string // operations, with their times
	fault func(op string, r *http.Request) error
}

func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	op := operation(r)
	f.mu.Lock()
	f.seen = append(f.seen, fmt.Sprintf("%s@%v", op, time.Since(f.start)))
	fault := f.fault
	f.mu.Unlock()
	if r.Body != nil {
		defer r.Body.Close()
	}
	if fault != nil {
		if err := fault(op, r); err != nil {
			return nil, err
		}
	}
	body := ""
	switch op {
	case "Create":
		body = "<InitiateMultipartUploadResult><UploadId>id</UploadId></InitiateMultipartUploadResult>"
	case "Complete":
		body = "<CompleteMultipartUploadResult><ETag>etag</ETag></CompleteMultipartUploadResult>"
	}
	return &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Etag": {`"etag"`}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}, nil
}

func (f *fake) set(fault func(op string, r *http.Request) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// took returns the operations since the last call.
func (f *fake) took() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := strings.Join(f.seen, " ")
	f.seen, f.start = nil, time.Now()
	return all
}

func down(string, *http.Request) error { return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED} }

func noDial(string, *http.Request) error {
	return &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
}

func broken(string, *http.Request) error { return &net.OpError{Op: "read", Err: syscall.ECONNRESET} }

func stalled(_ string, r *http.Request) error {
	<-r.Context().Done()
	return r.Context().Err()
}

// refusedThen returns a fault that follows one refused connection.
func refusedThen(next func(string, *http.Request) error) func(string, *http.Request) error {
	var first sync.Once
	return func(op string, r *http.Request) (err error) {
		first.Do(func() { err = down(op, r) })
		if err == nil {
			err = next(op, r)
		}
		return err
	}
}

// stalls returns a fault that stalls one operation.
func stalls(step string) func(string, *http.Request) error {
	return func(op string, r *http.Request) error {
		if op == step {
			return stalled(op, r)
		}
		return nil
	}
}

func openFake(t *testing.T) (*stores.Store, *fake) {
	f := &fake{start: time.Now()}
	s := open(t, s3Config())
	s.UseTransport(f)
	return s, f
}

// put makes an upload of one request.
func put(s *stores.Store) error {
	_, err := upload(context.Background(), s, stores.Object{Key: "key", Size: -1}, []byte("body"), 4)
	return err
}

// TestTimes checks when requests are made, repeated and given up.
func TestTimes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		fault    func(string, *http.Request) error
		deadline time.Duration // of the context; zero: none
		size     int
		want     string // requests
		took     time.Duration
		reason   string // empty: success, or the context
	}{
		{"in time", nil, 0, 10, "Put@0s", 0, ""},
		{"refused", down, 0, 10, "Put@0s Put@200ms Put@600ms", 600 * time.Millisecond, stores.ReasonError},
		{"no answer to a dial", noDial, 0, 10, "Put@0s Put@200ms Put@600ms", 600 * time.Millisecond, stores.ReasonTimeout},
		{"broken", broken, 0, 10, "Put@0s Put@200ms Put@600ms Head@600ms Head@800ms Head@1.2s", 1200 * time.Millisecond, stores.ReasonError},
		{"stalled", stalled, 0, 10, "Put@0s Put@20.2s Head@40.2s Head@45.4s", 50400 * time.Millisecond, stores.ReasonTimeout},
		{"the answer is found", stalls("Put"), 0, 10, "Put@0s Put@20.2s Head@40.2s", 40200 * time.Millisecond, stores.ReasonTimeout},
		{"a part stalls", stalls("Part1"), 0, part + 1, "Create@0s Part1@0s Part1@20.2s Abort@40.2s", 40200 * time.Millisecond, stores.ReasonTimeout},
		{"refused, then stalled", refusedThen(stalled), 0, 10, "Put@0s Put@200ms Put@20.6s Head@40.6s Head@45.8s", 50800 * time.Millisecond, stores.ReasonTimeout},
		{"the context ends in a request", stalled, 10 * time.Second, 10, "Put@0s", 10 * time.Second, ""},
		{"the context ends in a wait", down, 300 * time.Millisecond, 10, "Put@0s Put@200ms", 300 * time.Millisecond, ""},
		{"the context ends in the first request", stalls("Create"), time.Second, part + 1, "Create@0s", time.Second, ""},
		{"the context ends in a part", stalls("Part1"), time.Second, part + 1, "Create@0s Part1@0s Abort@1s", time.Second, ""},
		{"the context ends in the last request", stalls("Complete"), time.Second, part + 1, "Create@0s Part1@0s Part2@0s Complete@0s Abort@1s", time.Second, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, f := openFake(t)
				f.set(row.fault)
				ctx, why := t.Context(), errors.New("too late")
				if row.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeoutCause(ctx, row.deadline, why)
					defer cancel()
				}
				_, err := upload(ctx, s, stores.Object{Key: "key", Size: -1}, make([]byte, row.size), 1<<20)
				if took := time.Since(f.start); took != row.took {
					t.Errorf("it took %v, want %v", took, row.took)
				}
				switch {
				case row.reason != "":
					wantFailure(t, err, row.reason)
				case row.deadline > 0 && !errors.Is(err, why) || row.deadline == 0 && err != nil:
					t.Errorf("the upload = %v", err)
				}
				synctest.Wait()
				if got := f.took(); got != row.want {
					t.Errorf("the requests are\n%s, want\n%s", got, row.want)
				}
			})
		})
	}
}

// TestAbortIsBounded checks that an abort returns at once, and that its memory stays charged until it
// has ended.
func TestAbortIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f := openFake(t)
		f.set(stalls("Abort"))
		memory := budget.New(64 << 20)
		lease := memory.Lease("caller")
		ctx, cancel := context.WithCancel(t.Context())
		u, err := s.Begin(ctx, stores.Object{Key: "key", Size: -1, Memory: lease})
		must(t, err)
		if _, err := u.Write(make([]byte, part+1)); err != nil {
			t.Fatal(err)
		}
		cancel()
		u.Abort()
		lease.Close() // the upload has its own lease
		if time.Since(f.start) != 0 {
			t.Errorf("Abort took %v, want no time", time.Since(f.start))
		}
		short, cancel := context.WithTimeoutCause(context.Background(), 4*time.Second, errors.New("in a hurry"))
		defer cancel()
		if err := s.Close(short); fmt.Sprint(err) != "in a hurry" || memory.Usage().Total() == 0 || s.Stats().InFlight != 1 {
			t.Errorf("after 4 s: Close = %v, with %d bytes charged and %+v; the abort is in flight", err, memory.Usage().Total(), s.Stats())
		}
		if err := s.Close(context.Background()); err != nil || time.Since(f.start) != 5*time.Second || memory.Usage().Total() != 0 {
			t.Errorf("Close = %v after %v, with %d bytes charged; want 5 s", err, time.Since(f.start), memory.Usage().Total())
		}
		if got, want := f.took(), "Create@0s Part1@0s Abort@0s"; got != want {
			t.Errorf("the requests are %s, want %s", got, want)
		}
		_, err = s.Begin(t.Context(), stores.Object{Key: "key"})
		if detail := wantFailure(t, err, stores.ReasonUnavailable); !strings.Contains(detail, "is closed") {
			t.Errorf("Begin after Close = %q, want that the store is closed", detail)
		}
	})
}

func isUnavailable(err error) bool {
	failure, ok := errors.AsType[*stores.Error](err)
	return ok && failure.Reason() == stores.ReasonUnavailable
}

// TestBreaker checks when a store refuses uploads. Each step is at a time after the fifth failure.
func TestBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f := openFake(t)
		f.set(down)
		wantReady := func(what string, want bool) {
			t.Helper()
			err := s.Ready()
			if (err == nil) != want || err != nil && (!errors.Is(err, stores.ErrUnavailable) || !isUnavailable(err)) {
				t.Errorf("%s: Ready = %v, want ready %t", what, err, want)
			}
		}
		fail := func(n int) {
			t.Helper()
			for range n {
				if err := put(s); isUnavailable(err) {
					t.Errorf("the upload was refused")
				} else {
					wantFailure(t, err, stores.ReasonError)
				}
			}
		}
		fail(4)
		f.set(nil)
		must(t, put(s))
		f.set(down)
		fail(4)
		wantReady("four failures in a row", true)
		fail(1)
		if s.Stats().Up {
			t.Error("Up is true after five failures in a row")
		}
		f.took()
		wantReady("five failures in a row", false)
		if err := put(s); !isUnavailable(err) || f.took() != "" {
			t.Errorf("the upload = %v, want it refused without a request", err)
		}
		time.Sleep(5*time.Second - 1) //nolint:forbidigo // in a bubble
		wantReady("after almost 5 s", false)
		time.Sleep(time.Nanosecond) //nolint:forbidigo // in a bubble
		wantReady("after 5 s", true)
		wantReady("after 5 s, a second upload", false)
		fail(1) // the one that was let through
		wantReady("the probe failed", false)
		if err := put(s); !isUnavailable(err) {
			t.Errorf("a second probe = %v, want it refused", err)
		}
		time.Sleep(5 * time.Second) //nolint:forbidigo // in a bubble
		wantReady("5 s later", true)
		time.Sleep(5 * time.Second) //nolint:forbidigo // in a bubble
		wantReady("the probe never began", true)
		f.set(nil)
		if err := put(s); err != nil || !s.Stats().Up {
			t.Errorf("the upload that was let through = %v, Up %t", err, s.Stats().Up)
		}
		f.set(down)
		fail(4)
		wantReady("four failures after a success", true)
		fail(1)
		time.Sleep(5 * time.Second) //nolint:forbidigo // in a bubble
		fail(1)                     // Begin without Ready is a probe too
		wantReady("the probe without Ready failed", false)
	})
}

// TestBreakerIsFair checks that faults of callers, of origins and of memory do not close a store to
// others, and do not hide that it is down.
func TestBreakerIsFair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f := openFake(t)
		f.set(down)
		for range 4 {
			if err := put(s); err == nil {
				t.Fatal("the upload = nil")
			}
		}
		f.set(stalled)
		refusing := budget.New(1).Lease("caller")
		defer refusing.Close()
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := upload(ctx, s, stores.Object{Key: "key", Size: -1}, nil, 1); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the context ends = %v", err)
			}
			cancel()
			if _, err := upload(t.Context(), s, stores.Object{Key: "key", Size: 5}, []byte("longer"), 6); err == nil {
				t.Error("the wrong size = nil")
			}
			if _, err := s.Begin(t.Context(), stores.Object{Key: "key", Size: -1, Memory: refusing}); !errors.Is(err, budget.ErrRefused) {
				t.Errorf("no memory = %v", err)
			}
			if u, err := s.Begin(t.Context(), stores.Object{Key: "key", Size: -1}); err != nil {
				t.Error(err)
			} else {
				u.Abort()
			}
		}
		if err := s.Ready(); err != nil {
			t.Errorf("Ready = %v, want nil", err)
		}
		if got := s.Stats(); got.Failed != 4 || got.Aborted != 40 || got.InFlight != 0 {
			t.Errorf("%+v, want 4 failed and 40 aborted", got)
		}
		f.set(down)
		if err := put(s); err == nil || s.Ready() == nil {
			t.Errorf("the fifth failure = %v, and the store is still ready", err)
		}
	})
}

// TestStallOpensBreaker checks that a store that stalls is known to be down although the contexts of
// its uploads end first, and that contexts that end soon say nothing about it.
func TestStallOpensBreaker(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		fault    func(string, *http.Request) error
		size     int
		deadline time.Duration
		down     bool
		errors   uint64 // failed requests of each upload
	}{
		{"soon", stalled, 10, 10*time.Second - 1, false, 0},
		{"after 10 s", stalled, 10, 10 * time.Second, true, 1},
		{"after a retry", stalled, 10, 21 * time.Second, true, 2},
		{"in the wait before a retry", stalled, 10, 20100 * time.Millisecond, true, 1},
		{"while the object is searched", stalled, 10, 47 * time.Second, true, 3},
		{"in the first request", stalls("Create"), part + 1, 10 * time.Second, true, 1},
		{"in a part", stalls("Part1"), part + 1, 10 * time.Second, true, 1},
		{"in the last request", stalls("Complete"), part + 1, 10 * time.Second, true, 1},
		{"in a part, soon", stalls("Part1"), part + 1, 5 * time.Second, false, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, f := openFake(t)
				f.set(row.fault)
				for i := range 5 {
					if err := s.Ready(); err != nil || !s.Stats().Up {
						t.Fatalf("after %d uploads: Ready = %v, Up %t", i, err, s.Stats().Up)
					}
					ctx, cancel := context.WithTimeout(t.Context(), row.deadline)
					_, err := upload(ctx, s, stores.Object{Key: "key", Size: -1}, make([]byte, row.size), 1<<20)
					cancel()
					if _, failed := errors.AsType[*stores.Error](err); !failed && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("the upload = %v", err)
					}
					must(t, wait(s))
				}
				if err, up := s.Ready(), s.Stats().Up; up == row.down || isUnavailable(err) != row.down {
					t.Errorf("after 5 uploads: Ready = %v, Up %t, want down %t", err, up, row.down)
				}
				if got := s.Stats().RequestErrors; got != 5*row.errors {
					t.Errorf("%d requests failed, want %d", got, 5*row.errors)
				}
			})
		})
	}
}

// wait waits until no upload is in flight.
func wait(s *stores.Store) error {
	for range 60 {
		synctest.Wait()
		if s.Stats().InFlight == 0 {
			return nil
		}
		time.Sleep(time.Second) //nolint:forbidigo // in a bubble
	}
	return errors.New("an upload is still in flight after a minute")
}

// answer is a store that always answers the same.
type answer struct {
	status int
	body   string
}

// RoundTrip implements http.RoundTripper.
func (a answer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	return &http.Response{StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(a.body)), ContentLength: int64(len(a.body))}, nil
}

// TestBreakerOfAnswers checks which answers close a store to all callers. One that may be about a key
// does not, because callers choose keys.
func TestBreakerOfAnswers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		status int
		code   string // empty: none
		down   bool
	}{
		{403, "AccessDenied", false},
		{403, "", false},
		{403, "InvalidObjectState", false},
		{404, "NoSuchKey", false},
		{404, "", false},
		{400, "InvalidArgument", false},
		{400, "EntityTooLarge", false},
		{409, "OperationAborted", false},
		{412, "PreconditionFailed", false},
		{302, "", false},

		{403, "InvalidAccessKeyId", true},
		{403, "SignatureDoesNotMatch", true},
		{403, "AccountProblem", true},
		{403, "AllAccessDisabled", true},
		{400, "ExpiredToken", true},
		{400, "InvalidToken", true},
		{404, "NoSuchBucket", true},
		{301, "PermanentRedirect", true},
		{400, "RequestTimeout", true},
		{408, "", true},
		{429, "", true},
		{500, "InternalError", true},
		{503, "SlowDown", true},
		{503, "", true},
	} {
		t.Run(strings.TrimSpace(fmt.Sprint(row.status, " ", row.code)), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := open(t, s3Config())
				a := answer{status: row.status}
				if row.code != "" {
					a.body = "<Error><Code>" + row.code + "</Code></Error>"
				}
				s.UseTransport(a)
				for i := range 5 {
					if err := s.Ready(); err != nil {
						t.Fatalf("after %d uploads: Ready = %v", i, err)
					}
					wantFailure(t, put(s), stores.ReasonError)
				}
				if err := s.Ready(); isUnavailable(err) != row.down {
					t.Errorf("after 5 uploads: Ready = %v, want down %t", err, row.down)
				}
			})
		})
	}
}

// TestUp checks that a store counts as up again if no upload has tried it for a minute, and refuses as
// before.
func TestUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f := openFake(t)
		f.set(down)
		for range 5 {
			wantFailure(t, put(s), stores.ReasonError)
		}
		wantUp := func(what string, want bool) {
			t.Helper()
			if got := s.Stats().Up; got != want {
				t.Errorf("%s: Up is %t, want %t", what, got, want)
			}
		}
		wantUp("five failures", false)
		time.Sleep(50 * time.Second) //nolint:forbidigo // in a bubble
		wantFailure(t, put(s), stores.ReasonError)
		time.Sleep(time.Minute - 1) //nolint:forbidigo // in a bubble
		wantUp("almost a minute after the last failure", false)
		time.Sleep(time.Nanosecond) //nolint:forbidigo // in a bubble
		wantUp("a minute after the last failure", true)
		wantFailure(t, put(s), stores.ReasonError)
		wantUp("another failure", false)
		if err := s.Ready(); !isUnavailable(err) {
			t.Errorf("Ready = %v, want that one failure is enough", err)
		}
	})
}

// TestAbortWhileDown checks that an abort gets its try although the store refuses uploads.
func TestAbortWhileDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f := openFake(t)
		u, err := s.Begin(t.Context(), stores.Object{Key: "key", Size: -1})
		must(t, err)
		if _, err := u.Write(make([]byte, part+1)); err != nil {
			t.Fatal(err)
		}
		f.set(down)
		for range 5 {
			if err := put(s); err == nil {
				t.Fatal("the upload = nil")
			}
		}
		f.took()
		u.Abort()
		if err := s.Close(t.Context()); err != nil || f.took() != "Abort@0s" || s.Ready() == nil {
			t.Errorf("Close = %v, want one request, and the store to refuse", err)
		}
	})
}
