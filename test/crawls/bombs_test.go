//go:build linux

package crawls

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"fetchd/internal/site"
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
	args := []string{"crawl", "--db", c.dsn, "--delay", "1ms", "-q", "--server", address, "--max-urls-per-host", "30", "--truncate-bodies"}
	for n := range sized(20, 4) {
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
	for _, want := range []string{"--max-urls-per-host: left out ", "--max-links: left out links of ", " too long", "bad_sitemap: ", " completed"} {
		if !strings.Contains(text, want) {
			t.Errorf("the end of the crawl does not say %q:\n%s", want, text)
		}
	}
	if memory > peak {
		t.Errorf("peak of %d KiB, want at most %d", memory, peak)
	}
	t.Logf("%d requests in %.1f s, peak %d KiB:\n%s", s.Count(), time.Since(started).Seconds(), memory, text)
}
