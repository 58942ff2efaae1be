package robots_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"fetchd/frontier/robots"
)

// FuzzParse checks that any bytes are a valid file, that the kind of line ends does not matter, and
// that the deciding line is one of the file.
func FuzzParse(f *testing.F) {
	f.Add([]byte(fourGroups), "foobot", "/example/page.html")
	f.Add([]byte("\ufeffUser-agent: *\nDisallow: /*%2a$ # a\nCrawl-delay: 1.5\nSitemap: s"), "a/1", "/%2A?q=%")
	f.Add([]byte("User-agent *\rAllow\t/\r\nDisallow:\x00\xff**$$"), "*", "\xff")
	f.Fuzz(func(t *testing.T, body []byte, agent, target string) {
		rules := robots.Parse(body, agent)
		if most := robots.MaxSize + 200; rules.Size() > most {
			t.Errorf("%d bytes, want at most %d", rules.Size(), most)
		}
		got := rules.Decide(target)
		if got.Reason != robots.ByRule && (!got.Allowed || got.Line != robots.Line{}) {
			t.Errorf("without a rule: %+v", got)
		}
		if got.Reason == robots.ByRule && (got.Line.Number < 1 || !bytes.Contains(body, []byte(got.Line.Text))) {
			t.Errorf("line %+v is not in the file %q", got.Line, body)
		}
		if len(body) > robots.MaxBytes/2 || bytes.Contains(body, []byte("\r")) {
			return
		}
		other := robots.Parse(bytes.ReplaceAll(body, []byte("\n"), []byte("\r\n")), agent).Decide(target)
		if other != got {
			t.Errorf("with LF %+v, with CR LF %+v; file %q", got, other, body)
		}
	})
}

// FuzzMatch compares the matcher with the simplest one.
func FuzzMatch(f *testing.F) {
	f.Add("/*a*b$", "/aab")
	f.Add("*ab*ab", "/abab")
	f.Add("/$a*$", "/$a")
	f.Add("/**a***b**$", "/xaxb")
	f.Add("*0", "/`")
	f.Fuzz(func(t *testing.T, pattern, target string) {
		pattern, target = plain(pattern), "/"+plain(target)
		if pattern == "" || len(pattern)*len(target) > 1<<20 || target == "/robots.txt" {
			return
		}
		got := robots.Parse([]byte("User-agent: *\nDisallow: "+pattern), "a").Decide(target)
		if want := slowMatch(escaped(pattern), escaped(target)); got.Allowed == want {
			t.Errorf("pattern %q, target %q: match %t, want %t", pattern, target, !got.Allowed, want)
		}
	})
}

// FuzzPrecedence compares the decision between two rules with the definition: of the
// rules that match, the one with the most octets as escaped. Each star of a run counts.
func FuzzPrecedence(f *testing.F) {
	f.Add("/a***b", "/a*bc", "/abc")
	f.Add("/a*b", "/a***", "/ab")
	f.Add("**", "/a", "/abc")
	f.Add("/*$", "/****", "/a")
	f.Add("/a{*", "/a***", "/a{b")
	f.Add("0", "*0", "/`")
	f.Fuzz(func(t *testing.T, allow, disallow, target string) {
		allow, disallow, target = plain(allow), plain(disallow), "/"+plain(target)
		if allow == "" || disallow == "" || (len(allow)+len(disallow))*len(target) > 1<<20 || target == "/robots.txt" {
			return
		}
		path := escaped(target)
		allows, disallows := slowMatch(escaped(allow), path), slowMatch(escaped(disallow), path)
		want := !disallows || allows && len(escaped(allow)) >= len(escaped(disallow))
		file := "User-agent: *\nDisallow: " + disallow + "\nAllow: " + allow
		if got := robots.Parse([]byte(file), "a").Decide(target); got.Allowed != want {
			t.Errorf("target %q: %+v, want allowed %t; file:\n%s", target, got, want, file)
		}
	})
}

// plain returns s without escapes, comments and space.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || r == '%' || r == '#' {
			return -1
		}
		return r
	}, s)
}

// escaped returns a plain pattern or target in the form that is compared (RFC 9309 §2.2.2).
func escaped(s string) string {
	var out strings.Builder
	for i := range len(s) {
		if strings.IndexByte("\"<>\\^`{|}", s[i]) >= 0 {
			fmt.Fprintf(&out, "%%%02X", s[i])
		} else {
			out.WriteByte(s[i])
		}
	}
	return out.String()
}

// slowMatch fills in, star by star, which beginnings of s the pattern so far
// can have matched. Its time is the product of the lengths.
func slowMatch(pattern, s string) bool {
	pattern, end := strings.CutSuffix(pattern, "$")
	reached := make([]bool, len(s)+1)
	reached[0] = true
	for i := range len(pattern) {
		next := make([]bool, len(s)+1)
		for j := range next {
			if pattern[i] == '*' {
				next[j] = reached[j] || j > 0 && next[j-1]
			} else {
				next[j] = j > 0 && reached[j-1] && s[j-1] == pattern[i]
			}
		}
		reached = next
	}
	if end {
		return reached[len(s)]
	}
	for _, r := range reached {
		if r {
			return true
		}
	}
	return false
}

// manyStars is a pattern of n stars that fits nowhere in a path of a's. A
// matcher that goes back to each star in turn would be at it for ever.
func manyStars(n int) string { return "/" + strings.Repeat("*a", n) + "*b$" }

func TestManyStars(t *testing.T) {
	rules := robots.Parse([]byte("User-agent: *\nDisallow: "+manyStars(4000)), "a")
	if got := rules.Decide("/" + strings.Repeat("a", 8000)); !got.Allowed {
		t.Errorf("a path without b: %+v", got)
	}
	if got := rules.Decide("/" + strings.Repeat("a", 8000) + "b"); got.Allowed {
		t.Errorf("a path with b last: %+v", got)
	}
}
