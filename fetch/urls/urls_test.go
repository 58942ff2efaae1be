package urls_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"fetchd/fetch/urls"
	"fetchd/test/must"
)

// labels returns a name of n bytes with labels of at most 63.
func labels(n int) string {
	name := strings.Repeat(strings.Repeat("a", 63)+".", n/64)
	return name + strings.Repeat("b", n%64)
}

// urlOf returns a URL of n bytes.
func urlOf(n int) string {
	const start = "http://h.example/"
	return start + strings.Repeat("a", n-len(start))
}

// TestParseAccepts checks the canonical form of accepted URLs. Parsing it again must not change it.
func TestParseAccepts(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, raw, want string }{
		{"a host alone", "http://example.com", "http://example.com"},
		{"upper case in scheme and host", "HTTP://EXAMPLE.Com/Path?Q#F", "http://example.com/Path?Q#F"},
		{"a query behind the host", "http://example.com?q=1", "http://example.com?q=1"},
		{"an empty query", "http://example.com/?", "http://example.com/?"},
		{"a fragment is kept", "http://example.com/a?b#c", "http://example.com/a?b#c"},
		{"a fragment with a number sign", "http://example.com/#a#b", "http://example.com/#a%23b"},
		{"a non-ASCII fragment", "http://example.com/#é", "http://example.com/#%C3%A9"},

		{"the default port is kept", "http://host:80", "http://host:80"},
		{"a port with a leading zero", "http://host:080/", "http://host:80/"},
		{"an empty port", "http://host:/", "http://host/"},
		{"the lowest port", "http://host:1/", "http://host:1/"},
		{"the highest port", "http://host:65535/", "http://host:65535/"},

		{"a trailing dot", "http://example.com./", "http://example.com./"},
		{"an underscore", "http://a_b.example.com/", "http://a_b.example.com/"},
		{"hyphens at the ends of a label", "http://-a-.example.com/", "http://-a-.example.com/"},
		{"a label of 63", "http://" + labels(63) + "/", "http://" + labels(63) + "/"},
		{"a name of 253", "http://" + labels(253) + "/", "http://" + labels(253) + "/"},
		{"a name of 253 and a trailing dot", "http://" + labels(253) + "./", "http://" + labels(253) + "./"},

		{"an IPv4 address", "http://192.0.2.1:8080/", "http://192.0.2.1:8080/"},
		{"numbers before a name", "http://1.2.3.com/", "http://1.2.3.com/"},
		{"a last label that only begins with a digit", "http://1.2.3.4a/", "http://1.2.3.4a/"},
		{"a last label that only begins like a hexadecimal number", "http://host.0xg/", "http://host.0xg/"},
		{"a last label of hexadecimal digits without their prefix", "http://dead.beef/", "http://dead.beef/"},
		{"full-width digits are digits", "http://１２７.0.0.1/", "http://127.0.0.1/"},
		{"ideographic full stops are dots", "http://127。0。0。1/", "http://127.0.0.1/"},

		{"IPv6", "http://[2001:db8::1]:8080/", "http://[2001:db8::1]:8080/"},
		{"IPv6 with leading zeros", "http://[2001:0db8::0001]/", "http://[2001:db8::1]/"},
		{"IPv6 that ends in IPv4", "http://[2001:db8::192.0.2.1]/", "http://[2001:db8::c000:201]/"},
		{"IPv4-mapped IPv6", "http://[::FFFF:7F00:1]/", "http://[::ffff:127.0.0.1]/"},

		{"an international name", "http://bücher.example/", "http://xn--bcher-kva.example/"},
		{"a name in punycode", "http://XN--Bcher-KVA.example/", "http://xn--bcher-kva.example/"},
		{"sharp s is not ss", "http://faß.example/", "http://xn--fa-hia.example/"},
		{"a percent-encoded international name", "http://b%C3%BCcher.example/", "http://xn--bcher-kva.example/"},
		{"a soft hyphen is nothing", "http://exam\u00adple.com/", "http://example.com/"},
		{"a symbol", "http://☃.example/", "http://xn--n3h.example/"},

		{"a non-ASCII path", "http://host/é", "http://host/%C3%A9"},
		{"a path that is no UTF-8", "http://host/caf\xe9", "http://host/caf%E9"},
		{"a backslash in the path is no slash", `http://host/a\b`, "http://host/a%5Cb"},
		{"an encoded slash", "http://host/a%2Fb", "http://host/a%2Fb"},
		{"an encoded slash and a non-ASCII letter", "http://host/é%2Fb", "http://host/%C3%A9%2Fb"},
		{"an encoded question mark and a quote", `http://host/"%3F"`, "http://host/%22%3F%22"},
		{"dot segments", "http://host/a/../b", "http://host/a/../b"},
		{"empty segments", "http://host//a//", "http://host//a//"},
		{"a URL in the path", "http://host/http://user:secret@other/", "http://host/http://user:secret@other/"},

		{"a non-ASCII query", "http://host/?q=é", "http://host/?q=%C3%A9"},
		{"quotes and angles in the query", `http://host/?q="<a>"`, "http://host/?q=%22%3Ca%3E%22"},
		{"a bare percent sign in the query", "http://host/?q=100%", "http://host/?q=100%"},
		{"a bare percent sign in the path", "http://host/100%", "http://host/100%25"},
		{"an escape that is none", "HTTP://host/%zz/%2f", "http://host/%25zz/%2f"},
		{"an escape that is none, and a letter outside ASCII", "http://host/%é%2F", "http://host/%25%C3%A9%2F"},
		{"other signs in the query", `http://host/?q='{|}\^[]+&`, `http://host/?q='{|}\^[]+&`},

		{"a URL of 8192 bytes", urlOf(8192), urlOf(8192)},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			u, err := urls.Parse(row.raw)
			if err != nil {
				t.Fatalf("Parse(%q): %v, want %s", row.raw, err, row.want)
			}
			if got := u.String(); got != row.want {
				t.Errorf("Parse(%q) = %s, want %s", row.raw, got, row.want)
			}
			again, err := urls.Parse(u.String())
			if err != nil || again.String() != u.String() {
				t.Errorf("Parse(%s) = %v, %v, want it unchanged", u, again, err)
			}
		})
	}
}

// TestParseRefuses checks the reason of each rejection.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, raw, reason string }{
		{"empty", "", "missing"},
		{"a path", "/path", "relative"},
		{"a name without a scheme", "example.com", "relative"},
		{"scheme-relative", "//example.com/", "relative"},
		{"a query", "?q", "relative"},
		{"opaque", "http:example.com", "relative"},
		{"three slashes", "http:///path", "relative"},
		{"a scheme alone", "https://", "relative"},
		{"a name and port without a scheme", "example.com:80", "scheme"},
		{"ftp", "ftp://example.com/", "scheme"},
		{"javascript", "javascript:alert(1)", "scheme"},
		{"a scheme without a name", "://example.com/", "malformed"},
		{"an address and port without a scheme", "127.0.0.1:80", "malformed"},

		{"a user", "http://user@example.com/", "userinfo"},
		{"a user and a password", "http://user:secret@example.com/", "userinfo"},
		{"an empty user", "http://@example.com/", "userinfo"},
		{"a backslash before an at sign", `http://example.com\@other.example/`, "malformed"},

		{"a zone", "http://[fe80::1%25eth0]/", "zone"},
		{"an empty zone", "http://[fe80::1%25]/", "malformed"},
		{"a zone with an encoded byte", "http://[fe80::1%25%41]/", "zone"},
		{"a zone that is not encoded", "http://[fe80::1%eth0]/", "malformed"},
		{"a full-width percent sign", "http://a％b/", "host"},

		{"an IPv4 address in brackets", "http://[127.0.0.1]/", "malformed"},
		{"a bracket that stays open", "http://[::1/", "malformed"},
		{"IPv6 without brackets", "http://::1/", "malformed"},
		{"letters behind a bracket", "http://[::1]a/", "malformed"},

		{"IPv4 as one number", "http://2130706433/", "number_like_host"},
		{"IPv4 as a hexadecimal number", "http://0x7f000001/", "number_like_host"},
		{"IPv4 as a hexadecimal number in upper case", "http://0X7F000001/", "number_like_host"},
		{"IPv4 as an octal number", "http://017700000001/", "number_like_host"},
		{"IPv4 in two parts", "http://127.1/", "number_like_host"},
		{"IPv4 with a trailing dot", "http://127.0.0.1./", "number_like_host"},
		{"a part over 255", "http://256.1.1.1/", "number_like_host"},
		{"a leading zero", "http://127.0.0.01/", "number_like_host"},
		{"a hexadecimal first part", "http://0x7f.1/", "number_like_host"},
		{"a bare hexadecimal prefix", "http://1.2.3.0x/", "number_like_host"},
		{"full-width digits as one number", "http://２１３０７０６４３３/", "number_like_host"},
		{"a number behind a name", "http://example.1/", "number_like_host"},
		{"encoded digits", "http://%31%32%37.0.0.1/", "malformed"},

		{"port 0", "http://host:0/", "port"},
		{"port 65536", "http://host:65536/", "port"},
		{"a port past 64 bits", "http://host:99999999999999999999/", "port"},
		{"a signed port", "http://host:+80/", "malformed"},
		{"full-width digits as a port", "http://host:８０/", "malformed"},
		{"a port without a host", "http://:80/", "host"},

		{"a leading space", " http://host/", "control_character"},
		{"a trailing newline", "http://host/\n", "control_character"},
		{"a space in the path", "http://host/a b", "control_character"},
		{"a space in the host", "http://ho st/", "control_character"},
		{"a space in the fragment", "http://host/#a b", "control_character"},
		{"a carriage return inside", "http://host/a\r\nX: y", "control_character"},
		{"NUL", "http://host/\x00", "control_character"},
		{"DEL", "http://host/\x7f", "control_character"},

		{"an empty label", "http://a..example/", "host"},
		{"a dot alone", "http://./", "host"},
		{"a label of 64", "http://" + strings.Repeat("a", 64) + ".example/", "host"},
		{"a name of 254", "http://" + labels(254) + "/", "host"},
		{"a name of 254 and a trailing dot", "http://" + labels(254) + "./", "host"},
		{"a label that is too long as punycode", "http://" + strings.Repeat("ü", 60) + ".example/", "host"},
		{"a host of signs", "http://a$b/", "host"},
		{"a backslash in the host", `http://host\path/`, "malformed"},
		{"an encoded letter in the host", "http://%65xample.com/", "malformed"},
		{"an encoded host that is no UTF-8", "http://caf%E9.example/", "host"},
		{"a full-width slash in the host", "http://a／b/", "host"},
		{"a soft hyphen alone", "http://\u00ad/", "host"},
		{"a joiner without its letters", "http://a\u200db.example/", "host"},
		{"mixed directions", "http://א1a.example/", "host"},
		{"punycode of nothing", "http://xn--.example/", "host"},
		{"punycode that is malformed", "http://xn--a.example/", "host"},
		{"punycode of digits", "http://127.0.0.xn--1-/", "host"},

		{"an escape that is none in the host", "http://ho%zz/", "malformed"},

		{"a URL of 8193 bytes", urlOf(8193), "too_long"},
		{"a URL that is too long once it is encoded", urlOf(8190) + "é", "too_long"},
		{"a URL that is too long and no URL", "ftp" + urlOf(8193), "too_long"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			u, err := urls.Parse(row.raw)
			refused, ok := errors.AsType[*urls.Error](err)
			if !ok {
				t.Fatalf("Parse(%q) = %v, %v, want a urls.Error with reason %s", row.raw, u, err, row.reason)
			}
			if refused.Reason != row.reason || refused.Remedy == "" {
				t.Errorf("Parse(%q): reason %q, remedy %q, want reason %q", row.raw, refused.Reason, refused.Remedy, row.reason)
			}
		})
	}
}

// TestRedact checks that no part of a URL that may be secret is logged.
func TestRedact(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, raw, want string }{
		{"nothing to hide", "https://host:8443/a/b", "https://host:8443/a/b"},
		{"userinfo", "http://user:secret@host/a", "http://host/a"},
		{"a query", "http://host/a?token=secret", "http://host/a"},
		{"all of them", "https://user:secret@host/a%2Fb?secret#secret", "https://host/a%2Fb"},
		{"an opaque URL", "mailto:secret@host", "mailto:"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(row.raw)
			must.Succeed(t, err)
			before := u.String()
			if got := urls.Redact(u); got != row.want {
				t.Errorf("Redact(%s) = %s, want %s", row.raw, got, row.want)
			}
			if u.String() != before {
				t.Errorf("Redact changed its URL from %s to %s", before, u)
			}
		})
	}
	if got := urls.Redact(nil); got != "" {
		t.Errorf("Redact(nil) = %q, want it empty", got)
	}
}

// TestResolve resolves Locations. ResolveRedirect has more tests.
func TestResolve(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", urls.MaxBytes)
	for _, row := range []struct{ name, location, want, reason string }{
		{"a path", "next", "http://h:8080/a/next#f", ""},
		{"a fragment", "next#g", "http://h:8080/a/next#g", ""},
		{"an empty fragment", "next#", "http://h:8080/a/next", ""},
		{"a space", "/a b", "http://h:8080/a%20b#f", ""},
		{"a control character", "/a\x01b", "", "malformed"},
		{"another host", "//OTHER:80/x", "http://other:80/x#f", ""},
		{"userinfo", "http://user:secret@other/", "http://user:secret@other/#f", "userinfo"},
		{"userinfo and another fault", "ftp://user:secret@other/", "", "scheme"},
		{"too long", long, "", "too_long"},
		{"too long with the path before it", long[:urls.MaxBytes-5], "", "too_long"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			from, err := urls.Parse("http://h:8080/a/b?q#f")
			must.Succeed(t, err)
			u, wrong := urls.Resolve(from, row.location)
			got, reason := "", ""
			if u != nil {
				got = u.String()
			}
			if wrong != nil {
				reason = wrong.Reason
			}
			if got != row.want || reason != row.reason {
				t.Errorf("Resolve(%q) = %q, reason %q, want %q, %q", row.location, got, reason, row.want, row.reason)
			}
		})
	}
}

func TestSame(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		a, b         string
		host, origin bool
	}{
		{"http://a/", "http://a/x", true, true},
		{"http://a/", "http://a:80/", true, true},
		{"https://a:443/", "https://a/", true, true},
		{"http://a/", "http://a./", true, true},
		{"http://a/", "http://a:81/", true, false},
		{"http://a/", "https://a/", true, false},
		{"http://a:443/", "https://a/", true, false},
		{"http://a/", "http://b/", false, false},
		{"http://a/", "http://sub.a/", false, false},
	} {
		a, err := url.Parse(row.a)
		must.Succeed(t, err)
		b, err := url.Parse(row.b)
		must.Succeed(t, err)
		if host, origin := urls.SameHost(a, b), urls.SameOrigin(a, b); host != row.host || origin != row.origin {
			t.Errorf("%s and %s: same host %t, same origin %t, want %t, %t", a, b, host, origin, row.host, row.origin)
		}
	}
}

// TestWithout checks that the parts of a URL are removed from a copy.
func TestWithout(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ raw, fragment, userinfo string }{
		{"http://h/p?q", "http://h/p?q", "http://h/p?q"},
		{"http://h/p#f", "http://h/p", "http://h/p#f"},
		{"http://h/p#a%2Fb", "http://h/p", "http://h/p#a%2Fb"},
		{"http://user:secret@h/p", "http://user:secret@h/p", "http://h/p"},
	} {
		u, err := url.Parse(row.raw)
		must.Succeed(t, err)
		before := u.String()
		if got := urls.WithoutFragment(u).String(); got != row.fragment {
			t.Errorf("WithoutFragment(%s) = %s, want %s", row.raw, got, row.fragment)
		}
		if got := urls.WithoutUserinfo(u); got != row.userinfo {
			t.Errorf("WithoutUserinfo(%s) = %s, want %s", row.raw, got, row.userinfo)
		}
		if u.String() != before {
			t.Errorf("%s was changed to %s", before, u)
		}
	}
	if got := urls.WithoutUserinfo(nil); got != "" {
		t.Errorf("WithoutUserinfo(nil) = %q, want it empty", got)
	}
}

func BenchmarkParse(b *testing.B) {
	for _, row := range []struct{ name, raw string }{
		{"name", "https://www.example.com/some/path?with=a&query=too"},
		{"IPv4", "http://192.0.2.1:8080/some/path"},
		{"IPv6", "http://[2001:db8::1]:8080/some/path"},
		{"international", "https://bücher.example/é?é"},
	} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := urls.Parse(row.raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
