package fetch

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/classify"
	"fetchd/conformance/origin"
	"fetchd/fetch/urls"
)

// TestOneLoop checks that go-retryablehttp asks for one verdict after each attempt, and for one
// delay between two attempts. Its CheckRetry makes the decision: none is made before it is called.
func TestOneLoop(t *testing.T) {
	t.Parallel()
	o, err := origin.Start(origin.Config{})
	must(t, err)
	defer func() { _ = o.Close() }()
	c, err := New(Config{Egress: Egress{Unrestricted: true}})
	must(t, err)
	defer c.Close()
	req := NewRequest(classify.Standard)
	req.URL, _ = urls.Parse(o.URL("http", "/s/loop/503"))
	req.Policy.BaseDelay, req.Policy.MaxAttempts = 0, 4
	r := &run{client: c, req: req, caller: t.Context(), start: time.Now(), deadline: time.Now().Add(time.Minute)}
	defer r.close()
	r.initialHop = hopRequest{method: "GET", url: req.URL, header: c.firstHeader(req)}
	r.startHop = &r.initialHop

	var verdicts, waits int
	e := newEngine()
	e.CheckRetry = func(ctx context.Context, resp *http.Response, err error) (bool, error) {
		verdicts++
		r.decision = classify.Decision{}
		again, err := checkRetry(ctx, resp, err)
		if r.decision.Verdict == classify.NoVerdict {
			t.Errorf("attempt %d: the decision was made before the loop asked for it", r.attempts)
		}
		return again, err
	}
	e.Backoff = func(low, high time.Duration, n int, resp *http.Response) time.Duration {
		waits++
		return backoff(low, high, n, resp)
	}
	r.loop(e)
	if sent := len(o.Requests("loop")); verdicts != 4 || waits != 3 || sent != 4 || r.attempts != 4 {
		t.Errorf("%d verdicts, %d waits, %d requests, %d attempts, want 4, 3, 4, 4", verdicts, waits, sent, r.attempts)
	}
}

// TestNothingElseWaitsOrSends checks the calls in this package and those below it.
func TestNothingElseWaitsOrSends(t *testing.T) {
	t.Parallel()
	allowed := map[string][]string{ // call: files
		"time.After":     {"conns/race.go"},                                                                            // between two addresses of a name
		"time.AfterFunc": {"timers/timers.go", "conns/pool.go", "conns/frames.go", "conns/http1.go", "conns/http2.go"}, // those of conns close connections and release memory
		".RoundTrip":     {"attempt.go", "conns/http2.go", "auth/sources.go"},                                          // that of auth asks for tokens
		".Do":            {"loop.go", "conns/socket.go"},                                                               // the socket's is that of a sync.Once
	}
	watched := []string{"time.Sleep", "time.After", "time.Tick", "time.NewTimer", "time.NewTicker", "time.AfterFunc",
		"http.Get", "http.Post", "http.Head", ".RoundTrip", ".Do"}
	files, err := filepath.Glob("*.go")
	must(t, err)
	below, err := filepath.Glob("*/*.go")
	must(t, err)
	seen := map[string]bool{}
	for _, file := range append(files, below...) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, call := range calls(t, file) {
			if !slices.Contains(watched, call) {
				continue
			}
			if seen[call] = true; !slices.Contains(allowed[call], file) {
				t.Errorf("%s calls %s: only go-retryablehttp waits and makes attempts", file, call)
			}
		}
	}
	for call := range allowed {
		if !seen[call] {
			t.Errorf("nothing calls %s any more: remove it from the list", call)
		}
	}
}

// calls returns the calls of selectors in a file: "time.Sleep" for a watched package, ".Do" for any
// method of that name.
func calls(t *testing.T, file string) []string {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	must(t, err)
	var found []string
	ast.Inspect(tree, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && (x.Name == "time" || x.Name == "http") {
					found = append(found, x.Name+"."+sel.Sel.Name)
				} else {
					found = append(found, "."+sel.Sel.Name)
				}
			}
		}
		return true
	})
	return found
}

// TestEndlessEmptyInput checks that encoded bytes that nothing is decoded from are not read endlessly,
// because they are limited too.
func TestEndlessEmptyInput(t *testing.T) {
	t.Parallel()
	var emptyMember bytes.Buffer
	must(t, gzip.NewWriter(&emptyMember).Close())
	for _, row := range []struct {
		name, coding string
		start, part  []byte
	}{
		{"gzip members", "gzip", nil, emptyMember.Bytes()},
		{"a name in a gzip header", "gzip", []byte{0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 0}, []byte("name")},
		{"bytes behind gzip", "gzip", emptyMember.Bytes(), []byte("\n")},
		{"bytes behind br", "br", []byte{6}, []byte("\n")},
		{"zstd frames to be skipped", "zstd", nil, append([]byte{0x50, 0x2a, 0x4d, 0x18, 0, 4, 0, 0}, make([]byte, 1<<10)...)},
		{"stored deflate blocks", "deflate", nil, []byte{0, 0, 0, 0xff, 0xff}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", row.coding)
				_, _ = w.Write(row.start) // the test fails without it
				many := bytes.Repeat(row.part, 1000)
				for sent := 0; sent < 1<<30; sent += len(many) {
					if _, err := w.Write(many); err != nil {
						return
					}
				}
			}))
			t.Cleanup(s.Close)
			c, err := New(Config{Egress: Egress{Unrestricted: true}})
			must(t, err)
			t.Cleanup(c.Close)
			for _, truncate := range []bool{false, true} {
				req := NewRequest(classify.Standard)
				req.URL, req.MaxBodyBytes, req.Truncate = mustURL(t, s.URL), 1000, truncate
				out := c.Fetch(t.Context(), req, nil)
				if out.Body.EncodedSize > 1000+2*codingOverhead || out.Body.Size != 0 || out.Body.Truncated != truncate {
					t.Errorf("truncate %t: read %d bytes, %d decoded, truncated %t", truncate, out.Body.EncodedSize, out.Body.Size, out.Body.Truncated)
				}
				if truncate != (out.Kind == classify.Success) || !truncate && (out.Failure.Class != classify.BodyTooLarge || out.Failure.Reason != "max_size_bytes") {
					t.Errorf("truncate %t: %s, failure %+v, want BODY_TOO_LARGE, or success if the body may be truncated", truncate, out.Kind, out.Failure)
				}
			}
		})
	}
}

// TestFirstHeader checks that a shared header equals the one that would be built, and that no other
// header is shared.
func TestFirstHeader(t *testing.T) {
	t.Parallel()
	c, err := New(Config{Egress: Egress{Unrestricted: true}, UserAgent: "a test"})
	must(t, err)
	defer c.Close()
	for _, row := range []struct {
		name   string
		change func(*Request)
		shared bool
	}{
		{"nothing expected", func(*Request) {}, true},
		{"bytes as they are", func(r *Request) { r.KeepEncoding = true }, true},
		{"a download", func(r *Request) { r.Policy = classify.Download.Policy() }, true},
		{"an empty header", func(r *Request) { r.Header = http.Header{} }, true},
		{"a header", func(r *Request) { r.Header = http.Header{"Range": {"bytes=1-"}} }, false},
		{"a key", func(r *Request) { r.IdempotencyKey = "k" }, false},
		{"from another fetch", func(r *Request) { r.Hops = 1 }, false},
	} {
		r := NewRequest(classify.Standard)
		row.change(r)
		got := c.firstHeader(r)
		if diff := cmp.Diff(c.headerOf(r), got); diff != "" {
			t.Errorf("%s: the header is not the request's (-want +got)\n%s", row.name, diff)
		}
		again := c.firstHeader(r)
		again["X-Mark"] = nil
		if _, shared := got["X-Mark"]; shared != row.shared {
			t.Errorf("%s: shared %t, want %t", row.name, shared, row.shared)
		}
		delete(again, "X-Mark")
	}
}

// TestWaits checks that a shutdown ends the fetches that wait, and those that start to wait later.
// End ends the others. The list has no fetch that is over.
func TestWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shutdown, shut := context.WithCancel(t.Context())
		c, err := New(Config{Egress: Egress{Unrestricted: true}, Shutdown: shutdown})
		must(t, err)
		defer c.Close()
		started := func() *run { return c.newRun(t.Context(), NewRequest(classify.Standard), nil) }
		over, first, gone, second, later := started(), started(), started(), started(), started()
		over.setWaiting(true)
		over.setWaiting(false)
		first.setWaiting(true)
		gone.close()
		gone.close()
		second.setWaiting(true)
		shut()
		synctest.Wait()
		later.setWaiting(true)
		for name, row := range map[string]struct {
			*run
			want error
		}{"over": {over, nil}, "first": {first, errShutdown}, "second": {second, errShutdown}, "later": {later, errShutdown}} {
			if got := row.cancelCause(); got != row.want { //nolint:errorlint // the very one
				t.Errorf("%s ended by %v, want %v", name, got, row.want)
			}
		}
		second.close()
		if n := c.End(); n != 3 {
			t.Errorf("End = %d fetches, want 3", n)
		}
		last := started()
		for name, r := range map[string]*run{"over": over, "last": last} {
			if got := r.cancelCause(); got != errShutdown { //nolint:errorlint // the very one
				t.Errorf("%s ended by %v, want %v", name, got, errShutdown)
			}
		}
		for _, r := range []*run{last, over, later, first} {
			r.close()
		}
		if n := len(c.runs.all()); n != 0 {
			t.Errorf("%d fetches are listed that have ended", n)
		}
	})
}

// TestLargeStack checks that with many fetches in flight, one whose goroutine has a large stack already
// waits for its origin there, unless it needs more stack.
func TestLargeStack(t *testing.T) {
	t.Parallel()
	o, err := origin.Start(origin.Config{})
	must(t, err)
	defer func() { _ = o.Close() }()
	for _, row := range []struct {
		name, key string
		change    func(*Request)
		idle      int // workers, of one, while the origin is waited for
	}{
		{"large stack", "large", func(r *Request) { r.LargeStack = true }, 1},
		{"large stack, events of attempts", "events", func(r *Request) { r.LargeStack, r.Events = true, Attempts }, 0},
		{"small stack", "small", func(*Request) {}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := crowded(t, Config{})
			c.workers.Call(func() {})
			for c.workers.Idle() == 0 { // it is on its way
				runtime.Gosched()
			}
			r := NewRequest(classify.Standard)
			r.Events = Ends
			row.change(r)
			r.URL, _ = urls.Parse(o.URL("http", "/s/"+row.key+"/silent"))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan *Outcome, 1)
			go func() { ended <- c.Fetch(ctx, r, func(Event) error { return nil }) }()
			if _, err := o.Await(t.Context(), row.key, 1); err != nil {
				t.Fatal(err)
			}
			if got := c.workers.Idle(); got != row.idle {
				t.Errorf("%d workers idle while the origin is waited for, want %d", got, row.idle)
			}
			cancel()
			if out := <-ended; out.Failure == nil || out.Failure.Class != classify.Cancelled || out.Attempts != 1 {
				t.Errorf("%+v, want cancelled after 1 attempt", out)
			}
		})
	}
}

// TestLargeStackHandover checks the worker that reads the body: a limit that passes there is reported as
// that limit, and a panic of the sink reaches the caller.
func TestLargeStackHandover(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		panics bool // the sink does, when the attempt has ended
	}{
		{"the limit passes", false},
		{"the sink panics", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, r := crowded(t, Config{Dial: halfAnswer}), NewRequest(classify.Standard)
				r.URL, _ = urls.Parse("http://example.com/")
				r.LargeStack, r.Events, r.AttemptTimeout, r.Policy.MaxAttempts = true, Ends, time.Second, 1
				out, panicked := caught(func() *Outcome {
					return c.Fetch(t.Context(), r, func(Event) error {
						if row.panics {
							panic("a reason")
						}
						return nil
					})
				})
				if (panicked != nil) != row.panics {
					t.Errorf("panicked with %v, want one: %t", panicked, row.panics)
				}
				if !row.panics && (out.Failure == nil || out.Failure.Class != classify.AttemptTimeout || out.Failure.Phase != classify.PhaseTransfer || out.Response == nil) {
					t.Errorf("%+v, want ATTEMPT_TIMEOUT in the body", out)
				}
				if got := c.open.Load(); got != maxOnCaller {
					t.Errorf("%d fetches are open, want the %d from before", got, maxOnCaller)
				}
			})
		})
	}
}

// crowded returns a client with as many fetches in flight as run on their callers' goroutines.
func crowded(t *testing.T, cfg Config) *Client {
	t.Helper()
	cfg.Egress.Unrestricted = true
	c, err := New(cfg)
	must(t, err)
	t.Cleanup(c.Close)
	c.open.Store(maxOnCaller)
	return c
}

// halfAnswer is a [Config.Dial] to an origin in memory that never sends all of a body.
func halfAnswer(context.Context, string, string) (net.Conn, error) {
	ours, its := net.Pipe()
	go func() {
		if _, err := http.ReadRequest(bufio.NewReader(its)); err == nil {
			_, _ = io.WriteString(its, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
			_, _ = io.Copy(io.Discard, its)
		}
	}()
	return ours, nil
}

// caught calls f and returns what it panics with; nil means that it returned.
func caught(f func() *Outcome) (out *Outcome, panicked any) {
	defer func() { panicked = recover() }()
	return f(), nil
}
