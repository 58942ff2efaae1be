package robots_test

import (
	"strings"
	"testing"

	"fetchd/frontier/robots"
)

// TestMatch matches one rule with one target. The first rows are examples of the RFC and of
// Google's documentation; the others are our own cases of the same rules.
func TestMatch(t *testing.T) {
	for _, row := range []struct {
		name, pattern, target string
		want                  bool
	}{
		// RFC 9309 §2.2.2, the table of escapes.
		{"a query as it is", "/foo/bar?baz=quz", "/foo/bar?baz=quz", true},
		{"a URL in a query, escaped in the target", "/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar", true},
		{"a URL in a query, escaped in the rule", "/foo/bar?baz=https%3A%2F%2Ffoo.bar", "/foo/bar?baz=https://foo.bar", true},
		{"a URL in a query, escaped in neither", "/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https://foo.bar", true},
		{"a letter beyond ASCII in the rule", "/foo/bar/ツ", "/foo/bar/%E3%83%84", true},
		{"a letter beyond ASCII in the target", "/foo/bar/%E3%83%84", "/foo/bar/ツ", true},
		{"a letter beyond ASCII, escaped in both", "/foo/bar/%E3%83%84", "/foo/bar/%E3%83%84", true},
		{"unreserved letters escaped in the rule", "/foo/bar/%62%61%7A", "/foo/bar/baz", true},
		{"unreserved letters escaped in the target", "/foo/bar/baz", "/foo/bar/%62%61%7a", true},
		// RFC 9309 §2.2.3, special characters.
		{"an escaped star is a star", "/path/file-with-a-%2A.html", "/path/file-with-a-*.html", true},
		{"an escaped star is no wildcard", "/path/file-with-a-%2A.html", "/path/file-with-a-b.html", false},
		{"an escaped dollar is a dollar", "/path/foo-%24", "/path/foo-$", true},
		{"an escaped dollar is no end", "/path/foo-%24", "/path/foo-", false},
		{"an escaped dollar, then more", "/path/foo-%24", "/path/foo-$bar", true},
		{"an end", "/this/path/exactly$", "/this/path/exactly", true},
		{"an end, then more", "/this/path/exactly$", "/this/path/exactly/not", false},
		{"a wildcard within", "/this/*/exactly", "/this/a/b/exactly", true},

		// Cases from Google's documentation and the tests of crawler-commons, in our own words.
		{"prefix: itself", "/lake", "/lake", true},
		{"prefix: extension", "/lake", "/lake.html", true},
		{"prefix: below", "/lake", "/lake/trout.html", true},
		{"prefix: longer word", "/lake", "/lakeheads/deep.html", true},
		{"prefix: query", "/lake", "/lake.php?n=1", true},
		{"prefix: other case", "/lake", "/Lake.asp", false},
		{"prefix: within", "/lake", "/catlake", false},
		{"prefix: in a query", "/lake", "/?id=lake", false},
		{"prefix: shorter", "/lake", "/fis", false},
		{"star at the end: itself", "/lake*", "/lake", true},
		{"star at the end: more", "/lake*", "/lakeheads", true},
		{"star at the end: other case", "/lake*", "/Lake.asp", false},
		{"folder: itself", "/lake/", "/lake/", true},
		{"folder: below", "/lake/", "/lake/trout.htm", true},
		{"folder: query", "/lake/", "/lake/?n=1", true},
		{"folder: no slash", "/lake/", "/lake", false},
		{"folder: a file of that name", "/lake/", "/lake.html", false},
		{"extension", "/*.php", "/page.php", true},
		{"extension: folder", "/*.php", "/folder/page.php?n=1", true},
		{"extension: within", "/*.php", "/dir/some.php.old.html", true},
		{"extension: slash after", "/*.php", "/page.php/", true},
		{"extension: root", "/*.php", "/", false},
		{"extension: other case", "/*.php", "/page.PHP", false},
		{"extension at the end", "/*.php$", "/folder/page.php", true},
		{"extension at the end: query", "/*.php$", "/page.php?n=1", false},
		{"extension at the end: slash", "/*.php$", "/page.php/", false},
		{"extension at the end: longer", "/*.php$", "/page.php5", false},
		{"extension at the end: twice", "/*.php$", "/a.php/b.php", true},
		{"word and extension", "/lake*.php", "/lakeheads/catlake.php?n=1", true},
		{"word and extension: other case", "/lake*.php", "/Lake.PHP", false},
		{"two stars", "/*lake*.php", "/superlakeheads/catlake.php?n=1", true},
		{"two stars: other extension", "/*lake*.php", "/lakeheads/catlake.htm", false},

		{"root", "/", "/anything", true},
		{"root at the end", "/$", "/", true},
		{"root at the end: more", "/$", "/a", false},
		{"star alone", "*", "/a", true},
		{"dollar alone", "$", "/", false},
		{"star and dollar", "*$", "/a", true},
		{"star first", "*/a", "/b/a", true},
		{"no slash first", "a", "/a", false},
		{"many stars are one", "/a***b", "/axb", true},
		{"many stars first", "**/b", "/a/b", true},
		{"many stars last", "/a**", "/ab", true},
		{"many stars at the end", "/a***$", "/abc", true},
		{"an escaped star among stars", "/a**%2A**b", "/a-*-b", true},
		{"an escaped star among stars is no wildcard", "/a**%2A**b", "/a--b", false},
		{"escaped stars are two", "/a%2A%2Ab", "/a*b", false},
		{"pieces in their order", "/*a*b*c", "/c/b/a", false},
		{"pieces do not overlap", "/*aba*aba", "/ababa", false},
		{"pieces do not overlap at the end", "/*ab*b$", "/ab", false},
		{"the last piece is the last place", "/*b$", "/bab", true},
		{"a dollar within is itself", "/a$b", "/a$b", true},
		{"a dollar within is no end", "/a$b", "/a", false},
		{"a dollar within, escaped in the target", "/a$b", "/a%24b", true},
		{"a star in the target is itself", "/a*b", "/a*b", true},
		{"an escaped slash is no slash in a path", "/a/b", "/a%2Fb", false},
		{"a slash is no escaped slash in a path", "/a%2Fb", "/a/b", false},
		{"escapes in either case", "/a%2fb", "/a%2Fb", true},
		{"an at sign escaped in the target", "/@user", "/%40user", true},
		{"an at sign escaped in the rule", "/%40user", "/@user", true},
		{"an ampersand in a query separates", "/?a&b", "/?a%26b", false},
		{"a plus in a query is a space", "/?a+b", "/?a%2Bb", false},
		{"a wildcard before an escape", "*%2Fb", "/?u=a%2Fb", true},
		{"a wildcard before a slash of a query", "*/b", "/?u=a/b", true},
		{"an escape is decoded once", "/%2541", "/A", false},
		{"a lone percent sign", "/100%", "/100%", true},
		{"a byte that is not UTF-8", "/\xe4", "/%E4", true},
		{"an escaped NUL", "/a%00", "/a%00b", true},
		// Characters that a URL contains only escaped. google/robotstxt matches none of the first
		// ten rows.
		{"a space in the rule", "/my files/", "/my%20files/a", true},
		{"a quotation mark in the rule", `/q"z`, "/q%22z", true},
		{"less than in the rule", "/a<b", "/a%3Cb", true},
		{"greater than in the rule", "/a>b", "/a%3Eb", true},
		{"an opening brace in the rule", "/a{b", "/a%7Bb", true},
		{"a closing brace in the rule", "/a}b", "/a%7db", true},
		{"a bar in the rule", "/x|y", "/x%7Cy", true},
		{"a circumflex in the rule", "/c^d", "/c%5Ed", true},
		{"a grave accent in the rule", "/c`d", "/c%60d", true},
		{"a backslash in the rule", `/?c\d`, "/?c%5Cd", true},
		{"a tab in the rule", "/a\tb", "/a%09b", true},
		{"a brace in a query", "/?q={*}$", "/?q=%7Ba%7D", true},
		{"a brace escaped in both", "/a%7Bb", "/a%7bb", true},
		{"a brace escaped in the rule alone", "/a%7Bb", "/a{b", true},
		{"another brace", "/a{b", "/a%7Db", false},
		{"a brace escaped twice", "/a{b", "/a%257Bb", false},
		{"a space is no plus", "/my files/", "/my+files/", false},
		{"a tilde is unreserved", "/~a", "/%7Ea", true},
		{"a bar is no end", "/x|y$", "/x%7Cyz", false},
		{"a target without a path", "/", "", true},
		{"a target that is a query", "/?a", "?a=b", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			file := robots.Parse([]byte("User-agent: *\nDisallow: "+row.pattern), "a")
			got := file.Decide(row.target)
			if got.Allowed == row.want {
				t.Errorf("pattern %q, target %q: match %t, want %t", row.pattern, row.target, !got.Allowed, row.want)
			}
		})
	}
}

// TestCost checks that the cost of a decision has a bound in bytes: rules with a * are compared with the
// whole URL.
func TestCost(t *testing.T) {
	t.Parallel()
	file := func(rule string, n int) []byte {
		return []byte("User-agent: *\n" + strings.Repeat("Disallow: "+rule+"\n", n))
	}
	long := "/" + strings.Repeat("a", 7999)
	for _, row := range []struct {
		name        string
		file        []byte
		path        string
		least, most int
	}{
		{"no rules", nil, long, 8_000, 8_000},
		{"prefixes", file("/x", 1000), long, 20_000, 30_000},
		{"wildcards", file("/*x", 1000), "/page", 20_000, 30_000},
		{"wildcards and a long URL", file("/*x", 1000), long, 15_000_000, 17_000_000},
		{"an escaped star", file("/%2Ax", 1000), long, 20_000, 30_000},
		{"a star at the end", file("/x*", 10), long, 100_000, 200_000},
	} {
		p := robots.Judge(robots.Answer{Status: 200, Body: row.file}, "x")
		if got := p.Cost(row.path); got < row.least || got > row.most {
			t.Errorf("%s: cost %d, want %d to %d", row.name, got, row.least, row.most)
		}
	}
	if got := (robots.Policy{Unavailable: true}).Cost(long); got != 0 {
		t.Errorf("cost %d without a file", got)
	}
}
