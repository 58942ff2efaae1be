package robots_test

import (
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
		{"agent with a star within", "User-agent: foo*bot\nDisallow: /", "foobot", "/x", true},
		{"agent with a star before it", "User-agent: *foobot\nDisallow: /", "foobot", "/x", true},
		{"agent with a dot", "User-agent: foobot.example\nDisallow: /", "foobot", "/x", false},
		{"agent with a letter beyond ASCII", "User-agent: foobotö\nDisallow: /", "foobot", "/x", false},
		{"agent with _ and -", "User-agent: foo_bot-news\nDisallow: /", "Foo_Bot-News/1", "/x", false},
		{"agent with a number after it", "User-agent: foobot\nDisallow: /", "foobot2/1.0", "/x", false},
		{"agent that begins with a digit", "User-agent: 360bot\nDisallow: /", "360bot/1.0", "/x", false},
		{"agent that begins with a digit, and another", "User-agent: 360bot\nDisallow: /", "360spider/1.0", "/x", true},
		{"agent that begins with a digit ends a group", "User-agent: a\nDisallow: /y\nUser-agent: 360bot\nDisallow: /x", "a", "/x", true},
		{"an agent with digits", "User-agent: b12bot\nDisallow: /", "b12bot", "/x", false},
		{"agents after a comma", "User-agent: one, two\nDisallow: /", "two", "/x", false},
		{"agents after a space", "User-agent: one two #three\nDisallow: /", "two", "/x", false},
		{"an agent in a comment", "User-agent: one two #three\nDisallow: /", "three", "/x", true},
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
		{"two bytes of a byte order mark", "\xef\xbbUser-agent: *\nDisallow: /", "a", "/x", false},
		{"one byte of a byte order mark", "\xefUser-agent: *\nDisallow: /", "a", "/x", false},
		{"a byte order mark within", "User-agent: *\n\ufeffDisallow: /", "a", "/x", true},
		{"another byte first", "\xbbUser-agent: *\nDisallow: /", "a", "/x", true},
		{"CR", "User-agent: *\rDisallow: /", "a", "/x", false},
		{"CR LF", "User-agent: *\r\nDisallow: /\r\n", "a", "/x", false},
		{"all ends of lines", "# a\r\nUser-agent: b\nDisallow: /\r\rUser-agent: *\r\nDisallow: /x\n", "a", "/x", false},
		{"blank lines end no group", "User-agent: *\n\n\nDisallow: /", "a", "/x", false},
		{"comments end no group", "User-agent: *\n# a\nDisallow: /", "a", "/x", false},
		{"a comment behind a rule", "User-agent: *\nDisallow: /x # secret", "a", "/xyz", false},
		{"a rule in a comment", "User-agent: *\n#Disallow: /", "a", "/x", true},
		{"no space after the colon", "User-agent:*\nDisallow:/", "a", "/x", false},
		{"space before the colon", "User-agent : *\nDisallow\t: /", "a", "/x", false},
		{"space before the name", " \tUser-agent: *\n  Disallow: /", "a", "/x", false},
		{"a space of Latin-1", "User-agent: *\nDisallow:\u00a0/", "a", "/x", false},
		{"next line of Latin-1 is space", "User-agent: *\nDisallow: \u0085", "a", "/x", true},
		{"no colon", "User-agent *\nDisallow /x", "a", "/x", false},
		{"names in any case", "USER-AGENT: *\ndISALLOW: /", "a", "/x", false},
		{"a known slip of the pen", "Useragent: *\nDisalow: /", "a", "/x", false},
		{"an unknown name", "User-agent: *\nForbid: /", "a", "/x", true},
		{"a line without sense", "User-agent: *\nwhat is this\n\x00\xff\nDisallow: /", "a", "/x", false},
		{"a page of HTML", "<!DOCTYPE html>\n<html><title>a: b</title>\n</html>", "a", "/x", true},
		{"an unknown record between agents", "User-agent: a\nHost: h\nUser-agent: b\nDisallow: /", "a", "/x", false},
		{"Sitemap between agents", "User-agent: a\nSitemap: http://h/s\nUser-agent: b\nDisallow: /", "a", "/x", false},
		{"Sitemap between rules", "User-agent: a\nDisallow: /y\nSitemap: http://h/s\nDisallow: /x", "a", "/x", false},
		{"Crawl-delay between agents", "User-agent: a\nCrawl-delay: 1\nUser-agent: b\nDisallow: /", "a", "/x", false},
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
		{"below nought", "User-agent: *\nCrawl-delay: -1", "a", 0},
		{"a word", "User-agent: *\nCrawl-delay: slow", "a", 0},
		{"infinity", "User-agent: *\nCrawl-delay: inf", "a", 0},
		{"a dot", "User-agent: *\nCrawl-delay: .", "a", 0},
		{"empty", "User-agent: *\nCrawl-delay:", "a", 0},
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
