package fetch

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"fetchd/classify"
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

// TestRootedLookups checks that the dialer and CheckTarget look up the whole name, so that no search
// list changes it.
func TestRootedLookups(t *testing.T) {
	t.Parallel()
	resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.ErrUnsupported
	}}
	c, err := New(Config{Resolver: resolver, Egress: Egress{Unrestricted: true}})
	must(t, err)
	t.Cleanup(c.Close)
	for _, row := range []struct{ name, host, asked string }{
		{"two labels", "redis.prod", "redis.prod."},
		{"two labels with a dot", "redis.prod.", "redis.prod."},
		{"one label", "no-such-host", "no-such-host."},
		{"an address", "127.0.0.1", ""},
		{"an IPv6 address", "::1", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var dialled, checked string
			r := NewRequest(classify.Standard)
			r.URL, r.Policy.MaxAttempts = mustURL(t, "http://"+net.JoinHostPort(row.host, "80")+"/"), 1
			c.Fetch(tracing(t, &dialled), r, nil)
			_, err := c.CheckTarget(tracing(t, &checked), mustURL(t, "http://"+net.JoinHostPort(row.host, "80")+"/"), nil, nil)
			if dialled != row.asked || checked != row.asked {
				t.Errorf("%s: dialled %q, checked %q, want %q", row.host, dialled, checked, row.asked)
			}
			if failed, ok := errors.AsType[*net.DNSError](err); ok && failed.Name != row.host {
				t.Errorf("the error names %q, want %q", failed.Name, row.host)
			}
		})
	}
}

func tracing(t *testing.T, asked *string) context.Context {
	t.Helper()
	var mu sync.Mutex // IPv4 and IPv6 are looked up at once
	return httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{DNSStart: func(info httptrace.DNSStartInfo) {
		mu.Lock()
		defer mu.Unlock()
		*asked = info.Host
	}})
}

// TestHostSet checks which URLs are those of a host.
func TestHostSet(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		host, url string
		want      bool
	}{
		{"*", "https://example.com/", true},
		{"example.com", "http://example.com/", true},
		{"example.com", "https://example.com:8443/", true},
		{"EXAMPLE.com", "http://Example.COM/", true},
		{"example.com.", "http://example.com/", true},
		{"example.com", "http://example.com./", true},
		{"example.com", "http://www.example.com/", false},
		{"example.com", "http://example.com.evil.example/", false},
		{"example.com:80", "http://example.com/", true},
		{"example.com:80", "https://example.com/", false},
		{"example.com:443", "https://example.com/", true},
		{"example.com:8080", "http://example.com:8080/", true},
		{"example.com:8080", "http://example.com/", false},
		{"bücher.example", "http://xn--bcher-kva.example/", true},
		{"192.0.2.7", "http://192.0.2.7:81/", true},
		{"[2001:DB8::1]", "http://[2001:db8:0::1]/", true},
		{"[2001:db8::1]:443", "https://[2001:db8::1]/", true},
		{"[2001:db8::1:443]", "https://[2001:db8::1]/", false},
	} {
		set, err := newHostSet([]string{"other.example", row.host})
		if err != nil {
			t.Errorf("%s: %v", row.host, err)
			continue
		}
		u, err := urls.Parse(row.url)
		must(t, err)
		if got := set.has(u); got != row.want {
			t.Errorf("%s has %s: %t, want %t", row.host, row.url, got, row.want)
		}
	}
}

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
		must(t, h.Write(&b))
		if want := canonical + ": " + textproto.TrimString(value) + "\r\n"; b.String() != want {
			t.Errorf("%q: %q is written as %q, want %q", name, value, b.String(), want)
		}
		if strings.Count(b.String(), "\r") != 1 || strings.Count(b.String(), "\n") != 1 || strings.Contains(b.String(), "\x00") {
			t.Errorf("%q: %q is written as %q, which is not one line", name, value, b.String())
		}
	})
}
