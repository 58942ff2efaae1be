package fetch

import (
	"bytes"
	"net/http"
	"net/textproto"
	"strings"
	"testing"

	"fetchd/classify"
	"fetchd/fetch/urls"
)

// FuzzResolveRedirect checks that a followed redirect leads to a URL that a caller could have
// requested.
func FuzzResolveRedirect(f *testing.F) {
	for _, location := range []string{
		"", " ", "next", "/a b", "?q=a b", "#f", "//other", "http://other:80/", "../../..", "http://user:secret@h/", "ftp://h/",
		"javascript:alert(1)", "http://2130706433/", "http:next", "/é%2F\xe9", "/a\x00b", "http://[::1%25lo]/", "http://h:0/", "%", "#", "a:b",
	} {
		f.Add("http://host:8080/a/b?q=1#f", location, uint16(302), uint8(0))
		f.Add("https://bücher.example/{x}%2F", location, uint16(303), uint8(5))
	}
	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
	f.Fuzz(func(t *testing.T, start, location string, status uint16, bits uint8) {
		from, err := urls.Parse(start)
		if err != nil {
			return
		}
		before := from.String()
		rules := RedirectRules{Scope: Scope(bits % 3), ForbidDowngrade: bits&8 != 0}
		step := ResolveRedirect(rules, from, from, methods[int(bits>>4)%len(methods)], int(status), location)
		if from.String() != before {
			t.Errorf("from %q to %q changed the first URL to %q", before, location, from)
		}
		if (step.Fault != classify.NoClass) != (step.Reason != "") || step.Fault != classify.NoClass && step.Fault != classify.RedirectRejected {
			t.Errorf("from %q to %q: fault %s, reason %q", start, location, step.Fault, step.Reason)
		}
		if step.Location == classify.InScope && step.Fault == classify.NoClass {
			if step.URL == nil {
				t.Fatalf("from %q to %q: in scope, but without a URL", start, location)
			}
			next := step.URL.String()
			if again, err := urls.Parse(next); err != nil || again.String() != next {
				t.Errorf("from %q to %q: %s, which Parse reads as %v, %v", start, location, next, again, err)
			}
		}
	})
}

// FuzzCheckHeader checks that an accepted header is one line with an allowed name, and that
// net/http writes it unchanged.
func FuzzCheckHeader(f *testing.F) {
	for _, h := range [][2]string{
		{"Accept", "*/*"}, {"content-length", "1"}, {"HOST", "other"}, {"X-Forwarded-For", "::1"}, {"X_Y", "v"}, {"X", "a\r\nHost: b"},
		{"X\n", "v"}, {":authority", "v"}, {"", ""}, {"Caf\xe9", "caf\xe9"}, {"te", "trailers"}, {"X-Tab", "a\tb"}, {"proxy-", "v"}, {"X", "\x00"},
	} {
		f.Add(h[0], h[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		if CheckHeader(name, value) != "" {
			return
		}
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if _, ok := forbiddenHeaders[canonical]; ok || !strings.EqualFold(canonical, name) {
			t.Fatalf("CheckHeader lets %q pass, which is %q", name, canonical)
		}
		for _, prefix := range forbiddenPrefixes {
			if strings.HasPrefix(strings.ToLower(name), strings.ToLower(prefix)) {
				t.Errorf("CheckHeader lets %q pass", name)
			}
		}
		h := make(http.Header)
		h.Add(name, value)
		var b bytes.Buffer
		if err := h.Write(&b); err != nil {
			t.Fatal(err)
		}
		if want := canonical + ": " + textproto.TrimString(value) + "\r\n"; b.String() != want {
			t.Errorf("%q: %q is written as %q, want %q", name, value, b.String(), want)
		}
		if strings.Count(b.String(), "\r") != 1 || strings.Count(b.String(), "\n") != 1 || strings.Contains(b.String(), "\x00") {
			t.Errorf("%q: %q is written as %q, which is not one line", name, value, b.String())
		}
	})
}
