package fetch

import (
	"context"
	"fmt"
	"io"
	"log" //nolint:depguard // net/http takes no other
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/internal/budget"
)

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
	if err != nil {
		t.Fatal(err)
	}
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
