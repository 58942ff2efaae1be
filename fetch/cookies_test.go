package fetch_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
)

// cookiesSent sets cookies in the first response, redirects, and returns the cookies of the second
// request.
func cookiesSent(t *testing.T, set []string) string {
	t.Helper()
	var got string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			for _, line := range set {
				w.Header().Add("Set-Cookie", line)
			}
			http.Redirect(w, r, "/next", http.StatusFound)
			return
		}
		got = r.Header.Get("Cookie")
	}))
	t.Cleanup(s.Close)
	// The host is a name, because the jar treats loopback as a secure origin, as browsers do.
	c := dialing(t, fetch.Config{}, map[string]string{"cookies.test:80": s.Listener.Addr().String()})
	r := get(t, "http://cookies.test/")
	r.Cookies = true
	if out := c.Fetch(t.Context(), r, nil); out.Kind != classify.Success {
		t.Fatalf("%s: %+v", out.Kind, out.Failure)
	}
	return got
}

// dialing returns a client that connects to other addresses than those of its URLs.
func dialing(t *testing.T, cfg fetch.Config, at map[string]string) *fetch.Client {
	t.Helper()
	cfg.Egress.Unrestricted = true
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, at[address])
	}
	c := newClient(t, cfg)
	return c
}

// TestCookieValues checks that values are sent back as they were set, with their quotes (RFC 6265
// §5.2).
func TestCookieValues(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ set, want string }{
		{"a=b", "a=b"},
		{`a="b c,d"`, `a="b c,d"`},
		{`a="xyz"`, `a="xyz"`},
		{"a=b; Secure", ""},
		{"a=" + strings.Repeat("x", 4000), "a=" + strings.Repeat("x", 4000)},
		{"a=" + strings.Repeat("x", 4096), ""},
	} {
		if got := cookiesSent(t, []string{row.set}); got != row.want {
			t.Errorf("Set-Cookie %.40q: Cookie %.40q, want %.40q", row.set, got, row.want)
		}
	}
}

// TestCookieBounds checks that an origin can fill neither the jar nor later requests.
func TestCookieBounds(t *testing.T) {
	t.Parallel()
	var many, long []string
	for n := range 300 {
		many = append(many, fmt.Sprintf("n%d=1", n))
	}
	for n := range 10 {
		long = append(long, fmt.Sprintf("n%d=%s", n, strings.Repeat("x", 4000)))
	}
	if n := strings.Count(cookiesSent(t, many), "="); n != 100 {
		t.Errorf("%d cookies sent of 300, want 100", n)
	}
	if n := len(cookiesSent(t, long)); n > 8<<10 || n < 8000 {
		t.Errorf("%d bytes of cookies sent, want two of 4 KB", n)
	}
}

// TestCookieStaysOffPlainHTTP checks that a cookie set over https is not sent over http (D4).
func TestCookieStaysOffPlainHTTP(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	const host = "https.origin.test" // in the origin's certificate
	w.client = dialing(t, fetch.Config{RootCAs: w.origin.CA()},
		map[string]string{host + ":443": w.origin.Addr("https"), host + ":80": w.origin.Addr("http")})
	r := get(t, "https://"+host+"/s/k/302:set-cookie=session=secret;Path=%2F,to=http%3A%2F%2F"+host+"%2Fs%2Fplain%2F200")
	r.Cookies = true
	res := w.run(t.Context(), r)
	seen := w.origin.Requests("plain")
	if res.Kind != classify.Success || len(seen) != 1 || seen[0].Header.Get("Cookie") != "" {
		t.Errorf("%s after %d plain requests: %v", res.Kind, len(seen), seen)
	}
}
