package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fetchd/cmd/frontier/show"
	"fetchd/cmd/frontier/site"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

const robotsFileText = "User-agent: *\nDisallow: /\nUser-agent: frontier\nDisallow: /p\x1b\nAllow: /page\nCrawl-delay: 5\nSitemap: http://a.test/s\x1b.xml\n"

func TestRobotsCommand(t *testing.T) {
	t.Parallel()
	const unread = "https://a.test/robots.txt\n  fetched      not yet\n"
	const ruled = "  rules        2, of the group \"frontier\"\n  crawl delay  5s\n  size         123 bytes\n  sitemap      http://a.test/s\\x1b.xml\n"
	file := store.Robots{Status: 200, Body: []byte(robotsFileText)}
	away := store.Robots{Status: 503, ErrorClass: "http_server_error", Unreachable: true}
	for _, tt := range []struct {
		name string
		rows []store.Robots
		age  string // SQL that changes the rows
		args []string
		code int
		want string
	}{
		{"never read", nil, "", nil, cli.ExitNothing, unread + "http://a.test/robots.txt\n  fetched      not yet\n"},
		{"a file", []store.Robots{file}, "", nil, 0, unread + "http://a.test/robots.txt\n  fetched      0s ago\n  status       200\n" + ruled},
		{"a file that is old", []store.Robots{file}, `UPDATE robots SET saved_at = saved_at - 90000000`, nil, 0,
			unread + "http://a.test/robots.txt\n  fetched      25h0m0s ago, so it is fetched again before the next URL\n  status       200\n" + ruled},
		{"the group of all", []store.Robots{file}, "", []string{"--user-agent", "other"}, 0, unread + "http://a.test/robots.txt\n  fetched      0s ago\n  status       200\n" +
			"  rules        1, of the group for all crawlers (\"*\")\n  crawl delay  none\n  size         123 bytes\n  sitemap      http://a.test/s\\x1b.xml\n"},
		{"no group", []store.Robots{{Status: 200, Body: []byte("User-agent: a\nDisallow: /")}}, "", nil, 0, unread + "http://a.test/robots.txt\n  fetched      0s ago\n" +
			"  status       200\n  rules        none: no group applies to this crawler\n  crawl delay  none\n  size         25 bytes\n"},
		{"no file", []store.Robots{{Status: 404}}, "", nil, 0, unread + "http://a.test/robots.txt\n  fetched      0s ago\n  status       404\n  rules        none: everything is allowed\n"},
		{"unreachable", []store.Robots{away}, `UPDATE robots SET unreachable_since = unreachable_since - 60000`, nil, 0, unread + "http://a.test/robots.txt\n" +
			"  fetched      0s ago, so it is fetched again before the next URL\n  status       503\n  unreachable  for 1m0s: http_server_error\n"},
		{"unreachable after a file", []store.Robots{file, away}, `UPDATE robots SET unreachable_since = unreachable_since - 60000`, nil, 0, unread + "http://a.test/robots.txt\n" +
			"  fetched      0s ago, so it is fetched again before the next URL\n  status       503\n  unreachable  for 1m0s: http_server_error\n" +
			strings.Replace(ruled, `"frontier"`, `"frontier" of the last file; they apply after 30 days`, 1)},
		{"to be fetched again", []store.Robots{file}, "", []string{"--refresh"}, 0, unread + "http://a.test/robots.txt\n  fetched      again by the next worker that needs it\n"},
		{"URLs", []store.Robots{file}, "", []string{"--url", "http://A.test:80/page?x#y", "--url", "http://a.test/p%1B", "--url", "http://a.test/", "--url", "https://a.test/"}, 0,
			unread + "http://a.test/robots.txt\n  fetched      0s ago\n  status       200\n" + ruled +
				"http://a.test/page?x\n  allowed      allowed by line 5, Allow: /page (read 0s ago)\n" +
				"http://a.test/p%1B\n  forbidden    line 4, Disallow: /p\\x1b (read 0s ago)\n" +
				"http://a.test/\n  allowed      no line matches it (read 0s ago)\n" +
				"https://a.test/\n  not known    not read yet\n"},
		{"a URL while unreachable", []store.Robots{away}, `UPDATE robots SET unreachable_since = unreachable_since - 60000`, []string{"--url", "http://a.test/"}, 0,
			unread + "http://a.test/robots.txt\n  fetched      0s ago, so it is fetched again before the next URL\n  status       503\n  unreachable  for 1m0s: http_server_error\n" +
				"http://a.test/\n  waits        unreachable for 1m0s: http_server_error (tried 0s ago)\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCrawl(t, page)
			c.t = t
			for _, r := range tt.rows {
				c.robots(r)
			}
			if tt.age != "" {
				c.exec(tt.age)
			}
			got := c.cli(append([]string{"robots", "http://a.test/any"}, tt.args...)...)
			size := regexp.MustCompile(`size         \d+`)
			text := regexp.MustCompile(`\b(1m|25h0m)?\d+s( ago|:)`).ReplaceAllString(got.out, "${1}0s$2") // however slow the machine is
			if strings.Contains(tt.want, "123 bytes") {
				text = size.ReplaceAllString(text, "size         123")
			}
			if got.code != tt.code {
				t.Errorf("exit status %d, %q, want %d", got.code, got.err, tt.code)
			}
			diff(t, "robots", tt.want, text)
		})
	}
}

func TestRobotsCommandJSON(t *testing.T) {
	t.Parallel()
	c := newCrawl(t, page)
	c.robots(store.Robots{Status: 200, Body: []byte(robotsFileText)})
	var got show.RobotsReport
	must(t, json.Unmarshal([]byte(c.must("robots", "--json", "--url", page, "a.test")), &got))
	if len(got.Files) != 2 || len(got.URLs) != 1 {
		t.Fatalf("%+v, want two files and one URL", got)
	}
	if f := got.Files[0]; f.Origin != "https://a.test" || f.Known {
		t.Errorf("%+v, want nothing known about https", f)
	}
	f := got.Files[1]
	if f.Origin != "http://a.test" || !f.Known || !f.Fresh || f.Group != "frontier" || f.Rules != 2 || f.CrawlDelayMS != 5000 || f.Size != len(robotsFileText) || len(f.Sitemaps) != 1 {
		t.Errorf("%+v, want the rules for frontier", f)
	}
	if u := got.URLs[0]; u.URL != page || !u.Allowed || u.Line != 5 {
		t.Errorf("%+v, want it allowed by line 5", u)
	}
}

func TestRobotsCommandRefused(t *testing.T) {
	t.Parallel()
	c := newCrawl(t, page)
	for _, tt := range []struct {
		name string
		args []string
		code int
		told string
	}{
		{"no host", []string{"a/b"}, cli.ExitUsage, `HOST: "a/b" is not a host`},
		{"no URL", []string{"a.test", "--url", "/page"}, cli.ExitUsage, "--url: "},
		{"a URL of another host", []string{"a.test", "--url", "http://b.test/"}, cli.ExitUsage, `--url: "http://b.test/" is not a URL of a.test: give one of this host`},
		{"a URL of another port", []string{"a.test", "--url", "http://a.test:8080/"}, cli.ExitUsage, `--url: "http://a.test:8080/" is not a URL of a.test`},
	} {
		if got := c.cli(append([]string{"robots"}, tt.args...)...); got.code != tt.code || !strings.HasPrefix(got.err, "frontier: "+tt.told) {
			t.Errorf("%s: exit status %d, %q, want %d and %q", tt.name, got.code, got.err, tt.code, tt.told)
		}
	}
	if got := c.cli("robots", "other.test"); got.code != cli.ExitNothing || !strings.HasSuffix(got.out, "The frontier has no URL of other.test.\n") {
		t.Errorf("an unknown host: exit status %d, %q, want %d and that it is unknown", got.code, got.out, cli.ExitNothing)
	}
}

// TestRobotsRefresh checks that a run fetches a file again after --refresh, and obeys the new one.
func TestRobotsRefresh(t *testing.T) {
	t.Parallel()
	text := make(chan string, 1)
	text <- "User-agent: *\nAllow: /\n"
	s := startSite(t, site.Config{Robots: func(string) (int, string) {
		select {
		case now := <-text:
			return 200, now
		default:
			return 500, ""
		}
	}})
	c := &fixture{t, filepath.Join(t.TempDir(), "frontier.db")}
	c.must("add", at(s, "/p/1"))
	c.run(inside(s.Port()))
	text <- "User-agent: *\nDisallow: /\n"
	c.must("add", at(s, "/p/2"))
	if got := c.run(inside(s.Port())); got.code != cli.ExitOK {
		t.Errorf("before --refresh: exit status %d, %q, want 0", got.code, got.err)
	}
	c.must("robots", "127.0.0.1:"+strconv.Itoa(s.Port()), "--refresh")
	c.must("add", at(s, "/p/3"))
	if got := c.run(inside(s.Port())); got.code != cli.ExitNothing || !strings.Contains(got.err, "1 disallowed by robots.txt") {
		t.Errorf("after --refresh: exit status %d, %q, want %d and 1 disallowed", got.code, got.err, cli.ExitNothing)
	}
}
