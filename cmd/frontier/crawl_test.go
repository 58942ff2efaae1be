package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"fetchd/cmd/frontier/crawl"
	"fetchd/cmd/frontier/site"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// endless is the number of pages of a calendar.
const endless = 1 << 30

// linked serves n pages, each with a link to the next.
func linked(t *testing.T, n int) *site.Site {
	t.Helper()
	return startSite(t, site.Config{Page: func(_, target string) site.Page {
		var i int
		if _, err := fmt.Sscanf(target, "/x/%d", &i); err != nil || i >= n {
			return site.Page{}
		}
		return site.Page{Type: "text/html", Header: map[string]string{"ETag": `"1"`}, Body: fmt.Sprintf(`<a href=/x/%d>next</a><a href="http://other.test/">other</a>%s`, i+1, strings.Repeat(" ", 1000))}
	}})
}

func (c *fixture) crawl(s *site.Site, args ...string) result {
	c.t.Helper()
	return c.cli(append(append([]string{"crawl"}, inside(s.Port())...), args...)...)
}

func TestCrawl(t *testing.T) {
	t.Parallel()
	s := linked(t, 5)
	c := newCrawl(t)
	got := c.crawl(s, "-q", at(s, "/x/0"))
	if got.code != cli.ExitOK {
		t.Fatalf("%+v", got)
	}
	diff(t, "statuses", fmt.Sprint(map[string]int{"fetched": 5, "dead http_client_error": 1}), fmt.Sprint(c.statuses()))
	for _, want := range []string{"10 links found, 5 added, 5 out of scope; ", "5 completed, 1 failed"} {
		if !strings.Contains(got.err, want) {
			t.Errorf("%q does not contain %q", got.err, want)
		}
	}
}

// TestCrawlOfWhatIsDone checks that a crawl says why it does not fetch a URL that it was given.
func TestCrawlOfWhatIsDone(t *testing.T) {
	t.Parallel()
	s := linked(t, 1)
	c := newCrawl(t)
	if got := c.crawl(s, "-q", at(s, "/x/0")); strings.Contains(got.err, "fetched already") {
		t.Errorf("a new URL: %s", got.err)
	}
	got := c.crawl(s, "-q", at(s, "/x/0"), at(s, "/x/1"), at(s, "/x/2"))
	for _, want := range []string{"/x/0: It was fetched already, ", "/x/1: It failed for good (http_client_error): ", "\"frontier retry --fetched-before 0s\" has pages fetched again\n"} {
		if !strings.Contains(got.err, want) {
			t.Errorf("%q does not contain %q", got.err, want)
		}
	}
	if strings.Contains(got.err, "/x/2: ") {
		t.Errorf("a URL that is fetched now: %s", got.err)
	}
}

// TestFirstCrawlOfWhatIsDone checks that a crawl says what a robots.txt said that it then reads again.
func TestFirstCrawlOfWhatIsDone(t *testing.T) {
	t.Parallel()
	s := startSite(t, site.Config{Robots: func(string) (int, string) { return 200, "User-agent: *\nDisallow: /x\n" }})
	c := newCrawl(t)
	c.add(at(s, "/x/1")+"\n", "-i", "-")
	c.run(inside(s.Port()), "-q")
	got := c.crawl(s, "-q", at(s, "/x/1"))
	if want := "/x/1: It failed for good (robots_disallowed); robots.txt: line 2, Disallow: /x (read "; !strings.Contains(got.err, want) {
		t.Errorf("%q does not contain %q", got.err, want)
	}
}

// TestCrawlTime checks that a crawl continues after its time was used up.
func TestCrawlTime(t *testing.T) {
	t.Parallel()
	s := linked(t, 5)
	c := newCrawl(t)
	got := c.crawl(s, "-q", "--max-time", "1ms", at(s, "/x/0"))
	if want := "\"frontier crawl\" continues for as long again, or for longer with a larger --max-time than 1ms.\n"; !strings.Contains(got.err, want) || strings.Contains(got.err, "--max-bytes") {
		t.Errorf("%q, want %q", got.err, want)
	}
	c.crawl(s, "-q", "--max-time", "1h")
	diff(t, "statuses", fmt.Sprint(map[string]int{"fetched": 5, "dead http_client_error": 1}), fmt.Sprint(c.statuses()))
}

// TestCrawlOfAList checks that the links of URLs that were only added are not followed, before a crawl is started.
func TestCrawlOfAList(t *testing.T) {
	t.Parallel()
	s := linked(t, 5)
	c := newCrawl(t, at(s, "/x/2"))
	if got := c.crawl(s, "-q", "--max-bytes", "100000"); got.code != cli.ExitOK || strings.Contains(got.err, "links found") {
		t.Errorf("%+v", got)
	}
	diff(t, "statuses", fmt.Sprint(map[string]int{"fetched": 1}), fmt.Sprint(c.statuses()))
	if got := c.crawl(s, "--max-depth", "3"); got.code != cli.ExitUsage || !strings.Contains(got.err, "--max-depth: is about links, and those of URLs that were only added are not followed") {
		t.Errorf("%+v", got)
	}
	c.crawl(s, "-q", at(s, "/x/0")) // finds the page that is fetched already
	diff(t, "statuses", fmt.Sprint(map[string]int{"fetched": 3}), fmt.Sprint(c.statuses()))
}

// TestServiceJoinsACrawl checks that a worker without links follows those of a crawl that starts while it waits.
func TestServiceJoinsACrawl(t *testing.T) {
	t.Parallel()
	s := linked(t, 5)
	c := newCrawl(t, at(s, "/p/1"))
	b := c.start(append(inside(s.Port()), "--endless", "--outcomes", "-")...)
	b.out.until(t, "{")
	c.store(func(st store.Store) error {
		_, _, err := crawl.Update(t.Context(), st, &crawl.Plan{Seeds: []string{at(s, "/x/0")}}, nil)
		return errors.Join(err, crawl.Put(t.Context(), st, []string{at(s, "/x/0")}))
	})
	b.err.until(t, "A crawl was started in this database")
	for range 6 {
		b.out.until(t, "{")
	}
	b.end(cli.ExitInterrupted)
	diff(t, "statuses", fmt.Sprint(map[string]int{"fetched": 6, "dead http_client_error": 1}), fmt.Sprint(c.statuses()))
}

func TestCrawlBytes(t *testing.T) {
	t.Parallel()
	s := linked(t, 50)
	c := newCrawl(t)
	got := c.crawl(s, "-q", "--max-bytes", "5000", "--open", "1", at(s, "/x/0"))
	if got.code != cli.ExitOK || !strings.Contains(got.err, "a budget is used up: 5000 bytes. The URLs that are left stay pending: \"frontier crawl\" continues with a larger --max-bytes than 5000.\n") {
		t.Fatalf("%+v", got)
	}
	if n := c.statuses()["fetched"]; n != 5 {
		t.Errorf("%d pages of 1 kB, want 5", n)
	}
	if n := c.statuses()["pending"]; n != 1 {
		t.Errorf("%d URLs pending, want 1", n)
	}
	if status := c.cli("status"); !strings.Contains(status.out, "a budget is used up: 5000 bytes") {
		t.Errorf("status: %s", status.out)
	}
	if got := c.crawl(s, "-q", "--max-bytes", "1000000"); got.code != cli.ExitOK || c.statuses()["fetched"] != 50 {
		t.Errorf("%+v, %v", got, c.statuses())
	}
	if status := c.cli("status"); strings.Contains(status.out, "budget") {
		t.Errorf("status: %s", status.out)
	}
}

// TestCrawlHostBudget checks that a host over its budget is given up, and that retry undoes it.
func TestCrawlHostBudget(t *testing.T) {
	t.Parallel()
	s := linked(t, endless)
	c := newCrawl(t)
	got := c.crawl(s, "-q", "--max-bytes-per-host", "5000", "--open", "1", at(s, "/x/0"))
	diff(t, "statuses", fmt.Sprint(map[string]int{"fetched": 5, "dead over_budget": 1}), fmt.Sprint(c.statuses()))
	if !strings.Contains(got.err, "over_budget: 1 failed: the host has used up --max-bytes-per-host") {
		t.Errorf("%+v", got)
	}
	const left = "--max-bytes-per-host: left out 1 URL\n"
	if status := c.must("status"); !strings.Contains(status, left) {
		t.Errorf("status: %q, want %q", status, left)
	}
	if got := c.cli("retry", "--class", "over_budget"); got.code != cli.ExitOK {
		t.Errorf("%+v", got)
	}
	if status := c.must("status"); strings.Contains(status, "left out") {
		t.Errorf("status after a retry: %q", status)
	}
	c.crawl(s, "-q", "--max-bytes-per-host", "10000", "--open", "1")
	if n := c.statuses()["fetched"]; n != 10 {
		t.Errorf("%d pages of 1 kB, want 10", n)
	}
}

func TestCrawlURLs(t *testing.T) {
	t.Parallel()
	s := linked(t, endless)
	c := newCrawl(t)
	got := c.crawl(s, "-q", "--max-urls", "7", at(s, "/x/0"))
	diff(t, "statuses", fmt.Sprint(map[string]int{"fetched": 7}), fmt.Sprint(c.statuses()))
	if !strings.Contains(got.err, "--max-urls: left out 1 link\n") || strings.Contains(got.err, "frontier retry") {
		t.Errorf("%+v", got)
	}
	got = c.crawl(s, "-q", "--max-urls", "9")
	diff(t, "statuses", fmt.Sprint(map[string]int{"fetched": 7}), fmt.Sprint(c.statuses()))
	if want := "--max-urls: left out 1 link\nPages that were fetched before are not searched again. To find the links that were left out, run \"frontier retry --fetched-before 0s\", then \"frontier crawl\".\n"; !strings.Contains(got.err, want) {
		t.Errorf("%q does not contain %q", got.err, want)
	}
	check := func(want string) {
		t.Helper()
		if got := c.must("status"); strings.Contains(got, "--max-urls") != (want != "") || !strings.Contains(got, want) {
			t.Errorf("status: %q, want %q", got, want)
		}
	}
	check("--max-urls: left out 1 link\n") // by the run before
	c.must("retry", "--fetched-before", "0s")
	check("")
	c.crawl(s, "-q")
	diff(t, "statuses", fmt.Sprint(map[string]int{"fetched": 9}), fmt.Sprint(c.statuses()))
	c.crawl(s, "-q", at(s, "/x/100")) // a URL that the user gives is added
	diff(t, "statuses", fmt.Sprint(map[string]int{"fetched": 10}), fmt.Sprint(c.statuses()))
	check("--max-urls: left out 2 links\n") // of two runs
}

// TestCrawlFull checks that a crawl with another scope finds the links that were left out of pages which
// have not changed.
func TestCrawlFull(t *testing.T) {
	t.Parallel()
	s := linked(t, 5)
	c := newCrawl(t)
	c.crawl(s, "-q", "--exclude", "/x/2", at(s, "/x/0"))
	diff(t, "statuses", fmt.Sprint(map[string]int{"fetched": 2}), fmt.Sprint(c.statuses()))
	got := c.crawl(s, "-q", "--exclude", "/x/3")
	if want := `run "frontier retry --fetched-before 0s", then "frontier crawl --full".`; !strings.Contains(got.err, want) {
		t.Errorf("%q does not contain %q", got.err, want)
	}
	for _, row := range []struct {
		flags []string
		want  int
	}{{nil, 2}, {[]string{"--full"}, 3}} { // 304 without --full
		c.must("retry", "--fetched-before", "0s")
		c.crawl(s, append([]string{"-q"}, row.flags...)...)
		diff(t, fmt.Sprintf("statuses after %q", row.flags), fmt.Sprint(map[string]int{"fetched": row.want}), fmt.Sprint(c.statuses()))
	}
}

func TestCrawlUsage(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, args, want string }{
		{"a scope", "--scope site http://a.test/", "--scope: unknown scope"},
		{"a pattern", "--include ( http://a.test/", "--include: "},
		{"a depth", "--max-depth=-1 http://a.test/", "--max-depth: "},
		{"no URL", "a.test", "URL: "},
		{"the demo", "--demo http://a.test/", "--demo"},
		{"a flag of run", "--open 0 http://a.test/", "--open"},
	} {
		c := newCrawl(t)
		got := c.cli(append([]string{"crawl"}, strings.Fields(row.args)...)...)
		if got.code == cli.ExitOK || !strings.Contains(got.err, row.want) {
			t.Errorf("%s: %+v", row.name, got)
		}
	}
}
