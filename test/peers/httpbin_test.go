package peers

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/mccutchen/go-httpbin/v2/httpbin"

	"fetchd/conformance/origin"
	"fetchd/test/rig"
)

// journal is a log of requests in front of a handler.
type journal struct {
	http.Handler
	mu       sync.Mutex
	requests []origin.Request
}

func (j *journal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seen := origin.Request{Method: r.Method, Path: r.URL.EscapedPath(), Header: r.Header.Clone(), Protocol: r.Proto, Time: time.Now(), BodyBytes: r.ContentLength}
	j.mu.Lock()
	j.requests = append(j.requests, seen)
	j.mu.Unlock()
	j.Handler.ServeHTTP(w, r)
}

func (j *journal) since(mark int) []origin.Request {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]origin.Request(nil), j.requests[mark:]...)
}

// alphabet returns what go-httpbin's /range serves: a to z, repeated.
func alphabet(n int64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return b
}

// TestHTTPBin uses go-httpbin, a widely used implementation that shares no code with this
// project.
func TestHTTPBin(t *testing.T) {
	rig.Long(t, 3*time.Minute)
	j := &journal{Handler: httpbin.New()}
	front := httptest.NewServer(j)
	t.Cleanup(front.Close)
	p := &peer{bases: map[string]string{"http": front.URL}, body: alphabet, since: j.since, count: func() int { return len(j.since(0)) }}
	play(t, p, []row{
		{scenario: "200", path: "/range/5000"},
		{scenario: "503 for ever", path: "/status/503"},
		{scenario: "404", path: "/status/404"},
		{scenario: "401", path: "/status/401"},
		{scenario: "403", path: "/status/403"},
		{scenario: "410", path: "/status/410"},
		{scenario: "408", path: "/status/408"},
		{scenario: "204", path: "/status/204"},
		{scenario: "304 to a condition", path: "/etag/v1"},
		{scenario: "6 redirects", path: "/relative-redirect/6", final: "/relative-redirect/1"},
		{scenario: "redirect not followed", path: "/redirect-to?url=%2Fget"},
		{scenario: "body too large", path: "/range/5000"},
		{scenario: "body too large, length untold", path: "/stream-bytes/5000?seed=1"},
		{scenario: "body at the limit", path: "/range/1000"},
		{scenario: "wrong size", path: "/range/499"},
		{scenario: "right size", path: "/range/500"},
		{scenario: "wrong digest", path: "/range/500"},
		{scenario: "wrong media type", path: "/image/png"},
		{scenario: "digest alone", path: "/range/5000"},
		{scenario: "total time spent", path: "/delay/5"},
		{scenario: "unary, 404", path: "/status/404"},
	})
}
