package fetch_test

import (
	"net/http"
	"strings"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/urls"
)

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
