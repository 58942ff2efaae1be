package robots_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/frontier/robots"
)

// fourGroups is the example of RFC 9309 §5.1.
const fourGroups = `
User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: foobot
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif

User-Agent: barbot
User-Agent: bazbot
Disallow: /example/page.html

User-Agent: quxbot
`

func TestFiles(t *testing.T) {
	for _, row := range []struct {
		name, file, agent, target string
		want                      bool
	}{
		// RFC 9309 §5.1, simple example.
		{"RFC: all, a picture", fourGroups, "otherbot", "/a/b.gif", false},
		{"RFC: all, a folder", fourGroups, "otherbot", "/example/page.html", false},
		{"RFC: all, publications", fourGroups, "otherbot", "/publications/a", true},
		{"RFC: all, a picture among publications", fourGroups, "otherbot", "/publications/a.gif", true},
		{"RFC: all, what no rule names", fourGroups, "otherbot", "/a", true},
		{"RFC: foobot, nothing", fourGroups, "foobot", "/a", false},
		{"RFC: foobot, but one page", fourGroups, "foobot", "/example/page.html", true},
		{"RFC: foobot, and one picture", fourGroups, "foobot", "/example/allowed.gif", true},
		{"RFC: foobot, no rules of all", fourGroups, "foobot", "/publications/", false},
		{"RFC: barbot", fourGroups, "barbot", "/example/page.html", false},
		{"RFC: bazbot", fourGroups, "bazbot", "/example/page.html", false},
		{"RFC: bazbot, a picture", fourGroups, "bazbot", "/a.gif", true},
		{"RFC: quxbot, a group without rules", fourGroups, "quxbot", "/example/page.html", true},
		// RFC 9309 §5.2, longest match.
		{"RFC: the longest match", "User-Agent: foobot\nAllow: /example/page/\nDisallow: /example/page/disallowed.gif", "foobot", "/example/page/disallow.gif", true},
		{"RFC: the longer match", "User-Agent: foobot\nAllow: /example/page/\nDisallow: /example/page/disallowed.gif", "foobot", "/example/page/disallowed.gif", false},
		// RFC 9309 §2.2.1, groups of one agent are one.
		{"RFC: merged, first", "user-agent: a\ndisallow: /x\nuser-agent: b\ndisallow: /y\nuser-agent: a\ndisallow: /z", "a", "/x", false},
		{"RFC: merged, second", "user-agent: a\ndisallow: /x\nuser-agent: b\ndisallow: /y\nuser-agent: a\ndisallow: /z", "a", "/z", false},
		{"RFC: merged, the other's", "user-agent: a\ndisallow: /x\nuser-agent: b\ndisallow: /y\nuser-agent: a\ndisallow: /z", "a", "/y", true},
		{"merged: all", "user-agent: *\ndisallow: /x\nuser-agent: *\ndisallow: /y", "a", "/x", false},

		{"no rules at all", "", "a", "/x", true},
		{"rules before any agent", "Disallow: /\nUser-agent: b\nDisallow: /x", "a", "/x", true},
		{"agent not listed", "User-agent: b\nDisallow: /", "a", "/x", true},
		{"agent in another case", "User-agent: FooBot\nDisallow: /", "fOOBOT", "/x", false},
		{"agent with a version in the file", "User-agent: FooBot/2.1\nDisallow: /", "foobot", "/x", false},
		{"agent with a version at hand", "User-agent: foobot\nDisallow: /", "FooBot/2.1", "/x", false},
		{"a longer name is another", "User-agent: foobot-news\nDisallow: /", "foobot", "/x", true},
		{"a shorter name is another", "User-agent: foo\nDisallow: /", "foobot", "/x", true},
		{"agent with a star after it", "User-agent: foobot*\nDisallow: /", "foobot", "/x", false},
		{"agent with a star and a version after it", "User-agent: foobot*/1.0\nDisallow: /", "FooBot/2.1", "/x", false},
		{"agent with a star before it", "User-agent: *foobot\nDisallow: /", "foobot", "/x", true},
		{"agent with a dot", "User-agent: foobot.example\nDisallow: /", "foobot", "/x", false},
		{"agent with a letter beyond ASCII", "User-agent: foobotö\nDisallow: /", "foobot", "/x", false},
		{"agent with _ and -", "User-agent: foo_bot-news\nDisallow: /", "Foo_Bot-News/1", "/x", false},
		{"agent with a number after it", "User-agent: foobot\nDisallow: /", "foobot2/1.0", "/x", false},
		{"agent that begins with a digit", "User-agent: 360bot\nDisallow: /", "360bot/1.0", "/x", false},
		{"agent that begins with a digit ends a group", "User-agent: a\nDisallow: /y\nUser-agent: 360bot\nDisallow: /x", "a", "/x", true},
		{"agents after a comma", "User-agent: one, two\nDisallow: /", "two", "/x", false},
		{"agents after a space", "User-agent: one two #three\nDisallow: /", "two", "/x", false},
		{"an empty agent", "User-agent:\nDisallow: /", "a", "/x", true},
		{"own group in place of all", "User-agent: *\nDisallow: /\nUser-agent: a\nDisallow:", "a", "/x", true},
		{"no product at hand", "User-agent: *\nDisallow: /", "", "/x", false},
		{"a product that is a star", "User-agent: *\nDisallow: /", "*", "/x", false},

		{"empty Disallow", "User-agent: *\nDisallow:", "a", "/x", true},
		{"empty Allow", "User-agent: *\nAllow:", "a", "/x", true},
		{"an empty Disallow ends the agents", "User-agent: a\nDisallow:\nUser-agent: b\nDisallow: /", "a", "/x", true},
		{"Allow of the same length wins", "User-agent: *\nDisallow: /lake\nAllow: /lake", "a", "/lake", true},
		{"Allow of the same length wins in any order", "User-agent: *\nAllow: /lake\nDisallow: /lake", "a", "/lake", true},
		{"a longer Disallow wins", "User-agent: *\nAllow: /lake\nDisallow: /lake*", "a", "/lake", false},
		{"what is escaped counts as it is escaped", "User-agent: *\nDisallow: /a{b\nAllow: /a%7Bb", "a", "/a%7Bb", true},
		{"stars of a run count", "User-agent: *\nAllow: /lake***t\nDisallow: /lake*out", "a", "/lake/trout", true},
		{"stars of a run are one match", "User-agent: *\nDisallow: /a****\nAllow: /ab*", "a", "/abc", false},
		{"robots.txt", "User-agent: *\nDisallow: /", "a", "/robots.txt", true},
		{"robots.txt elsewhere", "User-agent: *\nDisallow: /", "a", "/a/robots.txt", false},
		{"case of a path", "User-agent: *\nAllow: /Any.html\nDisallow: /", "a", "/any.html", false},

		{"byte order mark", "\ufeffUser-agent: *\nDisallow: /", "a", "/x", false},
		{"one byte of a byte order mark", "\xefUser-agent: *\nDisallow: /", "a", "/x", false},
		{"a byte order mark within", "User-agent: *\n\ufeffDisallow: /", "a", "/x", true},
		{"another byte first", "\xbbUser-agent: *\nDisallow: /", "a", "/x", true},
		{"CR", "User-agent: *\rDisallow: /", "a", "/x", false},
		{"all ends of lines", "# a\r\nUser-agent: b\nDisallow: /\r\rUser-agent: *\r\nDisallow: /x\n", "a", "/x", false},
		{"blank lines end no group", "User-agent: *\n\n\nDisallow: /", "a", "/x", false},
		{"a comment behind a rule", "User-agent: *\nDisallow: /x # secret", "a", "/xyz", false},
		{"no space after the colon", "User-agent:*\nDisallow:/", "a", "/x", false},
		{"space before the colon", "User-agent : *\nDisallow\t: /", "a", "/x", false},
		{"a space of Latin-1", "User-agent: *\nDisallow:\u00a0/", "a", "/x", false},
		{"no colon", "User-agent *\nDisallow /x", "a", "/x", false},
		{"names in any case", "USER-AGENT: *\ndISALLOW: /", "a", "/x", false},
		{"a known slip of the pen", "Useragent: *\nDisalow: /", "a", "/x", false},
		{"an unknown name", "User-agent: *\nForbid: /", "a", "/x", true},
		{"a line without sense", "User-agent: *\nwhat is this\n\x00\xff\nDisallow: /", "a", "/x", false},
		{"a page of HTML", "<!DOCTYPE html>\n<html><title>a: b</title>\n</html>", "a", "/x", true},
		{"an unknown record between agents", "User-agent: a\nHost: h\nUser-agent: b\nDisallow: /", "a", "/x", false},
		{"Sitemap between agents", "User-agent: a\nSitemap: http://h/s\nUser-agent: b\nDisallow: /", "a", "/x", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := robots.Parse([]byte(row.file), row.agent).Decide(row.target)
			if got.Allowed != row.want {
				t.Errorf("agent %q, target %q: got %+v, want allowed %t; file:\n%s", row.agent, row.target, got, row.want, row.file)
			}
		})
	}
}

func TestCrawlDelay(t *testing.T) {
	for _, row := range []struct {
		name, file, agent string
		want              time.Duration
	}{
		{"none", "User-agent: *\nDisallow:", "a", 0},
		{"seconds", "User-agent: *\nCrawl-delay: 10", "a", 10 * time.Second},
		{"a fraction", "User-agent: *\nCrawl-delay: 0.5", "a", 500 * time.Millisecond},
		{"nought", "User-agent: *\nCrawl-delay: 0", "a", 0},
		{"a word", "User-agent: *\nCrawl-delay: slow", "a", 0},
		{"infinity", "User-agent: *\nCrawl-delay: inf", "a", 0},
		{"more than fits", "User-agent: *\nCrawl-delay: 99999999999", "a", 1<<63 - 1},
		{"more than a float holds", "User-agent: *\nCrawl-delay: " + strings.Repeat("9", 400), "a", 1<<63 - 1},
		{"before any agent", "Crawl-delay: 10\nUser-agent: *\nDisallow:", "a", 0},
		{"the first of two in a row", "User-agent: a\nCrawl-delay: 10\nUser-agent: b\nCrawl-delay: 20", "a", 20 * time.Second},
		{"two agents", "User-agent: a\nUser-agent: b\nCrawl-delay: 10", "b", 10 * time.Second},
		{"the agent that came later", "User-agent: a\nCrawl-delay: 20\nUser-agent: b\nCrawl-delay: 10", "b", 10 * time.Second},
		{"the greatest", "User-agent: a\nCrawl-delay: 10\nDisallow: /x\nCrawl-delay: 5", "a", 10 * time.Second},
		{"that of all is not that of one", "User-agent: *\nCrawl-delay: 10\nDisallow:\nUser-agent: a\nDisallow:", "a", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := robots.Parse([]byte(row.file), row.agent).CrawlDelay; got != row.want {
				t.Errorf("agent %q: delay %v, want %v; file:\n%s", row.agent, got, row.want, row.file)
			}
		})
	}
}

func TestLineThatDecides(t *testing.T) {
	file := robots.Parse([]byte("# ours\r\nUser-agent: *\r\n  Disallow: /x # secret\r\nAllow: /x/y\r\n"), "a")
	for _, row := range []struct {
		name, target string
		want         robots.Decision
	}{
		{"disallowed", "/x", robots.Decision{Reason: robots.ByRule, Line: robots.Line{Number: 3, Text: "Disallow: /x"}}},
		{"allowed", "/x/y", robots.Decision{Allowed: true, Reason: robots.ByRule, Line: robots.Line{Number: 4, Text: "Allow: /x/y"}}},
		{"no rule", "/z", robots.Decision{Allowed: true, Reason: robots.NoRule}},
		{"robots.txt", "/robots.txt", robots.Decision{Allowed: true, Reason: robots.RobotsTxt}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, file.Decide(row.target)); diff != "" {
				t.Errorf("target %q (-want +got):\n%s", row.target, diff)
			}
		})
	}
	if got := file.Group; got != "*" {
		t.Errorf("group %q, want *", got)
	}
}

func TestLimit(t *testing.T) {
	const head, rule = "User-agent: *\n", "Disallow: /private"
	fill := strings.Repeat("#", robots.MaxBytes-len(head)-len(rule)-1) + "\n"
	for _, row := range []struct {
		name, file, target string
		want               bool
	}{
		{"up to the limit", head + fill + rule, "/private", false},
		{"up to the limit, and more", head + fill + rule + "\nDisallow: /x", "/private", false},
		{"past the limit", head + fill + rule + "\nDisallow: /x", "/x", true},
		{"a line through the limit", head + fill + "#" + rule[1:] + "/\n" + rule, "/private", true},
		{"half a line closes no site", head + fill[:len(fill)-1] + "########\n" + rule, "/x", true},
		{"one line without an end", strings.Repeat("#", robots.MaxBytes+1), "/x", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := robots.Parse([]byte(row.file), "a").Decide(row.target); got.Allowed != row.want {
				t.Errorf("target %q: got %+v, want allowed %t", row.target, got, row.want)
			}
		})
	}
}

// TestSizeIsBounded checks that the rules of a file use at most MaxSize, whatever it contains. The
// first rules count, and those that do not fit are ignored.
func TestSizeIsBounded(t *testing.T) {
	const few = 64 << 10
	own := strings.Repeat("Disallow: /b\n", 30000)
	for _, row := range []struct {
		name, line string
		most       int
	}{
		{"short rules", "Allow: /a\n", robots.MaxSize},
		{"stars", "Allow: %3a" + strings.Repeat("*", 2000) + "\n", few},
		{"stars apart", "Allow: " + strings.Repeat("*a", 1000) + "\n", robots.MaxSize},
		{"escapes of both kinds", "Allow: /" + strings.Repeat("%3a", 100) + "\n", robots.MaxSize},
		{"what is escaped", "Allow: /" + strings.Repeat("ツ", 100) + "\n", robots.MaxSize},
		{"agents", "User-agent: x, y\n", few},
		{"groups", "User-agent: x\nAllow: /a\n", few},
		{"delays", "Crawl-delay: 1\n", few},
		{"sitemaps", "Sitemap: s\n", few},
		{"words", "a a a a a a a a ", few},
	} {
		t.Run(row.name, func(t *testing.T) {
			file := "User-agent: *\nDisallow: /first\n"
			file += strings.Repeat(row.line, (robots.MaxBytes-len(file))/len(row.line))
			rules := robots.Parse([]byte(file), "a")
			if got, most := rules.Size(), row.most+200; got > most {
				t.Errorf("%d bytes, want at most %d", got, most)
			}
			if got := rules.Decide("/first"); got.Line.Number != 2 {
				t.Errorf("%+v, want it by line 2", got)
			}
		})
	}
	last := robots.Parse([]byte("User-agent: *\n"+own+"Disallow: /last"), "a")
	if got := last.Decide("/last"); !got.Allowed {
		t.Errorf("a rule past the limit: %+v, want none", got)
	}
	others := robots.Parse([]byte("User-agent: *\n"+own+"User-agent: a\nDisallow: /last"), "a")
	if got := others.Decide("/last"); got.Allowed || others.Size() > few {
		t.Errorf("%+v, %d bytes: want the rule of a, and none of the others", got, others.Size())
	}
}

// TestLongLine checks that the text of a long line is shortened and its rule is not.
func TestLongLine(t *testing.T) {
	long := "/" + strings.Repeat("ツ", 300)
	rules := robots.Parse([]byte("User-agent: *\nDisallow: "+long+"a"), "a")
	if got := rules.Decide(long + "b"); !got.Allowed {
		t.Errorf("%+v, want no match", got)
	}
	if got, want := rules.Decide(long+"ab").Line.Text, "Disallow: "+long[:1+3*189]; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}

// TestCrawlDelayIsThatOfItsDefinition compares every short file with the definition: an agent line
// gets the longest delay that follows it, and an agent gets the longest delay of its lines.
func TestCrawlDelayIsThatOfItsDefinition(t *testing.T) {
	t.Parallel()
	lines := []string{"User-agent: a", "User-agent: b", "Crawl-delay: 1", "Crawl-delay: 2", "Crawl-delay: 3", "Disallow: /"}
	const length = 6
	file := make([]string, length)
	var each func(n int)
	each = func(n int) {
		if n < length {
			for _, line := range lines {
				file[n] = line
				each(n + 1)
			}
			return
		}
		text := strings.Join(file, "\n")
		for _, agent := range []string{"a", "b"} {
			if got, want := robots.Parse([]byte(text), agent).CrawlDelay, defined(file, agent); got != want {
				t.Errorf("agent %s: delay %v, want %v; file:\n%s", agent, got, want, text)
			}
		}
	}
	each(0)
}

// defined implements the definition: it visits all agents of a group for each delay.
func defined(file []string, agent string) (longest time.Duration) {
	var group []string
	ruled := false
	for _, line := range file {
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "User-agent":
			if ruled {
				group, ruled = nil, false
			}
			group = append(group, value)
		case "Disallow":
			ruled = len(group) > 0
		case "Crawl-delay":
			for _, a := range group {
				if a == agent {
					longest = max(longest, time.Duration(value[0]-'0')*time.Second)
				}
			}
		}
	}
	return longest
}

func TestSitemaps(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for n := range robots.MaxSitemaps + 10 {
		fmt.Fprintf(&many, "Sitemap: /%d\n", n)
	}
	for _, row := range []struct {
		name, file, want string // separated by spaces
		n                int    // of sitemaps, instead of want
	}{
		{"one", "Sitemap: http://a.test/map.xml", "http://a.test/map.xml", 0},
		{"among groups", "User-agent: x\nDisallow: /\nsitemap:/1\nUser-agent: *\n\nSITEMAP : /2\r\nAllow: /", "/1 /2", 0},
		{"a byte order mark", "\ufeffSitemap: /1", "/1", 0},
		{"equal ones", "Sitemap: /1\nSitemap: /1", "/1", 0},
		{"without a colon", "Sitemap /1", "/1", 0},
		{"a comment after it", "Sitemap: /1 # x", "/1", 0},
		{"no value", "Sitemap:\nSitemap: ", "", 0},
		{"another name", "Site-map: /1\nSitemaps: /2", "", 0},
		{"too long", "Sitemap: /" + strings.Repeat("x", 9000) + "\nSitemap: /1", "/1", 0},
		{"too many", many.String(), "", robots.MaxSitemaps},
		{"after the limit of a file", strings.Repeat("#", robots.MaxBytes) + "\nSitemap: /1", "", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := robots.Sitemaps([]byte(row.file))
			if text := strings.Join(got, " "); row.n == 0 && text != row.want || row.n > 0 && len(got) != row.n {
				t.Errorf("%d sitemaps, %.200q", len(got), text)
			}
		})
	}
}

// TestMatch matches one rule with one target. The first rows are examples of the RFC and of
// Google's documentation; the others are our own cases of the same rules.
func TestMatch(t *testing.T) {
	for _, row := range []struct {
		name, pattern, target string
		want                  bool
	}{
		// RFC 9309 §2.2.2, the table of escapes.
		{"a URL in a query, escaped in the target", "/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar", true},
		{"a URL in a query, escaped in the rule", "/foo/bar?baz=https%3A%2F%2Ffoo.bar", "/foo/bar?baz=https://foo.bar", true},
		{"a URL in a query, escaped in neither", "/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https://foo.bar", true},
		{"a letter beyond ASCII in the rule", "/foo/bar/ツ", "/foo/bar/%E3%83%84", true},
		{"a letter beyond ASCII in the target", "/foo/bar/%E3%83%84", "/foo/bar/ツ", true},
		{"unreserved letters escaped in the rule", "/foo/bar/%62%61%7A", "/foo/bar/baz", true},
		{"unreserved letters escaped in the target", "/foo/bar/baz", "/foo/bar/%62%61%7a", true},
		// RFC 9309 §2.2.3, special characters.
		{"an escaped star is a star", "/path/file-with-a-%2A.html", "/path/file-with-a-*.html", true},
		{"an escaped star is no wildcard", "/path/file-with-a-%2A.html", "/path/file-with-a-b.html", false},
		{"an escaped dollar is a dollar", "/path/foo-%24", "/path/foo-$", true},
		{"an escaped dollar is no end", "/path/foo-%24", "/path/foo-", false},
		{"an end", "/this/path/exactly$", "/this/path/exactly", true},
		{"an end, then more", "/this/path/exactly$", "/this/path/exactly/not", false},
		{"a wildcard within", "/this/*/exactly", "/this/a/b/exactly", true},

		// Cases from Google's documentation and the tests of crawler-commons, in our own words.
		{"prefix: itself", "/lake", "/lake", true},
		{"prefix: below", "/lake", "/lake/trout.html", true},
		{"prefix: other case", "/lake", "/Lake.asp", false},
		{"prefix: within", "/lake", "/catlake", false},
		{"star at the end: itself", "/lake*", "/lake", true},
		{"folder: itself", "/lake/", "/lake/", true},
		{"folder: below", "/lake/", "/lake/trout.htm", true},
		{"folder: no slash", "/lake/", "/lake", false},
		{"extension", "/*.php", "/page.php", true},
		{"extension: within", "/*.php", "/dir/some.php.old.html", true},
		{"extension: root", "/*.php", "/", false},
		{"extension at the end", "/*.php$", "/folder/page.php", true},
		{"extension at the end: query", "/*.php$", "/page.php?n=1", false},
		{"extension at the end: slash", "/*.php$", "/page.php/", false},
		{"word and extension", "/lake*.php", "/lakeheads/catlake.php?n=1", true},
		{"two stars", "/*lake*.php", "/superlakeheads/catlake.php?n=1", true},

		{"root at the end", "/$", "/", true},
		{"star alone", "*", "/a", true},
		{"dollar alone", "$", "/", false},
		{"star and dollar", "*$", "/a", true},
		{"no slash first", "a", "/a", false},
		{"many stars are one", "/a***b", "/axb", true},
		{"many stars first", "**/b", "/a/b", true},
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
		{"a wildcard before a slash of a query", "*/b", "/?u=a/b", true},
		{"an escape is decoded once", "/%2541", "/A", false},
		{"a lone percent sign", "/100%", "/100%", true},
		{"a byte that is not UTF-8", "/\xe4", "/%E4", true},
		{"an escaped NUL", "/a%00", "/a%00b", true},
		// Characters that a URL contains only escaped. google/robotstxt matches none of the first
		// ten rows.
		{"a space in the rule", "/my files/", "/my%20files/a", true},
		{"less than in the rule", "/a<b", "/a%3Cb", true},
		{"a closing brace in the rule", "/a}b", "/a%7db", true},
		{"a grave accent in the rule", "/c`d", "/c%60d", true},
		{"a backslash in the rule", `/?c\d`, "/?c%5Cd", true},
		{"a tab in the rule", "/a\tb", "/a%09b", true},
		{"a brace in a query", "/?q={*}$", "/?q=%7Ba%7D", true},
		{"a brace escaped in the rule alone", "/a%7Bb", "/a{b", true},
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
