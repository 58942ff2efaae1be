package transmissions

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"fetchd/classify"
)

// TestSmuggledAnswers fetches from an origin that sends a second answer behind the first one, while
// other fetches take its connections as soon as they are free. Every answer names its request, and no
// fetch may get one that names another.
func TestSmuggledAnswers(t *testing.T) {
	t.Parallel()
	tries := 400
	if long() {
		tries = 4000
	}
	const smuggled = "/smuggled"
	for _, row := range []struct {
		name  string
		first func(request) string
	}{
		{"204", func(r request) string { return "HTTP/1.1 204 No Content\r\nAnswers: " + r.path + "\r\n\r\n" }},
		{"200", func(r request) string { return body(r, r.path) }},
	} {
		for _, secure := range []*tls.Config{nil, {}} {
			t.Run(fmt.Sprintf("%s, TLS %t", row.name, secure != nil), func(t *testing.T) {
				t.Parallel()
				o := start(t, script{secure: secure, http1: func(c net.Conn, r request) bool {
					if !strings.HasPrefix(r.path, "/twice/") {
						return answer1(c, r)
					}
					return say(c, row.first(r)+body(r, smuggled)) // in one segment
				}})
				client := newClient(t)
				var next, wrong, broken atomic.Int64
				fetch := func(path string) {
					r := newRequest(t, classify.Standard, http.MethodGet, o.url+path)
					r.Policy.MaxAttempts = 1
					e := run(t.Context(), client, r)
					switch {
					case e.Kind != classify.Success:
						broken.Add(1)
					case e.Response.StatusCode == http.StatusNoContent && e.Response.Header.Get("Answers") == path:
					case string(e.InlineBody) != path:
						wrong.Add(1)
						t.Logf("the fetch of %s got %d %q", path, e.Response.StatusCode, e.InlineBody)
					}
				}
				var all sync.WaitGroup
				for range 16 {
					all.Go(func() {
						for i := next.Add(1); int(i) <= tries; i = next.Add(1) {
							fetch(fmt.Sprintf("/twice/%d", i))
							fetch(fmt.Sprintf("/once/%d", i))
						}
					})
				}
				all.Wait()
				t.Logf("%d tries over %d connections: %d wrong answers, %d fetches failed", tries, o.connections(), wrong.Load(), broken.Load())
				if n := wrong.Load(); n != 0 {
					t.Errorf("%d fetches got the answer to another one", n)
				}
			})
		}
	}
}
