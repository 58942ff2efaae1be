package fetch

import (
	"net/url"
	"testing"

	"fetchd/fetch/urls"
)

// TestRedacted checks that a URL whose text exists already is logged as urls.Redact would write it.
func TestRedacted(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, url string }{
		{"plain", "http://origin.test/a/b"},
		{"no path", "http://origin.test"},
		{"a port", "https://origin.test:8443/"},
		{"escapes", "http://origin.test/%2F/%C3%A9 é"},
		{"a query", "http://origin.test/?token=secret"},
		{"an empty query", "http://origin.test/?"},
		{"a fragment", "http://origin.test/#secret"},
		{"userinfo", "http://user:secret@origin.test/"},
		{"all of it", "http://user:secret@origin.test/?secret#secret"},
		{"IPv6", "http://[::1]/"},
	} {
		u, err := url.Parse(row.url)
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		r := &run{req: &Request{URL: u}, initialHop: hopRequest{url: u}}
		if want, got := urls.Redact(u), r.redactedURL(); got != want {
			t.Errorf("%s: %q, want %q", row.name, got, want)
		}
	}
	if got := (&run{req: new(Request)}).redactedURL(); got != "" {
		t.Errorf("without a URL: %q, want nothing", got)
	}
}
