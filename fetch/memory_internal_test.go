package fetch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log" //nolint:depguard // net/http takes no other
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/conformance/origin"
	"fetchd/fetch/conns"
	"fetchd/fetch/timers"
	"fetchd/fetch/urls"
	"fetchd/internal/budget"
)

// leaseOf returns a lease that grants up to n bytes.
func leaseOf(t *testing.T, n int64) *budget.Lease {
	t.Helper()
	const limit = 1 << 30
	b := budget.New(limit)
	rest := b.Lease("a")
	if !rest.Grow(budget.Answer, limit/4*3-n) { // the part that one caller may have
		t.Fatalf("%d bytes were refused", limit/4*3-n)
	}
	lease := b.Lease("a")
	if lease.Grow(budget.Answer, n+1) || !lease.Grow(budget.Answer, n) {
		t.Fatalf("the lease does not grant %d bytes", n)
	}
	lease.Shrink(budget.Answer, n)
	return lease
}

// The charges of decoders without their windows, as in package coding.
const flateBytes, brotliBytes, zstdBytes = 64 << 10, 128 << 10, 32 << 10

// memoryRig is an origin and a client that may reach it.
type memoryRig struct {
	origin *origin.Origin
	client *Client
}

func newMemoryRig(t *testing.T) *memoryRig {
	t.Helper()
	o, err := origin.Start(origin.Config{Seed: 1})
	must(t, err)
	c, err := New(Config{RootCAs: o.CA(), Egress: Egress{Unrestricted: true}})
	must(t, err)
	t.Cleanup(func() { _ = o.Close() })
	t.Cleanup(c.Close)
	return &memoryRig{o, c}
}

func (r *memoryRig) request(listener, path string) *Request {
	req := NewRequest(classify.Standard)
	req.URL, _ = urls.Parse(r.origin.URL(listener, path))
	req.HoldBackBytes, req.Policy.BaseDelay = 0, 0
	return req
}

// heldByOutcome returns the bytes that an outcome keeps, which its fetch is still charged for.
func heldByOutcome(out *Outcome) (head, body int64) {
	if out.Response != nil {
		head, body = headBytes(out.Response.Header), 2*int64(cap(out.InlineBody))+int64(len(out.ErrorBody))
	}
	return head, body
}

// TestLeaseThatRefuses refuses each kind of charge in turn. The fetch must end as OUT_OF_MEMORY,
// send nothing more, and keep only the bytes of its outcome. With one byte more it must succeed.
func TestLeaseThatRefuses(t *testing.T) {
	t.Parallel()
	silent := func(t *testing.T, r *memoryRig) { // makes another fetch pay for the head of the HTTP/2 connection
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		r.client.Fetch(ctx, r.request("https", "/s/first/200"), nil) // other fetches may share the connection from now on
		ended := make(chan *Outcome, 1)
		go func() { ended <- r.client.Fetch(ctx, r.request("https", "/s/other/silent"), nil) }()
		t.Cleanup(func() { cancel(); <-ended })
		if _, err := r.origin.Await(t.Context(), "other", 1); err != nil {
			t.Fatal(err)
		}
	}
	inline := func(r *Request) { r.Delivery = Inline }
	for _, row := range []struct {
		name, listener, path string
		change               func(*Request)
		before               func(*testing.T, *memoryRig)
		least, most          int64 // bytes that it needs
	}{
		{"head", "http", "/s/k/200:head-size=20000", nil, nil, 20_000, 22_000},
		{"head over HTTP/2", "https", "/s/k/200", nil, nil, http2HeadBytes, http2HeadBytes + 2<<10},
		{"a 1xx head that is not complete", "http", "/s/k/200:early=103,early-size=50000", nil, nil, 40_000, 60_000},
		{"a 1xx head over TLS", "https1", "/s/k/200:early=103,early-size=50000", nil, nil, 60_000, 110_000},
		{"hops", "http", "/r/k/302/3/200", nil, nil, 3 * hopBytes, 3*hopBytes + 4<<10},
		{"INLINE body", "http", "/s/k/200:size=1000000", inline, nil, 2_000_000, 2_010_000},
		{"INLINE body of unknown length", "http", "/s/k/200:size=1000000,chunked", inline, nil, 2_000_000, 4_000_000},
		{"INLINE body, decoded", "http", "/s/k/200:size=300000,coding=gzip", inline, nil, 600_000 + flateBytes, 1_200_000},
		{"gzip", "http", "/s/k/200:size=100,coding=gzip", nil, nil, flateBytes, flateBytes + 2<<10},
		{"deflate", "http", "/s/k/200:size=100,coding=deflate", nil, nil, flateBytes, flateBytes + 2<<10},
		{"zstd", "http", "/s/k/200:size=300000,coding=zstd", nil, nil, 300_000 + zstdBytes, 9 << 20},
		{"br", "http", "/s/k/200:size=100000,coding=br", nil, nil, 1<<17 + brotliBytes, 9 << 20},
		{"window of HTTP/2, with the head paid by another fetch", "https", "/s/k/200:size=1000000", nil, silent, conns.WindowBytes, conns.WindowBytes + 2<<10},
		{"window of HTTP/2 for a short body", "https", "/s/k/200:size=10000", nil, silent, 10_000, 12_000},
	} {
		for _, method := range []string{"GET", "POST"} {
			if row.listener == "https" && method == "POST" {
				continue // it is HTTP/1.1
			}
			t.Run(row.name+", "+method, func(t *testing.T) {
				t.Parallel()
				r := newMemoryRig(t)
				if row.before != nil {
					row.before(t, r)
				}
				req := r.request(row.listener, row.path)
				req.Method = method
				if method == "POST" { // a 302 turns it into a GET
					req.Policy.MaxRedirects = 3
				}
				if row.change != nil {
					row.change(req)
				}
				if row.listener == "https" && !r.limited(t, req, 16<<20) { // it makes the connection, which is kept
					t.Fatal("16 MiB are not enough")
				}
				if r.limited(t, req, row.least-1) {
					t.Errorf("it needs less than %d bytes", row.least)
				}
				if !r.limited(t, req, row.most) {
					t.Errorf("it needs more than %d bytes", row.most)
				}
			})
		}
	}
}

// limited reports whether a fetch succeeds with that many bytes, and checks its end if
// it does not.
func (r *memoryRig) limited(t *testing.T, req *Request, bytes int64) bool {
	t.Helper()
	lease := leaseOf(t, bytes)
	req.Memory = lease
	before := len(r.origin.Requests("k"))
	out := r.client.Fetch(t.Context(), req, nil)
	sent := len(r.origin.Requests("k")) - before
	if req.URL.Scheme == "https" && out.Response == nil {
		sent = max(sent, out.Exchanges) // over HTTP/2 the request of a fetch that ends at once may not reach the origin
	}
	if out.Attempts != 1 || out.Exchanges != sent {
		t.Errorf("with %d bytes: %d attempts, %d exchanges, want 1 and the %d that the origin saw", bytes, out.Attempts, out.Exchanges, sent)
	}
	head, body := heldByOutcome(out)
	hops := lease.Held(budget.Head) - head
	if n := int64(max(len(out.Hops)-1, 0)); hops < n*hopBytes || hops > n*(hopBytes+2<<10) {
		t.Errorf("with %d bytes: %d are charged for %d hops after the first", bytes, hops, n)
	}
	if got := lease.Held(budget.Body); got != body || lease.Total() != head+hops+body {
		t.Errorf("with %d bytes: %d are charged for bodies and %d in all, want %d and %d", bytes, got, lease.Total(), body, head+hops+body)
	}
	lease.Close()
	if lease.Total() != 0 {
		t.Errorf("%d bytes are charged after Close", lease.Total())
	}
	f := out.Failure
	if f == nil {
		return true
	}
	if f.Class != classify.OutOfMemory || f.Rule != "P7" || f.Reason != "memory" || out.StopReason != classify.Stopped || f.Retryable != (req.Method == "GET") {
		t.Errorf("with %d bytes: %+v, stop %s, want OUT_OF_MEMORY by P7", bytes, f, out.StopReason)
	}
	return false
}

// TestErrorBodyWithoutMemory checks that the start of an error body is kept if there is
// memory for it, and that nothing else depends on it.
func TestErrorBodyWithoutMemory(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, listener, path string
		bytes                int64
		kept                 int
	}{
		{"enough", "http", "/s/k/404:size=5000", 20 << 10, 5000},
		{"too little", "http", "/s/k/404:size=5000", 16 << 10, 0},
		{"enough for a decoder", "http", "/s/k/404:size=5000,coding=gzip", 20<<10 + flateBytes, 5000},
		{"too little for a decoder", "http", "/s/k/404:size=5000,coding=gzip", 20 << 10, 0},
		{"retried", "http", "/s/k/503:size=5000", 16 << 10, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newMemoryRig(t)
			req, lease := r.request(row.listener, row.path), leaseOf(t, row.bytes)
			req.Memory = lease
			out := r.client.Fetch(t.Context(), req, nil)
			if out.Failure == nil || out.Failure.Class != classify.HTTPClientError && out.Failure.Class != classify.HTTPServerError || len(out.ErrorBody) != row.kept {
				t.Errorf("%+v with %d bytes of the body, want the status's class with %d", out.Failure, len(out.ErrorBody), row.kept)
			}
			if head, body := heldByOutcome(out); lease.Total() != head+body {
				t.Errorf("%d bytes are charged, want %d", lease.Total(), head+body)
			}
		})
	}
}

// TestChargeOfTheLastAttempt checks that after each attempt a fetch is charged for the
// response that its outcome would have, and for no earlier one.
func TestChargeOfTheLastAttempt(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, listener, path string
		hops                 []int   // after the first, by attempt
		error                []int64 // bytes of the error body kept, by attempt
	}{
		{"heads that shrink", "http", "/s/k/503:size=0,head-size=50000/503:size=0,head-size=100/200", []int{0, 0, 0}, []int64{0, 0, 0}},
		{"heads that grow", "https", "/s/k/503:size=0,head-size=100/503:size=0,head-size=50000/200", []int{0, 0, 0}, []int64{0, 0, 0}},
		{"error bodies", "http", "/s/k/503:size=9000/503:size=20000/503:size=10", []int{0, 0, 0}, []int64{9000, 16 << 10, 10}},
		{"redirects", "http", "/r/k/302/2/503:size=9,head-size=1000/503:size=5/200", []int{2, 2, 2}, []int64{9, 5, 0}},
		{"no response in the middle", "http", "/s/k/503:size=7,head-size=5000/reset:at=in-head/503:size=0", []int{0, 0, 0}, []int64{7, 7, 0}},
		{"no response at the end", "http", "/s/k/503:size=700/503:size=900/fin:at=before-head", []int{0, 0, 0}, []int64{700, 900, 900}},
		{"a truncated body", "http", "/s/k/200:size=100000,cut=50000/503:size=100/200:size=9", []int{0, 0, 0}, []int64{0, 100, 0}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newMemoryRig(t)
			req, lease := r.request(row.listener, row.path), leaseOf(t, 64<<20)
			req.Memory, req.Events, req.HoldBackBytes = lease, Ends, defaultHoldBackBytes
			var last *Response
			n := 0
			out := r.client.Fetch(t.Context(), req, func(e Event) error {
				if started, ok := e.(ResponseStarted); ok {
					last = started.Response
				}
				finished, ok := e.(AttemptFinished)
				if !ok {
					return nil
				}
				if finished.Response != nil {
					last = finished.Response
				}
				head := int64(0)
				if last != nil {
					head = headBytes(last.Header)
				}
				hops := lease.Held(budget.Head) - head
				if want := int64(row.hops[n]); hops < want*hopBytes || hops > want*(hopBytes+2<<10) {
					t.Errorf("attempt %d: %d bytes are charged for heads, of which %d are the last one's, with %d hops", n+1, head+hops, head, want)
				}
				if got := lease.Total() - head - hops - lease.Held(budget.Receiving); got != row.error[n] {
					t.Errorf("attempt %d: %d bytes are charged other than for heads, want %d", n+1, got, row.error[n])
				}
				n++
				return nil
			})
			if n != 3 || out.Attempts != 3 {
				t.Errorf("%d attempts, %d reported, want 3: %+v", out.Attempts, n, out.Failure)
			}
		})
	}
}

// TestChargeOfAContinuedBody checks that a fetch is charged for the head of the resumed body, and
// for the last head if that is another. At its end it is charged for the head of the outcome.
func TestChargeOfAContinuedBody(t *testing.T) {
	t.Parallel()
	const (
		tag = "200:size=1000,etag=%22v1%22,range,head-size=3000"
		cut = tag + ",cut=300"
	)
	for _, row := range []struct {
		name, path string
		recovery   Recovery
		kept       [][]int // attempts whose heads are kept, after each
	}{
		{"continued twice", cut + "/" + cut + "/" + tag, Resume, [][]int{{1}, {1}, {1}}},
		{"a 503 between", cut + "/503:head-size=500/" + tag, Resume, [][]int{{1}, {1, 2}, {1}}},
		{"a reset between", cut + "/reset/" + tag, Resume, [][]int{{1}, {1}, {1}}},
		{"a 503 first", "503/" + cut + "/" + tag, Resume, [][]int{{1}, {2}, {2}}},
		{"503 in every attempt", cut + "/503:head-size=500/503:head-size=700", Resume, [][]int{{1}, {1, 2}, {1, 3}}},
		{"restarted", cut + "/503:head-size=500/200:size=1000,head-size=900", Restart, [][]int{{1}, {1, 2}, {3}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newMemoryRig(t)
			req, lease := r.request("http", "/s/k/"+row.path), leaseOf(t, 64<<20)
			req.Memory, req.Events, req.Recovery, req.ErrorBodyBytes = lease, Ends, row.recovery, 0
			var heads []int64
			out := r.client.Fetch(t.Context(), req, func(e Event) error {
				finished, ok := e.(AttemptFinished)
				if !ok {
					return nil
				}
				heads = append(heads, 0)
				if finished.Response != nil {
					heads[len(heads)-1] = headBytes(finished.Response.Header)
				}
				want := int64(0)
				for _, attempt := range row.kept[len(heads)-1] {
					want += heads[attempt-1]
				}
				if got := lease.Held(budget.Head); got != want {
					t.Errorf("after attempt %d: %d bytes are charged for heads, want %d", len(heads), got, want)
				}
				return nil
			})
			if want := headBytes(out.Response.Header); out.Attempts != 3 || lease.Held(budget.Head) != want {
				t.Errorf("%d attempts, %d bytes are charged, want 3 and %d: %+v", out.Attempts, lease.Held(budget.Head), want, out.Failure)
			}
		})
	}
}

// TestHeldHeads checks that a fetch that waits with the largest possible head uses less
// than 128 KiB, and that it is charged for that, except for what the allocator rounds
// up. FETCHD_LONG=1 runs 1,000 of them.
func TestHeldHeads(t *testing.T) { //nolint:paralleltest // it measures the heap
	const most = 128 << 10
	many := int64(100)
	if os.Getenv("FETCHD_LONG") == "1" {
		many = 1000
	}
	for _, row := range []struct {
		name         string
		tls, http2   bool
		fields, size int // of each value
	}{
		{"HTTP/1.1, long values", false, false, 500, 110},
		{"HTTP/1.1, short values", false, false, 510, 0},
		{"HTTP/1.1, few long values", false, false, 8, 8000},
		{"HTTP/2, long values", true, true, 500, 90},
		{"HTTP/2, short values", true, true, 510, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h := w.Header()
				h["Content-Length"], h["Retry-After"], h["Date"] = []string{"0"}, []string{"600"}, nil
				if r.URL.Path == "/many" {
					for i := range row.fields {
						h[fmt.Sprintf("X-%03d", i)] = []string{strings.Repeat("v", row.size)}
					}
				}
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
			s.EnableHTTP2 = row.http2
			s.Config.ErrorLog = log.New(io.Discard, "", 0) // clients close connections that were dialled for another
			if row.tls {
				s.StartTLS()
			} else {
				s.Start()
			}
			defer s.Close()
			plain, none := heldWaiting(t, s, "/", many)
			heads, charged := heldWaiting(t, s, "/many", many)
			held := (heads - plain) / many
			t.Logf("%d bytes are held for each, %d are charged", held, (charged-none)/many)
			if held > most {
				t.Errorf("%d bytes are held for each, want at most %d", held, most)
			}
			if held > (charged-none)/many*9/8 {
				t.Errorf("%d bytes are held for each, %d are charged", held, (charged-none)/many)
			}
		})
	}
}

// heldWaiting returns how many heap bytes many fetches use while they wait for their
// second attempt, and how many they are charged.
func heldWaiting(t *testing.T, s *httptest.Server, path string, many int64) (held, charged int64) {
	t.Helper()
	cfg := Config{Egress: Egress{Unrestricted: true}}
	if transport, ok := s.Client().Transport.(*http.Transport); ok && transport.TLSClientConfig != nil {
		cfg.RootCAs = transport.TLSClientConfig.RootCAs
	}
	c, err := New(cfg)
	must(t, err)
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	b := budget.New(1 << 40)
	if cfg.RootCAs != nil { // over HTTP/2 they share one connection, which is not part of them either
		once := NewRequest(classify.Standard)
		once.URL, once.Policy.MaxAttempts = mustURL(t, s.URL+"/"), 1
		c.Fetch(ctx, once, nil)
	}
	for range many {
		r := NewRequest(classify.Standard)
		r.URL, r.Memory = mustURL(t, s.URL+path), b.Lease("a")
		r.TotalTimeout, r.Policy.MaxRetryAfter = 0, time.Hour // the second attempt is later than the test
		all.Go(func() { c.Fetch(ctx, r, nil) })
	}
	waiting := func() int64 {
		all := c.runs.all()
		return int64(len(slices.DeleteFunc(all, func(r *run) bool { return !r.isWaiting() })))
	}
	for waiting() < many {
		runtime.Gosched()
	}
	s.CloseClientConnections() // they are not part of the fetches
	c.Close()
	for c.Connections().Open > 0 {
		runtime.Gosched()
	}
	return int64(heapAlloc()), b.Usage().Total()
}

func heapAlloc() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// http2HeadBytes is what package conns charges for a head over HTTP/2.
const http2HeadBytes = 192 << 10

// TestHeadIsPaidOn checks that an HTTP/2 connection's head stays charged while any
// fetch waits for one, even when the fetch that was charged has ended.
func TestHeadIsPaidOn(t *testing.T) {
	t.Parallel()
	r := newMemoryRig(t)
	r.client.Fetch(t.Context(), r.request("https", "/s/first/200"), nil) // fetches share its connection
	begin := func(key string) (lease *budget.Lease, end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		req, ended := r.request("https", "/s/"+key+"/silent"), make(chan *Outcome, 1)
		lease = leaseOf(t, 1<<20)
		req.Memory = lease
		go func() { ended <- r.client.Fetch(ctx, req, nil) }()
		if _, err := r.origin.Await(t.Context(), key, 1); err != nil {
			t.Fatal(err)
		}
		return lease, func() { cancel(); <-ended }
	}
	first, endFirst := begin("a")
	second, endSecond := begin("b")
	defer endSecond()
	if n := r.origin.Connections("https"); n != 1 {
		t.Fatalf("%d connections, want one", n)
	}
	if got := first.Total() + second.Total(); got != http2HeadBytes {
		t.Errorf("%d bytes are charged for a head of two, want %d", got, http2HeadBytes)
	}
	endFirst()
	runtime.Gosched()
	if got := second.Total(); got != http2HeadBytes {
		t.Errorf("%d bytes are charged once the first has ended, want %d", got, http2HeadBytes)
	}
}

// TestAttemptEndsWhileHoldBackIsSent checks that the whole hold-back is delivered even if the time limit
// of the attempt passes meanwhile. Otherwise the next attempt would resume the body after bytes that
// the caller does not have.
func TestAttemptEndsWhileHoldBackIsSent(t *testing.T) {
	t.Parallel()
	c, err := New(Config{Egress: Egress{Unrestricted: true}})
	must(t, err)
	defer c.Close()
	req := NewRequest(classify.Standard)
	req.URL, _ = urls.Parse("http://origin.example/")
	var a *attempt
	var got []byte
	r := c.newRun(t.Context(), req, func(e Event) error {
		if chunk, ok := e.(BodyChunk); ok {
			a.Cancel(&timers.Error{Class: classify.AttemptTimeout, Limit: time.Second})
			got = append(got, chunk.Data...)
		}
		return nil
	})
	defer r.close()
	a = r.newAttempt()
	a.newExchange()
	a.resp = &http.Response{StatusCode: http.StatusOK, ContentLength: -1}
	p := newProgress(a)
	o := newOutput(a, p)
	defer o.close()
	var sent []byte
	for i := range 10 {
		piece := bytes.Repeat([]byte{byte(i)}, chunkBytes)
		space, err := o.space()
		must(t, err)
		copy(space, piece)
		sent, p.size = append(sent, piece...), p.size+chunkBytes
		must(t, o.wrote(chunkBytes))
	}
	if err := o.finish(); err != nil {
		t.Errorf("finish = %v, want nil", err)
	}
	if !bytes.Equal(got, sent) || p.size != int64(len(got)) {
		t.Errorf("%d bytes were delivered, want %d; another attempt would continue at %d", len(got), len(sent), p.size)
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestNothingIsKept checks that memory is free once its charge is released, although the attempt lives on: it has
// to be reported, and goroutines of HTTP/2 may keep its exchange.
func TestNothingIsKept(t *testing.T) {
	t.Parallel()
	const size = 1_000_000
	for _, row := range []struct {
		name, listener, path string
		lease                int64 // bytes
		good                 bool
	}{
		{"a body", "http", "/200:size=1000000", 10 * size, true},
		{"a body over HTTP/2", "https", "/200:size=1000000", 10 * size, true},
		{"the start of a body", "http", "/200:size=1000000,chunked", size, false},
		{"the window of a decoder", "http", "/200:size=1000000,coding=br", size, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newMemoryRig(t)
			req := r.request(row.listener, "/s/kept"+row.path)
			req.Delivery, req.Memory = Inline, leaseOf(t, row.lease)
			req.Policy.MaxAttempts = 1
			var kept *attempt
			sink := func(e Event) error {
				switch e.(type) {
				case ResponseStarted:
					kept = r.client.runs.list.First().current
				case AttemptFinished:
					if !reflect.ValueOf(&kept.reader).Elem().IsZero() {
						t.Error("the reader of the body has not released what it holds")
					}
				}
				return nil
			}
			collected := make(chan struct{})
			func() {
				out := r.client.Fetch(t.Context(), req, sink)
				if good := out.Kind == classify.Success; good != row.good || good && len(out.InlineBody) != size {
					t.Fatalf("%v, %v, %d bytes", out.Kind, out.Failure, len(out.InlineBody))
				} else if !good {
					close(collected)
					return
				}
				runtime.AddCleanup(&out.InlineBody[0], func(c chan struct{}) { close(c) }, collected)
			}()
			for range 100 {
				runtime.GC()
				select {
				case <-collected:
					runtime.KeepAlive(kept)
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
			t.Error("the body is kept with the attempt")
		})
	}
}
