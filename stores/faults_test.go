package stores_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"fetchd/internal/budget"
	"fetchd/stores"
)

// fault answers a request, or forwards it to the gateway.
type fault func(w http.ResponseWriter, r *http.Request, forward http.Handler)

// proxy stands between a store and the gateway.
type proxy struct {
	server *httptest.Server
	mu     sync.Mutex
	seen   []string         // operations
	faults map[string]fault // by operation
	times  int              // each fault happens; negative: always
}

func newProxy(t testing.TB, times int) *proxy {
	p := &proxy{faults: make(map[string]fault), times: times}
	target, err := url.Parse("http://" + gateway.address)
	must(t, err)
	transport := &http.Transport{DisableCompression: true}
	forward := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // it is signed
	}, ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := p.next(operation(r)); f != nil {
			f(w, r, forward)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		p.server.Close()
		transport.CloseIdleConnections()
	})
	return p
}

// next records an operation and returns its fault.
func (p *proxy) next(op string) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, op)
	f := p.faults[op]
	if f == nil || p.times == 0 {
		return nil
	}
	p.times--
	return f
}

func (p *proxy) operations() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.seen, " ")
}

// operation returns the name of an S3 request, with the number of a part.
func operation(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodPost && q.Has("uploads"):
		return "Create"
	case r.Method == http.MethodPost:
		return "Complete"
	case r.Method == http.MethodPut && q.Has("partNumber"):
		return "Part" + q.Get("partNumber")
	case r.Method == http.MethodPut:
		return "Put"
	case r.Method == http.MethodHead:
		return "Head"
	case r.Method == http.MethodDelete:
		return "Abort"
	}
	return r.Method
}

// status answers with an error of S3.
func status(code int, name string) fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>a message</Message></Error>", name)
	}
}

// reset closes the connection before the request is carried out.
func reset(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

// lost closes the connection after the request was carried out.
func lost(_ http.ResponseWriter, r *http.Request, forward http.Handler) {
	forward.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// truncated sends the first half of a response.
func truncated(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	whole := httptest.NewRecorder()
	forward.ServeHTTP(whole, r)
	for name, values := range whole.Header() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", fmt.Sprint(whole.Body.Len()+1))
	w.WriteHeader(whole.Code)
	_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// endless sends an error that never ends.
func endless(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = io.WriteString(w, "<Error><Code>")
	for r.Method != http.MethodHead {
		if _, err := w.Write(bytes.Repeat([]byte("A"), 4096)); err != nil {
			return
		}
	}
}

// switched switches to another protocol, in which nothing comes.
func switched(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	_, _ = io.Copy(io.Discard, r.Body)
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: none\r\n\r\n")
	_, _ = io.Copy(io.Discard, conn) // the client closes it
	_ = conn.Close()
}

// TestFaults makes each request fail once, twice, and always. An upload that fails leaves nothing.
func TestFaults(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	const always = -1
	multipart, single := []string{"Create", "Part1", "Part2", "Complete"}, []string{"Put"}
	for _, row := range []struct {
		name  string
		fault fault
		steps []string
		times int
		ok    bool
		tries int // of the step
	}{
		{"500", status(500, "InternalError"), append(multipart, single...), 1, true, 2},
		{"503 twice", status(503, "SlowDown"), append(multipart, single...), 2, true, 3},
		{"429", status(429, "TooManyRequests"), single, 1, true, 2},
		{"request timeout", status(400, "RequestTimeout"), []string{"Part2"}, 1, true, 2},
		{"reset", reset, append(multipart, single...), 1, true, 2},
		{"lost", lost, append(multipart, single...), 1, true, 2},
		{"truncated", truncated, []string{"Create", "Complete"}, 1, true, 2},
		{"endless", endless, append(multipart, single...), 1, true, 2},
		{"switched", switched, append(multipart, single...), 1, true, 2},
		{"500 always", status(500, "InternalError"), append(multipart, single...), always, false, 3},
		{"reset always", reset, append(multipart, single...), always, false, 3},
		{"lost always", lost, []string{"Create", "Part2"}, always, false, 3},
		{"lost always, and the store has the object", lost, []string{"Complete", "Put"}, always, true, 3},
		{"forbidden", status(403, "AccessDenied"), append(multipart, single...), always, false, 1},
		{"not found", status(404, "NoSuchBucket"), append(multipart, single...), always, false, 1},
		{"bad request", status(400, "InvalidArgument"), append(multipart, single...), always, false, 1},
		{"redirect", status(301, "PermanentRedirect"), single, always, false, 1},
	} {
		for _, step := range row.steps {
			t.Run(row.name+" "+step, func(t *testing.T) {
				t.Parallel()
				b := b.in(t)
				p := newProxy(t, row.times)
				p.faults[step] = row.fault
				memory := budget.New(64 << 20)
				lease := memory.Lease("caller")
				defer lease.Close()
				body, prefix := random(part+1), strings.ReplaceAll(row.name+step, ",", "")
				if step == "Put" {
					body = random(100_000)
				}
				s := open(t, stores.Config{URL: b.url(p.server.URL), Prefix: prefix})
				got, err := upload(t.Context(), s, stores.Object{Key: "key", Size: int64(len(body)), Memory: lease}, body, 1<<20)
				must(t, s.Close(t.Context()))
				if tries := strings.Count(p.operations()+" ", step+" "); tries != row.tries {
					t.Errorf("%s was requested %d times, want %d: %s", step, tries, row.tries, p.operations())
				}
				left := 0
				if row.ok {
					b.want(prefix+"/key", body)
					if err != nil || got.ETag == "" || got.Size != int64(len(body)) {
						t.Errorf("Commit = %+v, %v", got, err)
					}
				} else {
					wantFailure(t, err, stores.ReasonError)
					b.wantNone(prefix)
				}
				if row.fault != nil && step == "Create" && (strings.HasPrefix(row.name, "lost") || row.name == "truncated") {
					left = row.tries // without its answer, an upload has no name
					if row.ok {
						left--
					}
				}
				if n := b.unfinished(prefix); n != left {
					t.Errorf("%d multipart uploads are left, want %d", n, left)
				}
				if used := memory.Usage().Total(); used != 0 {
					t.Errorf("%d bytes are still charged", used)
				}
			})
		}
	}
}

// wantFailure checks an error of the store, and returns its detail.
func wantFailure(t testing.TB, err error, reason string) (detail string) {
	t.Helper()
	failure, ok := errors.AsType[*stores.Error](err)
	if !ok || failure.Reason() != reason {
		t.Fatalf("the error is %v, want an Error with the reason %s", err, reason)
	}
	text, detail := fmt.Sprint(failure), failure.Detail()
	if len(text) > 500 || strings.Contains(text, secret) ||
		strings.Contains(detail, "127.0.0.1") || strings.Contains(detail, secret) || !strings.Contains(detail, "archive") {
		t.Errorf("the error is %q, with the detail %q", text, detail)
	}
	return detail
}

// TestCancel ends the context at each request. The caller does not wait, and nothing is left.
func TestCancel(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	for _, row := range []struct {
		step string
		late bool // the store carries the request out, and answers later
	}{{"Create", false}, {"Create", true}, {"Part1", false}, {"Part2", false}, {"Complete", false}, {"Put", false}} {
		step := row.step
		t.Run(fmt.Sprint(step, row.late), func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			p := newProxy(t, 1)
			why := errors.New("the caller hung up")
			ctx, cancel := context.WithCancelCause(t.Context())
			p.faults[step] = func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
				_, _ = io.Copy(io.Discard, r.Body)
				cancel(why)
				if row.late {
					forward.ServeHTTP(w, r)
					return
				}
				<-r.Context().Done()
			}
			body := random(part + 1)
			if step == "Put" {
				body = body[:1000]
			}
			memory := budget.New(64 << 20)
			lease := memory.Lease("caller")
			defer lease.Close()
			prefix := fmt.Sprint(step, row.late)
			s := open(t, stores.Config{URL: b.url(p.server.URL), Prefix: prefix})
			_, err := upload(ctx, s, stores.Object{Key: "key", Size: -1, Memory: lease}, body, 1<<20)
			if !errors.Is(err, why) {
				t.Errorf("the upload = %v, want the cause of the context", err)
			}
			must(t, s.Close(t.Context()))
			b.wantNone(prefix)
			if n := b.unfinished(prefix); n != 0 {
				t.Errorf("%d multipart uploads are left: %s", n, p.operations())
			}
			if stats := s.Stats(); stats.Aborted != 1 || stats.Failed != 0 || memory.Usage().Total() != 0 {
				t.Errorf("%+v, with %d bytes charged, want one aborted upload", stats, memory.Usage().Total())
			}
		})
	}
}

// TestAbort ends uploads of several lengths.
func TestAbort(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	memory := budget.New(64 << 20)
	s := open(t, stores.Config{URL: b.url("")})
	for _, size := range []int{0, 1, part, part + 1, 2*part + 1} {
		lease := memory.Lease("caller")
		u, err := s.Begin(t.Context(), stores.Object{Key: "key", Size: -1, Memory: lease})
		must(t, err)
		if _, err := u.Write(random(size)); err != nil {
			t.Fatal(err)
		}
		u.Abort()
		u.Abort()
		if _, err := u.Write([]byte("a")); err == nil {
			t.Error("Write after Abort = nil, want an error")
		}
		if _, err := u.Commit(digest("")); err == nil {
			t.Error("Commit after Abort = nil, want an error")
		}
		lease.Close()
	}
	must(t, s.Close(t.Context()))
	b.wantNone("")
	if n := b.unfinished(""); n != 0 || memory.Usage().Total() != 0 {
		t.Errorf("%d multipart uploads are left, and %d bytes charged", n, memory.Usage().Total())
	}
	if got, want := s.Stats(), (stores.Stats{Up: true, Aborted: 5}); got != want {
		t.Errorf("Stats = %+v, want %+v", got, want)
	}
}

// TestRefusedMemory refuses each of the charges of an upload in turn.
func TestRefusedMemory(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	s := open(t, stores.Config{URL: b.url(""), Prefix: "p"})
	body := random(part + 1)
	granted := false
	for limit := int64(32 << 10); !granted; limit += 64 << 10 {
		if limit > 8<<20 {
			t.Fatalf("an object of %d bytes was refused with %d bytes of memory", len(body), limit)
		}
		memory := budget.New(limit/3*4 + 4) // one caller may use three quarters
		lease := memory.Lease("caller")
		u, err := s.Begin(t.Context(), stores.Object{Key: "key", Size: -1, Memory: lease})
		if err == nil {
			n := 0
			if n, err = u.Write(body); err == nil {
				_, err = u.Commit(digest(body))
			} else if int64(n) > limit {
				t.Errorf("%d bytes were taken with %d bytes of memory", n, limit)
			}
			u.Abort()
		}
		granted = err == nil
		if !granted && !errors.Is(err, budget.ErrRefused) {
			t.Fatalf("with %d bytes of memory: %v, want ErrRefused", limit, err)
		}
		lease.Close()
		for memory.Usage().Total() != 0 { // the abort is still in flight
			time.Sleep(time.Millisecond) //nolint:forbidigo // another goroutine ends
		}
	}
	b.want("p/key", body)
	if stats := s.Stats(); stats.Failed != 0 || !stats.Up {
		t.Errorf("%+v, want no failures: the store did not fail", stats)
	}
	if n := b.unfinished(""); n != 0 {
		t.Errorf("%d multipart uploads are left", n)
	}
}

// TestClean checks that only old uploads below the prefix are aborted.
func TestClean(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	p := newProxy(t, -1)
	p.faults["Abort"] = reset // as if the process had been killed
	for _, prefix := range []string{"mine", "mine2"} {
		s := open(t, stores.Config{URL: b.url(p.server.URL), Prefix: prefix})
		for i := range 3 {
			u, err := s.Begin(t.Context(), stores.Object{Key: fmt.Sprint("a/", i), Size: -1})
			must(t, err)
			if _, err := u.Write(random(part + 1)); err != nil {
				t.Fatal(err)
			}
			u.Abort()
		}
		must(t, s.Close(t.Context()))
		if stats := s.Stats(); stats.RequestErrors != 3 {
			t.Errorf("%+v, want a failed request for each abort, which is tried once", stats)
		}
	}
	s := open(t, stores.Config{URL: b.url(""), Prefix: "mine"})
	for _, row := range []struct {
		name      string
		olderThan time.Duration
		want      int
		left      int
	}{{"too young", time.Hour, 0, 6}, {"old", -time.Minute, 3, 3}, {"nothing left", -time.Minute, 0, 3}} {
		if n, err := s.Clean(t.Context(), row.olderThan); n != row.want || err != nil {
			t.Errorf("%s: Clean = %d, %v, want %d", row.name, n, err, row.want)
		}
		if n := b.unfinished(""); n != row.left {
			t.Errorf("%s: %d multipart uploads are left, want %d", row.name, n, row.left)
		}
	}
}
