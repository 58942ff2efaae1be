package wacz

import (
	"strings"
	"testing"
)

// TestKey compares keys with those that pywb computes.
func TestKey(t *testing.T) {
	t.Parallel()
	const session = "0123456789abcdefghijklemopqrstuv"
	for _, tt := range []struct{ name, url, want string }{
		{"root", "http://example.org/", "org,example)/"},
		{"no path", "http://example.org", "org,example)/"},
		{"scheme is left out", "https://example.org/", "org,example)/"},
		{"other scheme", "ftp://www.example.org/", "org,example)/"},
		{"upper case", "HTTP://EXAMPLE.ORG/A?B=C", "org,example)/a?b=c"},
		{"www", "http://www.archive.org/", "org,archive)/"},
		{"www with a number", "http://www34.archive.org/", "org,archive)/"},
		{"www is part of a name", "http://www2foo.com/", "com,www2foo)/"},
		{"www twice", "http://www2.www2foo.com/", "com,www2foo)/"},
		{"final dots", "http://www.google.com.../", "com,google)/"},
		{"user", "http://user:secret@example.org/", "org,example)/"},
		{"default port", "http://example.org:80/", "org,example)/"},
		{"default port of https", "https://example.org:443/", "org,example)/"},
		{"port of the other scheme", "https://example.org:80/", "org,example:80)/"},
		{"port", "http://example.org:8080/", "org,example:8080)/"},
		{"colon without a port", "http://example.org:/", "org,example)/"},
		{"IPv4 is reversed", "http://192.168.1.254/info/", "254,1,168,192)/info"},
		{"IPv6", "http://[::1]:8080/", "::1:8080)/"},
		{"IDN", "http://bücher.ch:8080/", "ch,xn--bcher-kva:8080)/"},
		{"escaped IDN", "http://b%C3%BCcher.ch/", "ch,xn--bcher-kva)/"},
		{"host with escapes", "http://%20leadingspace.com/", "com,%20leadingspace)/"},
		{"final slash", "http://archive.org/goo/", "org,archive)/goo"},
		{"empty query", "http://archive.org/goo/?", "org,archive)/goo"},
		{"arguments are sorted", "http://archive.org/goo/?a=2&b&a=1", "org,archive)/goo?a=1&a=2&b"},
		{"arguments are sorted by name first", "http://a.org/?a-b=1&a=1", "org,a)/?a=1&a-b=1"},
		{"argument without a value", "http://a.org/?a=&a", "org,a)/?a&a="},
		{"empty argument", "http://a.org/?&r=1&b=2", "org,a)/?&b=2&r=1"},
		{"two question marks", "http://a.org/?a?b", "org,a)/?a?b"},
		{"fragment", "http://a.org/b#c?d", "org,a)/b"},
		{"dot segments", "http://a.org/b/./c/../d", "org,a)/b/d"},
		{"dot segments above the root", "http://a.org/../b", "org,a)/../b"},
		{"empty segments", "http://a.org//b///c//", "org,a)/b/c"},
		{"escapes", "http://a.org/%41%2f%7e%20%23%25", "org,a)/a/~%20%23%25"},
		{"escaped escapes", "http://a.org/%25%32%35", "org,a)/%25"},
		{"many escaped escapes", "http://a.org/%2525252525252541", "org,a)/a"},
		{"not an escape", "http://a.org/%%%2541sd%%", "org,a)/%25%25asd%25%25"},
		{"not ASCII", "http://example.com/app?item=Wroc%C5%82aw", "com,example)/app?item=wroc%c5%82aw"},
		{"white space", "  http://www.google.com/foo\tbar\rbaz\n2  ", "com,google)/foobarbaz2"},
		{"session of PHP", "http://archive.org/index.php?PHPSESSID=" + session + "&action=profile;u=4221", "org,archive)/index.php?action=profile;u=4221"},
		{"session at the end", "http://a.org/?one=two&jsessionid=" + session, "org,a)/?&one=two"},
		{"session alone", "http://a.org/?sid=" + session, "org,a)/"},
		{"not a session", "http://a.org/?jsessionid=" + session + "0", "org,a)/?jsessionid=" + session + "0"},
		{"session of ColdFusion", "http://a.org/?CFID=1169580&CFTOKEN=48630702&x=1", "org,a)/?x=1"},
		{"session of ASP", "http://a.org/?ASPSESSIONIDabcdefgh=ABCDEFGHIJKLMNOPQRSTUVWX&x=y", "org,a)/?x=y"},
		{"session in the path", "http://a.org/(S(4hqa0555fwsecu455xqckv45))/mileg.aspx", "org,a)/mileg.aspx"},
		{"short session in the path", "http://a.org/(4hqa0555fwsecu455xqckv45)/mileg.aspx", "org,a)/mileg.aspx"},
		{"@ in the path", "http://a.org/photos/me@Home/", "org,a)/photos/me@home"},
		{"dns", "dns:archive.org", "dns:archive.org"},
		{"mailto", "mailto:foo@example.com", "mailto:foo@example.com"},
		{"urn", "urn:X-Some:ID", "urn:x-some:id"},
		{"port that is not a number", "http://a.org:b/", "http://a.org:b/"},
		{"empty host", "http:///a", "http:/a"},
		{"no scheme", "a b", "a%20b"},
		{"empty", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := Key(tt.url); got != tt.want {
				t.Errorf("Key(%q) = %q, want %q", tt.url, got, tt.want)
			}
		})
	}
}

// FuzzKey checks that a key is one word of printable ASCII, and that white space around the URL does
// not change it.
func FuzzKey(f *testing.F) {
	for _, s := range []string{"http://example.org/a?b=c", "http://[::1]:80/", "http://a.org/%25%32%35", "urn:x:y", "http://a@b:1/\x00\u202e ", "x:?#", "http://h/a?sid=0123456789abcdefghijklemopqrstuv",
		"http://a.org/" + strings.Repeat("%25", 200), "http://a.org/" + strings.Repeat("../", 200), "http://\xff.com/", "http://www.www.a/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		key := Key(raw)
		if i := strings.IndexFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }); i >= 0 {
			t.Fatalf("Key(%q) = %q: it is not printable ASCII at byte %d", raw, key, i)
		}
		if same := Key("\n" + raw + "\t"); same != key {
			t.Errorf("Key of %q with white space = %q, want %q", raw, same, key)
		}
	})
}

// TestKeyTakesLinearTime checks that URLs that a stranger has made for it are processed in one pass.
// A quadratic algorithm would need minutes.
func TestKeyTakesLinearTime(t *testing.T) {
	t.Parallel()
	const n = 256 << 10
	for _, part := range []string{"%25", "25", "../", "cfid=", "sid=a&", "/", "&", ".", "(a(", "%"} {
		if key := Key("http://a.org/%" + strings.Repeat(part, n/len(part)) + "?" + strings.Repeat(part, n/len(part))); key == "" {
			t.Errorf("the key of a URL of %q is empty", part)
		}
	}
}
