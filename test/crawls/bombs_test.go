//go:build linux

package crawls

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/test/rig"
)

// bombPages serves pages that cost a crawler much: an endless calendar, a million links, URLs of 500 KiB,
// sitemap indexes without an end, and a sitemap that decompresses to 500 MiB.
func bombPages() func(host, target string) site.Page {
	var many, zipped bytes.Buffer
	for n := range 1_000_000 {
		write(&many, "<a href=/x/m/%d>", n)
	}
	z := gzip.NewWriter(&zipped)
	write(z, "<urlset><url><loc>http://else.test/</loc></url>")
	for spaces := bytes.Repeat([]byte(" "), 1<<20); zipped.Len() < 500<<10; {
		_, _ = z.Write(spaces)
	}
	_ = z.Close()
	long := strings.Repeat("x", 500<<10)
	return func(_, target string) site.Page {
		html := func(body string) site.Page { return site.Page{Type: "text/html", Body: body} }
		first, rest, _ := strings.Cut(strings.TrimPrefix(target, "/x/"), "/")
		n, _ := strconv.Atoi(rest)
		switch first {
		case "start":
			return html("<a href=/x/cal/1><a href=/x/million/1><a href=/x/long/1>")
		case "cal":
			return html(fmt.Sprintf("<a href=/x/cal/%d><a href=/x/cal/%d>", 2*n, 2*n+1))
		case "million":
			return html(fmt.Sprintf("<a href=/x/million/%d>", n+1) + many.String())
		case "long":
			return html(fmt.Sprintf("<a href=/x/long/%d><a href=/x/a%s><a href=/x/b%s>", n+1, long, long))
		case "index":
			return site.Page{Type: "application/xml", Body: fmt.Sprintf("<sitemapindex><sitemap><loc>http://else.test/</loc></sitemap><sitemap><loc>/x/index/%d</loc></sitemap></sitemapindex>", n+1)}
		case "gzip":
			return site.Page{Type: "application/gzip", Body: zipped.String()}
		}
		return html("x")
	}
}

// TestDiscoveryBombs checks that pages that cost much do not increase the memory of a worker, and that
// the crawl ends by its budgets and says what they left out.
func TestDiscoveryBombs(t *testing.T) {
	ctx := rig.Long(t, limit)
	const peak = 300 << 10 // KiB
	s := rig.Site(t, site.Config{Page: bombPages(), Robots: func(string) (int, string) {
		return 200, "Sitemap: /x/index/1\nSitemap: /x/gzip/1\n"
	}})
	c := &crawl{T: t, ctx: ctx, site: s, dsn: filepath.Join(t.TempDir(), "frontier.db")}
	address := rig.FreeAddress(t, "127.0.0.1")
	c.service(address)
	args := []string{"crawl", "--db", c.dsn, "--delay", "1ms", "-q", "--server", address, "--max-urls-per-host", "30", "--max-body-bytes", "67108864"}
	for n := range rig.Pick("FETCHD_CRAWLS", 4, 20) {
		args = append(args, s.URL(fmt.Sprintf("h%d", n), "/x/start"))
	}
	started := time.Now()
	w := start(t, "frontier crawl", "frontier", args...)
	memory := 0
	for running := true; running; {
		select {
		case <-w.Gone:
			running = false
		case <-time.After(50 * time.Millisecond):
			if _, peak, err := w.Resident(); err == nil {
				memory = int(peak >> 10)
			}
		}
	}
	w.exits(ctx, 0)
	text := w.log.String()
	for _, want := range []string{"--max-urls-per-host: left out ", "10,000 links of a page: left out links of ", " too long", "bad_sitemap: ", " completed"} {
		if !strings.Contains(text, want) {
			t.Errorf("the end of the crawl does not say %q:\n%s", want, text)
		}
	}
	if memory > peak {
		t.Errorf("peak of %d KiB, want at most %d", memory, peak)
	}
	t.Logf("%d requests in %.1f s, peak %d KiB:\n%s", s.Count(), time.Since(started).Seconds(), memory, text)
}

// searchBombs serves pages that are expensive to search for links, on hosts bombN, and short ones.
func searchBombs() func(host, target string) site.Page {
	numbered := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			write(&b, format, i)
		}
		return b.String()
	}
	deep := `<base href="` + strings.Repeat("/bbbbbbbbbbbbbb", 500) + `/">`
	bombs := []string{
		deep + strings.Repeat(`<a href=?>`, 4300),
		deep + numbered(`<a href=?%%%04x>`, 4300),
		"<p " + numbered("a%d ", 20_000) + ">" + strings.Repeat("<p a>", 20_000),
		numbered("<a href=//%d."+strings.Repeat("ü", 400)+"/>", 500),
	}
	return func(host, target string) site.Page {
		path, number, _ := strings.Cut(strings.TrimPrefix(target, "/x/"), "/")
		n, _ := strconv.Atoi(number)
		body := fmt.Sprintf("<a href=/x/%s/%d><a href=/x/%s/%d>", path, 2*n+1, path, 2*n+2)
		if strings.HasPrefix(host, "bomb") {
			body += bombs[n%len(bombs)]
		}
		return site.Page{Type: "text/html", Body: body}
	}
}

// TestSearchBombs checks that hosts with pages that are expensive to search leave the others their
// share, and do not delay the end of the worker. The CPU time of the worker is compared, because the
// machine may be busy.
func TestSearchBombs(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, limit)
	const hosts, pages, bombs = 8, 25, 64
	most := time.Minute // of CPU time; one such page took 10 s
	c := newCrawlOf(ctx, t, filepath.Join(t.TempDir(), "frontier.db"), 1, site.Config{Page: searchBombs(), Robots: func(string) (int, string) { return 404, "" }})
	s := c.site
	args := []string{"--drain-time", "1s", "--scope", "host"}
	for n := range hosts {
		args = append(args, s.URL(fmt.Sprintf("good%d", n), "/x/p/0"))
	}
	for n := range bombs {
		args = append(args, s.URL(fmt.Sprintf("bomb%d", n), "/x/p/0"))
	}
	w := c.worker(args...)
	rig.Until(ctx, t, "the good hosts have their pages", func() bool {
		visits := make(map[string]int)
		for _, v := range s.Visits() {
			if strings.HasPrefix(v.Host, "good") {
				visits[v.Host]++
			}
		}
		done := 0
		for _, n := range visits {
			if n >= pages {
				done++
			}
		}
		return done == hosts
	})
	w.Signal(syscall.SIGTERM)
	w.exits(ctx, 130)
	used := w.State.UserTime() + w.State.SystemTime()
	t.Logf("%d requests, %v of CPU time", s.Count(), used)
	if used > most {
		t.Errorf("%v of CPU time, want at most %v", used, most)
	}
	for _, query := range []string{`SELECT count(*) FROM urls WHERE status NOT IN ('pending', 'fetched', 'dead')`, `SELECT count(*) FROM hosts WHERE in_flight <> 0`} {
		if n := c.count(query); n != 0 {
			t.Errorf("%s: %d, want none", query, n)
		}
	}
}
