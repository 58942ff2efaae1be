package fetch_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
)

// TestRedirects follows chains over real sockets and compares the events with what the origin
// received.
func TestRedirects(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, path string
		change     func(*fetch.Request)
		kind       classify.Kind
		class      classify.Class
		rule       classify.Rule
		exchanges  int
		final      string // path of the final URL; empty: the request's own
	}{
		{"301 to 302 to 200", "/r/k/301/1/302:to=%2Fs%2Fk2%2F200", nil, classify.Success, 0, "H0", 3, "/s/k2/200"},
		{"five redirects are followed", "/r/k/302/5/200", nil, classify.Success, 0, "H0", 6, "/s/k/200"},
		{"six are not", "/r/k/302/6/200", nil, classify.Failed, classify.TooManyRedirects, "R1", 6, "/r/k/302/1/200"},
		{"max_redirects 0", "/r/k/302/1/200", func(r *fetch.Request) { r.Policy.MaxRedirects = 0 }, classify.Failed, classify.TooManyRedirects, "R1", 1, ""},
		{"follow off", "/r/k/302/1/200", func(r *fetch.Request) { r.Policy.Follow = false }, classify.Redirect, 0, "H9", 1, ""},
		{"follow off and a bad Location", "/s/k/302:to=http%3A%2F%2F%5B", func(r *fetch.Request) { r.Policy.Follow = false }, classify.Redirect, 0, "H9", 1, ""},
		{"a loop to itself", "/loop/k/302", nil, classify.Failed, classify.RedirectLoop, "R2", 1, ""},
		{"a loop over two", "/loop2/k/302", nil, classify.Failed, classify.RedirectLoop, "R2", 2, "*"},
		{"no Location", "/s/k/302", nil, classify.Redirect, 0, "H9", 1, ""},
		{"an empty Location", "/s/k/302:to=", nil, classify.Redirect, 0, "H9", 1, ""},
		{"300", "/s/k/300:to=%2Fs%2Fk%2F200", nil, classify.Redirect, 0, "H9", 1, ""},
		{"a Location that is not a URL", "/s/k/302:to=http%3A%2F%2F%5B", nil, classify.Failed, classify.RedirectRejected, "R3", 1, ""},
		{"a Location of another scheme", "/s/k/302:to=ftp%3A%2F%2F127.0.0.1%2F", nil, classify.Failed, classify.RedirectRejected, "R3", 1, ""},
		{"a Location with a password", "/s/k/302:to=http%3A%2F%2Fuser:secret%40127.0.0.1%2F", nil, classify.Failed, classify.RedirectRejected, "R3", 1, ""},
		{"a private address with a password", "/s/k/302:to=http%3A%2F%2Fuser:secret%4010.0.0.1%2F", nil, classify.Failed, classify.TargetBlocked, "P1", 1, ""},
		{"a private address", "/s/k/302:to=http%3A%2F%2F10.0.0.1%2F", nil, classify.Failed, classify.TargetBlocked, "P1", 1, ""},
		{"the metadata service", "/s/k/307:to=http%3A%2F%2F169.254.169.254%2Flatest", nil, classify.Failed, classify.TargetBlocked, "P1", 1, ""},
		{"a port that is closed", "/s/k/302:to=http%3A%2F%2F127.0.0.1:22%2F", nil, classify.Failed, classify.TargetBlocked, "P1", 1, ""},
		{"out of the scope, and private", "/s/k/302:to=http%3A%2F%2F10.0.0.1%2F", func(r *fetch.Request) { r.Scope = fetch.SameHost }, classify.Redirect, 0, "H9", 1, ""},
		{"another port is the same host", "/cross/k/302/http-other/200", func(r *fetch.Request) { r.Scope = fetch.SameHost }, classify.Success, 0, "H0", 2, "*"},
		{"another port is another origin", "/cross/k/302/http-other/200", func(r *fetch.Request) { r.Scope = fetch.SameOrigin }, classify.Redirect, 0, "H9", 1, ""},
		{"a hop that is refused", "/cross/k/302/refused/200", nil, classify.Failed, classify.ConnectRefused, "N2", 3, "*"},
		{"a hop that fails with 503 and is tried from the first URL", "/r/k/302/1/503", nil, classify.Failed, classify.HTTPServerError, "H1", 6, "/s/k/503"},
		{"a hop that then succeeds", "/r/k/302/1/503/200", nil, classify.Success, 0, "H0", 4, "/s/k/503/200"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			r := w.request("http", row.path)
			if row.change != nil {
				row.change(r)
			}
			if row.class == classify.ConnectRefused {
				r.Policy.MaxAttempts = 3
			}
			res := w.run(t.Context(), r)
			var class classify.Class
			rule := res.Rule
			if res.Failure != nil {
				class, rule = res.Failure.Class, res.Failure.Rule
			}
			if res.Kind != row.kind || class != row.class || rule != row.rule || res.Exchanges != row.exchanges {
				t.Errorf("%s, class %s, rule %s, %d exchanges, want %s, %s, %s, %d",
					res.Kind, class, rule, res.Exchanges, row.kind, row.class, row.rule, row.exchanges)
			}
			if f := res.Failure; f != nil && errors.Is(f.Err(), fetch.ErrTooManyRedirects) != (class == classify.TooManyRedirects) {
				t.Errorf("%+v matches ErrTooManyRedirects, or does not", f)
			}
			if saw := len(w.origin.Requests("k")) + len(w.origin.Requests("k2")); saw != res.Exchanges {
				t.Errorf("%d exchanges reported, the origin saw %d", res.Exchanges, saw)
			}
			want := w.origin.URL("http", row.path)
			if row.final != "" {
				want = w.origin.URL("http", row.final)
			}
			if row.final != "*" && res.FinalURL != want {
				t.Errorf("final URL %s, want %s", res.FinalURL, want)
			}
			if len(res.Hops) > 0 && strings.Contains(res.Hops[0].LocationURL, "secret") {
				t.Errorf("a password is reported: %s", res.Hops[0].LocationURL)
			}
		})
	}
}

// TestRedirectHeaders checks the header that the origin receives after a redirect.
func TestRedirectHeaders(t *testing.T) {
	t.Parallel()
	all := []string{"Accept", "Authorization", "Cookie", "User-Agent", "X-Api-Key"}
	for _, row := range []struct {
		name, listener, path string
		change               func(*fetch.Request)
		want                 []string
	}{
		{"the same origin gets all headers", "http", "/r/k/302/1/200", nil, all},
		{"another port gets only anonymous headers", "http", "/cross/k/302/http-other/200", nil, []string{"Accept", "User-Agent"}},
		{"forward_credentials lifts it", "http", "/cross/k/302/http-other/200",
			func(r *fetch.Request) { r.ForwardCredentials = true }, all},
		{"http to https gets only anonymous headers", "http", "/cross/k/302/https/200", nil, []string{"Accept", "User-Agent"}},
		{"https to http never gets credentials", "https", "/cross/k/302/http/200",
			func(r *fetch.Request) { r.ForwardCredentials = true }, []string{"Accept", "User-Agent"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			r := w.request(row.listener, row.path)
			r.Header = http.Header{"Accept": {"*/*"}, "Authorization": {"Bearer x"}, "Cookie": {"a=b"}, "X-Api-Key": {"y"}}
			if row.change != nil {
				row.change(r)
			}
			if res := w.fetch(r); res.Kind != classify.Success {
				t.Fatalf("%s: %+v", res.Kind, res.Failure)
			}
			seen := w.origin.Requests("k")
			last := seen[len(seen)-1].Header
			var got []string
			for _, name := range append(all, "Referer") {
				if last.Get(name) != "" {
					got = append(got, name)
				}
			}
			if !slices.Equal(got, row.want) {
				t.Errorf("the last hop got %v, want %v", got, row.want)
			}
		})
	}
}

// TestNoRemovedHeaderReturns follows a chain to another origin and back.
func TestNoRemovedHeaderReturns(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	back := strings.NewReplacer("/", "%2F", "%", "%25").Replace(w.origin.URL("http", "/s/back/200"))
	r := w.request("http", "/cross/k/302/http-other/302:to="+back)
	r.Header = http.Header{"Authorization": {"Bearer x"}}
	res := w.run(t.Context(), r)
	seen := w.origin.Requests("back")
	if res.Kind != classify.Success || len(seen) != 1 || seen[0].Header.Get("Authorization") != "" {
		t.Errorf("%s after %d requests, with Authorization %q", res.Kind, len(seen), seen[0].Header.Get("Authorization"))
	}
}

// TestRedirectMethods checks method and body after each redirect (D2).
func TestRedirectMethods(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ method, status, want string }{
		{"POST", "301", "GET"}, {"POST", "302", "GET"}, {"POST", "303", "GET"}, {"POST", "307", "POST"}, {"POST", "308", "POST"},
		{"PUT", "301", "PUT"}, {"PUT", "302", "PUT"}, {"PUT", "303", "GET"}, {"PUT", "307", "PUT"},
		{"DELETE", "302", "DELETE"}, {"DELETE", "303", "GET"},
		{"HEAD", "302", "HEAD"}, {"HEAD", "303", "HEAD"}, {"GET", "303", "GET"},
	} {
		t.Run(row.method+" "+row.status, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			r := w.request("http", "/r/k/"+row.status+"/1/200")
			r.Method = row.method
			if row.method == "POST" || row.method == "PUT" {
				r.Body, r.Header = []byte("hello"), http.Header{"Content-Type": {"text/plain"}}
			}
			if res := w.fetch(r); res.Kind != classify.Success {
				t.Fatalf("%s: %+v", res.Kind, res.Failure)
			}
			last := w.origin.Requests("k")[1]
			kept := row.method == row.want && len(r.Body) > 0
			if last.Method != row.want || (last.BodyBytes > 0) != kept || (last.Header.Get("Content-Type") != "") != kept {
				t.Errorf("got %s with %d bytes and Content-Type %q, want %s, body kept %t",
					last.Method, last.BodyBytes, last.Header.Get("Content-Type"), row.want, kept)
			}
		})
	}
}

// TestCookies checks that a cookie of a redirect is sent with the next request, and to no other
// origin (D7).
func TestCookies(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, path string
		cookies    bool
		want       string
	}{
		{"off", "/s/k/302:set-cookie=a=b;Path=%2F,to=%2Fs%2Fk2%2F200", false, "own=1"},
		{"within the fetch", "/s/k/302:set-cookie=a=b;Path=%2F,to=%2Fs%2Fk2%2F200", true, "own=1; a=b"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			r := w.request("http", row.path)
			r.Cookies, r.Header = row.cookies, http.Header{"Cookie": {"own=1"}}
			w.run(t.Context(), r)
			w.run(t.Context(), r) // a second fetch begins with an empty jar
			first, seen := w.origin.Requests("k"), w.origin.Requests("k2")
			if len(seen) != 2 || len(first) != 2 {
				t.Fatalf("the origin saw %d and %d requests, want 2 and 2", len(first), len(seen))
			}
			if got := first[1].Header.Get("Cookie"); got != "own=1" {
				t.Errorf("the second fetch sent Cookie %q", got)
			}
			for _, s := range seen {
				if got := s.Header.Get("Cookie"); got != row.want {
					t.Errorf("Cookie %q, want %q", got, row.want)
				}
			}
		})
	}
}

// TestFragment checks that the fragment is in the final URL and is never sent (D5).
func TestFragment(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	r := w.request("http", "/r/k/302/1/200")
	r.URL.Fragment = "part"
	res := w.fetch(r)
	if want := w.origin.URL("http", "/s/k/200#part"); res.FinalURL != want {
		t.Errorf("final URL %s, want %s", res.FinalURL, want)
	}
	for _, q := range w.origin.Requests("k") {
		if strings.Contains(q.Path, "part") {
			t.Errorf("the origin saw %s", q.Path)
		}
	}
}
