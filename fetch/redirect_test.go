package fetch_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/urls"
)

// TestRedirectedMethod checks every method with every redirect (spec D2).
func TestRedirectedMethod(t *testing.T) {
	t.Parallel()
	statuses := []int{301, 302, 303, 307, 308}
	for _, row := range []struct {
		method string
		want   [5]string
	}{
		{"GET", [5]string{"GET", "GET", "GET", "GET", "GET"}},
		{"HEAD", [5]string{"HEAD", "HEAD", "HEAD", "HEAD", "HEAD"}},
		{"POST", [5]string{"GET", "GET", "GET", "POST", "POST"}},
		{"PUT", [5]string{"PUT", "PUT", "GET", "PUT", "PUT"}},
		{"PATCH", [5]string{"PATCH", "PATCH", "GET", "PATCH", "PATCH"}},
		{"DELETE", [5]string{"DELETE", "DELETE", "GET", "DELETE", "DELETE"}},
		{"OPTIONS", [5]string{"OPTIONS", "OPTIONS", "GET", "OPTIONS", "OPTIONS"}},
	} {
		t.Run(row.method, func(t *testing.T) {
			t.Parallel()
			from := mustParse(t, "http://host/a")
			for i, status := range statuses {
				step := fetch.ResolveRedirect(fetch.RedirectRules{}, from, from, row.method, status, "/b")
				kept := row.method == row.want[i]
				if step.Method != row.want[i] || step.BodyKept != kept {
					t.Errorf("%d: %s, body kept %t, want %s, %t", status, step.Method, step.BodyKept, row.want[i], kept)
				}
				if step.Location != classify.InScope || step.Fault != classify.NoClass {
					t.Errorf("%d: location %d, fault %s, want it in scope", status, step.Location, step.Fault)
				}
			}
		})
	}
}

// TestLocationOfOtherStatuses checks that only the five redirects follow a Location.
func TestLocationOfOtherStatuses(t *testing.T) {
	t.Parallel()
	from := mustParse(t, "http://host/a")
	for _, row := range []struct {
		status int
		want   classify.Location
	}{
		{200, classify.NoLocation}, {201, classify.NoLocation}, {299, classify.NoLocation},
		{300, classify.NoLocation}, {304, classify.NoLocation}, {305, classify.NoLocation}, {399, classify.NoLocation},
		{301, classify.InScope}, {308, classify.InScope},
		{400, classify.NoLocation}, {503, classify.NoLocation},
	} {
		step := fetch.ResolveRedirect(fetch.RedirectRules{}, from, from, "POST", row.status, "/b")
		if step.Location != row.want || (step.URL != nil) != (row.want == classify.InScope) {
			t.Errorf("%d: location %d to %v, want %d", row.status, step.Location, step.URL, row.want)
		}
		if kept := row.status != 301; (step.Method == "POST") != kept || step.BodyKept != kept {
			t.Errorf("%d: %s, body kept %t, want POST with it", row.status, step.Method, step.BodyKept)
		}
	}
}

// TestLocationForms resolves every form of Location against one URL.
func TestLocationForms(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("a", urls.MaxBytes)
	for _, row := range []struct{ name, location, want, reason string }{
		{"relative path", "next", "http://host:8080/a/next#f", ""},
		{"absolute path", "/next", "http://host:8080/next#f", ""},
		{"query alone", "?r=2", "http://host:8080/a/b?r=2#f", ""},
		{"empty query", "?", "http://host:8080/a/b?#f", ""},
		{"fragment alone", "#g", "http://host:8080/a/b?q=1#g", ""},
		{"scheme-relative", "//other/next", "http://other/next#f", ""},
		{"absolute", "https://other:444/next", "https://other:444/next#f", ""},
		{"dot segments", "../../x/./y/..", "http://host:8080/x/#f", ""},
		{"a first segment with a colon", "./a:b", "http://host:8080/a/a:b#f", ""},
		{"spaces around it", " \t/next \t", "http://host:8080/next#f", ""},
		{"a space in the path", "/a b", "http://host:8080/a%20b#f", ""},
		{"UTF-8", "/é?é", "http://host:8080/%C3%A9?%C3%A9#f", ""},
		{"Latin-1", "/caf\xe9?caf\xe9", "http://host:8080/caf%E9?caf%E9#f", ""},
		{"a relative path with a lone percent sign", "100%/%2F", "http://host:8080/a/100%25/%2F#f", ""},
		{"lone percent signs behind a host", "//other/%?%#%?%", "http://other/%25?%#%25?%25", ""},
		{"a lone percent sign and a space", "/5 %", "http://host:8080/5%20%25#f", ""},
		{"an encoded slash and a space", "a b%2Fc", "http://host:8080/a/a%20b%2Fc#f", ""},
		{"an international host", "//bücher.example/", "http://xn--bcher-kva.example/#f", ""},
		{"no path", "//other", "http://other#f", ""},

		{"userinfo", "http://user:secret@other/", "http://user:secret@other/#f", "location_userinfo"},
		{"userinfo, scheme-relative", "//user@other/", "http://user@other/#f", "location_userinfo"},
		{"userinfo and a bad port", "http://user:secret@other:0/", "", "location_port"},
		{"userinfo and another scheme", "ftp://user:secret@other/", "", "location_scheme"},
		{"port 65536", "http://other:65536/", "", "location_port"},
		{"a number as host, scheme-relative", "//0x7f.1/", "", "location_number_like_host"},
		{"an empty host", "http:///next", "", "location_relative"},
		{"opaque", "http:next", "", "location_relative"},
		{"Latin-1 in the host", "http://caf\xe9.example/", "", "location_host"},
		{"javascript", "javascript:alert(1)", "", "location_scheme"},
		{"ftp", "ftp://other/", "", "location_scheme"},
		{"a first segment that is a scheme", "a:b", "", "location_scheme"},
		{"a tab inside", "/a\tb", "", "location_malformed"},
		{"an invalid escape in userinfo", "http://u%:p@other/", "", "location_malformed"},
		{"too long", long, "", "location_too_long"},
		{"too long once it is absolute", long[:urls.MaxBytes], "", "location_too_long"},
		{"too long once it is encoded", "/" + strings.Repeat("é", 2000), "", "location_too_long"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			from := mustParse(t, "http://host:8080/a/b?q=1#f")
			step := fetch.ResolveRedirect(fetch.RedirectRules{}, from, from, "GET", http.StatusFound, row.location)
			got := ""
			if step.URL != nil {
				got = step.URL.String()
			}
			if got != row.want || step.Reason != row.reason || step.Location != classify.InScope {
				t.Errorf("Location %q: %q, reason %q, location %d, want %q, %q, in scope",
					row.location, got, step.Reason, step.Location, row.want, row.reason)
			}
			want := classify.NoClass
			if row.reason != "" {
				want = classify.RedirectRejected
			}
			if step.Fault != want {
				t.Errorf("Location %q: fault %s, want %s", row.location, step.Fault, want)
			}
		})
	}
	for _, empty := range []string{"", " ", "\t \t"} {
		from := mustParse(t, "http://host/")
		step := fetch.ResolveRedirect(fetch.RedirectRules{}, from, from, "GET", http.StatusFound, empty)
		if step.Location != classify.NoLocation || step.URL != nil || step.Fault != classify.NoClass {
			t.Errorf("Location %q: location %d to %v, fault %s, want none", empty, step.Location, step.URL, step.Fault)
		}
	}
}

// TestFragmentInheritance checks RFC 9110 §10.2.2: a Location without a fragment inherits one. A
// Location with an empty fragment does not.
func TestFragmentInheritance(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, from, location, want string }{
		{"neither", "http://host/a", "/b", "http://host/b"},
		{"the URL's", "http://host/a#f", "/b", "http://host/b#f"},
		{"the Location's", "http://host/a", "/b#g", "http://host/b#g"},
		{"both", "http://host/a#f", "/b#g", "http://host/b#g"},
		{"an empty one in the Location", "http://host/a#f", "/b#", "http://host/b"},
		{"a number sign that was escaped", "http://host/a#f", "/b%23g", "http://host/b%23g#f"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			from := mustParse(t, row.from)
			step := fetch.ResolveRedirect(fetch.RedirectRules{}, from, from, "GET", http.StatusFound, row.location)
			if step.URL == nil || step.URL.String() != row.want {
				t.Errorf("from %s to %q: %v, want %s", row.from, row.location, step.URL, row.want)
			}
			if from.String() != row.from {
				t.Errorf("the URL before it was changed to %s", from)
			}
		})
	}
}

// TestScope checks every scope with every kind of change (spec D4, H9).
func TestScope(t *testing.T) {
	t.Parallel()
	const first = "http://host/a"
	for _, row := range []struct {
		name, location  string
		host, origin    bool // within SameHost, SameOrigin
		crossFromSecond bool // when it comes from http://other/
	}{
		{"another path", "http://host/b", true, true, true},
		{"the default port, written", "http://host:80/", true, true, true},
		{"upper case", "http://HOST/", true, true, true},
		{"a trailing dot", "http://host./", true, true, true},
		{"another port", "http://host:8080/", true, false, true},
		{"another scheme", "https://host/", true, false, true},
		{"another host", "http://other/", false, false, false},
		{"a sub-domain", "http://sub.host/", false, false, true},
		{"a longer name", "http://hostile/", false, false, true},
		{"the host as user", "http://host@other/", false, false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			begin, second := mustParse(t, first), mustParse(t, "http://other/")
			for scope, in := range map[fetch.Scope]bool{fetch.AnyHost: true, fetch.SameHost: row.host, fetch.SameOrigin: row.origin} {
				want := classify.OutOfScope
				if in {
					want = classify.InScope
				}
				rules := fetch.RedirectRules{Scope: scope}
				if step := fetch.ResolveRedirect(rules, begin, begin, "GET", http.StatusFound, row.location); step.Location != want || step.CrossOrigin == row.origin {
					t.Errorf("scope %d: location %d, cross-origin %t, want %d, %t", scope, step.Location, step.CrossOrigin, want, !row.origin)
				}
				// The scope is that of the first URL, the change that of the last.
				if step := fetch.ResolveRedirect(rules, begin, second, "GET", http.StatusFound, row.location); step.Location != want || step.CrossOrigin != row.crossFromSecond {
					t.Errorf("scope %d from another host: location %d, cross-origin %t, want %d, %t",
						scope, step.Location, step.CrossOrigin, want, row.crossFromSecond)
				}
			}
		})
	}
}

// TestOutOfScopeIsNoFault checks that a redirect out of scope is no failure (decision 4). A Location
// that is not a URL has no scope, so it is a failure.
func TestOutOfScopeIsNoFault(t *testing.T) {
	t.Parallel()
	rules := fetch.RedirectRules{Scope: fetch.SameOrigin, ForbidDowngrade: true}
	for _, row := range []struct {
		name, location string
		place          classify.Location
		fault          classify.Class
	}{
		{"a downgrade out of the scope", "http://host/", classify.OutOfScope, classify.NoClass},
		{"userinfo out of the scope", "https://user@other/", classify.OutOfScope, classify.NoClass},
		{"userinfo within the scope", "https://user@host/", classify.InScope, classify.RedirectRejected},
		{"no URL", "https://[", classify.InScope, classify.RedirectRejected},
		{"another scheme", "ftp://other/", classify.InScope, classify.RedirectRejected},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			from := mustParse(t, "https://host/")
			step := fetch.ResolveRedirect(rules, from, from, "GET", http.StatusFound, row.location)
			if step.Location != row.place || step.Fault != row.fault {
				t.Errorf("Location %q: location %d, fault %s, want %d, %s", row.location, step.Location, step.Fault, row.place, row.fault)
			}
		})
	}
}

// TestDowngrade checks that only redirects from https to http are rejected, and only if the caller
// forbids them.
func TestDowngrade(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, from, location string
		forbid               bool
		reason               string
	}{
		{"https to http", "https://host/", "http://host/", true, "downgrade"},
		{"https to http on another host", "https://host/", "http://other/", true, "downgrade"},
		{"https to http, not forbidden", "https://host/", "http://host/", false, ""},
		{"https to https", "https://host/", "https://other/", true, ""},
		{"http to https", "http://host/", "https://host/", true, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			from := mustParse(t, row.from)
			step := fetch.ResolveRedirect(fetch.RedirectRules{ForbidDowngrade: row.forbid}, from, from, "GET", http.StatusFound, row.location)
			want := classify.NoClass
			if row.reason != "" {
				want = classify.RedirectRejected
			}
			if step.Reason != row.reason || step.Fault != want || step.URL == nil {
				t.Errorf("%s to %q: fault %s, reason %q, want %s, %q", row.from, row.location, step.Fault, step.Reason, want, row.reason)
			}
		})
	}
}

// TestRedirects follows chains over real sockets and compares the events with what the origin
// received. After a hop that failed, the retry starts at the first URL (R4).
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
		{"a hop of a POST that is retried goes on with the count", "/r/k/303/3/503/302:to=%3Fa/302:to=%3Fb/302:to=%3Fc/200",
			func(r *fetch.Request) { r.Method = "POST" }, classify.Failed, classify.TooManyRedirects, "R1", 7, "*"},
		{"a hop of a POST that is retried twice goes on with the count", "/r/k/303/4/503/302:to=%3Fa/503/302:to=%3Fb/200",
			func(r *fetch.Request) { r.Method = "POST" }, classify.Failed, classify.TooManyRedirects, "R1", 8, "*"},
		{"a hop of a POST that is retried remembers the chain", "/s/k/303:to=%3Fa/302:to=%3Fb/503/302:to=%3Fa",
			func(r *fetch.Request) { r.Method = "POST" }, classify.Failed, classify.RedirectLoop, "R2", 4, "*"},
		{"a hop of a POST that is retried is no loop", "/s/k/303:to=%3Fa/503/503/200",
			func(r *fetch.Request) { r.Method = "POST" }, classify.Success, 0, "H0", 4, "*"},
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
