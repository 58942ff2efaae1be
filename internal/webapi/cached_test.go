package webapi_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/internal/webapi"
)

// TestCached checks how often a page is made.
func TestCached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var made atomic.Int32
		page := webapi.Cached(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || len(r.Header) > 0 {
				t.Errorf("the page is made for %s with %v", r.Method, r.Header)
			}
			_, _ = io.WriteString(rw, strconv.Itoa(int(made.Add(1)))+strings.Repeat(" x", 1000))
		}))
		get := func(method, coding string) (string, http.Header) {
			r := httptest.NewRequestWithContext(t.Context(), method, "/", http.NoBody)
			if coding != "" {
				r.Header.Set("Accept-Encoding", coding)
			}
			rw := httptest.NewRecorder()
			page(rw, r)
			var body io.Reader = rw.Body
			if rw.Header().Get("Content-Encoding") == "gzip" {
				var err error
				if body, err = gzip.NewReader(rw.Body); err != nil {
					t.Fatal(err)
				}
			}
			text, err := io.ReadAll(body)
			if err != nil {
				t.Fatal(err)
			}
			number, _, _ := strings.Cut(string(text), " ")
			return number, rw.Header()
		}
		for second := 1; second < 4; second++ {
			want := strconv.Itoa(second)
			var clients sync.WaitGroup
			for range 100 {
				for _, row := range []struct {
					method, coding string
					zipped         bool
				}{
					{"GET", "", false}, {"HEAD", "", false}, {"GET", "gzip", true}, {"GET", "br, GZIP;q=0.5", true},
					{"GET", "gzip;q=0", false}, {"GET", "gzip; q=0.0", false}, {"GET", "gzipped", false}, {"GET", "br", false},
				} {
					clients.Go(func() {
						got, header := get(row.method, row.coding)
						if got != want || (header.Get("Content-Encoding") == "gzip") != row.zipped || header.Get("Vary") == "" {
							t.Errorf("%s with %q: page %s in %q, want %s, zipped: %t", row.method, row.coding, got, header.Get("Content-Encoding"), want, row.zipped)
						}
					})
				}
			}
			clients.Wait()
			<-time.After(time.Second - 1)
			if got, _ := get("GET", ""); got != want {
				t.Errorf("page %s before a second is over, want %s", got, want)
			}
			<-time.After(time.Nanosecond)
		}
	})
}

// TestCachedAnswers checks answers other than a page.
func TestCachedAnswers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		inner  http.HandlerFunc
		header http.Header
		code   int
		body   string
	}{
		{"an error", func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "no", http.StatusTeapot) }, http.Header{"Accept-Encoding": {"gzip"}}, http.StatusTeapot, "no\n"},
		{"an ETag", func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Etag", `"1"`)
			_, _ = io.WriteString(rw, "page")
		}, http.Header{"Accept-Encoding": {"gzip"}}, http.StatusOK, "page"},
		{"the same ETag", func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Etag", `"1"`)
			_, _ = io.WriteString(rw, "page")
		}, http.Header{"If-None-Match": {`"1"`}}, http.StatusNotModified, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
			r.Header = row.header
			rw := httptest.NewRecorder()
			webapi.Cached(row.inner)(rw, r)
			if rw.Code != row.code || rw.Body.String() != row.body {
				t.Errorf("%d %q, want %d %q", rw.Code, rw.Body, row.code, row.body)
			}
		})
	}
}
