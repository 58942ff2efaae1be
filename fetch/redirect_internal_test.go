package fetch

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"fetchd/fetch/urls"
)

// allHeaders returns one header field of each kind, by canonical name.
func allHeaders() http.Header {
	h := make(http.Header)
	for _, name := range []string{
		"Accept", "Accept-Encoding", "Accept-Language", "Idempotency-Key", "If-Match", "If-Modified-Since", "If-None-Match",
		"If-Range", "If-Unmodified-Since", "Range", "User-Agent", // to anyone
		"Content-Type", "Content-Language", // with the body
		"Accept-Charset", "Authorization", "Cookie", "Contents", "From", "Origin", "Referer", "X-Api-Key", // to the same origin
	} {
		h.Set(name, "v")
	}
	return h
}

var (
	toAnyone = []string{
		"Accept", "Accept-Encoding", "Accept-Language", "Idempotency-Key", "If-Match", "If-Modified-Since", "If-None-Match",
		"If-Range", "If-Unmodified-Since", "Range", "User-Agent",
	}
	withBody   = []string{"Content-Language", "Content-Type"}
	sameOnly   = []string{"Accept-Charset", "Authorization", "Contents", "Cookie", "From", "Origin", "Referer", "X-Api-Key"}
	everything = slices.Concat(toAnyone, withBody, sameOnly)
)

func mustURL(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := urls.Parse(raw)
	if err != nil {
		t.Fatalf("Parse(%q): %v", raw, err)
	}
	return u
}

// follow returns the header after a redirect.
func follow(t *testing.T, h http.Header, from, to, method string, status int, forward bool) http.Header {
	t.Helper()
	u := mustURL(t, from)
	step := ResolveRedirect(RedirectRules{}, u, u, method, status, to)
	hop := &hopRequest{url: u, header: h}
	if method != "GET" && method != "HEAD" {
		hop.body = []byte("body")
	}
	return nextHeader(hop, &step, forward)
}

// TestNextHeader checks which header fields are forwarded (spec D2, D4).
func TestNextHeader(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, from, to, method string
		status                 int
		forward                bool
		want                   []string
	}{
		{"same origin", "http://a/", "http://a/x", "GET", 302, false, everything},
		{"same origin, the port written", "http://a/", "http://a:80/x", "GET", 302, false, everything},
		{"same origin, the body dropped", "http://a/", "http://a/x", "POST", 303, false, slices.Concat(toAnyone, sameOnly)},
		{"same origin, the body kept", "http://a/", "http://a/x", "POST", 307, false, everything},
		{"another host", "http://a/", "http://b/", "GET", 302, false, toAnyone},
		{"another host, the body dropped", "http://a/", "http://b/", "POST", 302, false, toAnyone},
		{"another host, the body kept", "http://a/", "http://b/", "POST", 308, false, slices.Concat(toAnyone, withBody)},
		{"a sub-domain", "http://a.example/", "http://sub.a.example/", "GET", 302, false, toAnyone},
		{"another port", "http://a/", "http://a:8080/", "GET", 302, false, toAnyone},
		{"http to https", "http://a/", "https://a/", "GET", 302, false, toAnyone},
		{"https to http", "https://a/", "http://a/", "GET", 302, false, toAnyone},
		{"another host with forward_credentials", "http://a/", "http://b/", "GET", 302, true, everything},
		{"another host with forward_credentials, the body dropped", "http://a/", "http://b/", "POST", 302, true, slices.Concat(toAnyone, sameOnly)},
		{"http to https with forward_credentials", "http://a/", "https://b/", "GET", 302, true, everything},
		{"https to http with forward_credentials", "https://a/", "http://a/", "GET", 302, true, toAnyone},
		{"https to http with forward_credentials, the body dropped", "https://a/", "http://b/", "POST", 303, true, toAnyone},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := allHeaders()
			got := slices.Sorted(maps.Keys(follow(t, h, row.from, row.to, row.method, row.status, row.forward)))
			if want := slices.Sorted(slices.Values(row.want)); !slices.Equal(got, want) {
				t.Errorf("%s %d from %s to %s: %v, want %v", row.method, row.status, row.from, row.to, got, want)
			}
			if !maps.EqualFunc(h, allHeaders(), slices.Equal) {
				t.Errorf("the header before it was changed to %v", h)
			}
		})
	}
}

// TestRemovedHeadersStayRemoved follows chains that return to the first URL, and checks that removed fields do
// not come back.
func TestRemovedHeadersStayRemoved(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		method  string
		status  int
		forward bool
		chain   []string
		want    []string
	}{
		{"away and back", "GET", 302, false, []string{"http://a/", "http://b/", "http://a/x"}, toAnyone},
		{"down and up again", "GET", 302, true, []string{"https://a/", "http://a/", "https://a/x"}, toAnyone},
		{"forward_credentials, away and back", "GET", 302, true, []string{"https://a/", "https://b/", "https://a/x"}, everything},
		{"never away", "GET", 302, false, []string{"http://a/", "http://a/x", "http://a/y"}, everything},
		{"the body dropped", "POST", 302, false, []string{"http://a/", "http://a/x", "http://a/y"}, slices.Concat(toAnyone, sameOnly)},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h, method := allHeaders(), row.method
			for i, to := range row.chain[1:] {
				h = follow(t, h, row.chain[i], to, method, row.status, row.forward)
				method = redirectMethod(method, row.status)
			}
			got := slices.Sorted(maps.Keys(h))
			if want := slices.Sorted(slices.Values(row.want)); !slices.Equal(got, want) {
				t.Errorf("over %v: %v, want %v", row.chain, got, want)
			}
		})
	}
}
