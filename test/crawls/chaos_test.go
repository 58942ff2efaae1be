//go:build linux

package crawls

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/test/need"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

// web is pages of several hosts that link to each other. Page n links to pages 2n+1 and 2n+2, so that all
// are found from page 0, to pages that were found before, and to one that robots.txt forbids. One of some
// pages has two redirects to one URL of another host. The last pages are only in a sitemap.
type web struct {
	hosts, pages, listed int
	some                 int // one of how many pages has redirects
	at                   func(host, path string) string
}

const sitemapPath = "/x/sitemap.xml"

func (w *web) host(n int) string { return fmt.Sprintf("h%d", n*7%w.hosts) }

func (w *web) url(n int) string { return w.at(w.host(n), fmt.Sprintf("/x/%d", n)) }

// redirected returns the number of URLs that only redirects lead to.
func (w *web) redirected() int { return (w.pages + w.some - 1) / w.some }

// next returns the pages that are found on page n.
func (w *web) next(n int) (urls []string) {
	for to := 2*n + 1; to <= 2*n+2 && to < w.pages; to++ {
		urls = append(urls, w.url(to))
	}
	return urls
}

// redirects returns the redirects that page n links to.
func (w *web) redirects(n int) []string {
	if n%w.some > 0 || n >= w.pages {
		return nil
	}
	path := fmt.Sprintf("/go/302/%d?to=%s", n, url.QueryEscape(w.at(w.host(n+3), fmt.Sprintf("/x/%d?via=r", n))))
	return []string{w.at(w.host(n+1), path), w.at(w.host(n+2), path)}
}

func (w *web) robots(string) (int, string) {
	return 200, "User-agent: *\nDisallow: /p/\nSitemap: " + w.at(w.host(0), sitemapPath) + "\n"
}

// page is [site.Config.Page].
func (w *web) page(_, target string) site.Page {
	var b strings.Builder
	if target == sitemapPath {
		for n := range w.listed {
			fmt.Fprintf(&b, "<url><loc>%s</loc></url>", w.url(w.pages+n))
		}
		return site.Page{Type: "application/xml", Body: `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">` + b.String() + `</urlset>`}
	}
	var n int
	if _, err := fmt.Sscanf(target, "/x/%d", &n); err != nil || n >= w.pages+w.listed {
		return site.Page{}
	}
	links := append(w.redirects(n), w.url(n/2), w.at(w.host(n), "/p/1"))
	links = append(links, w.next(n)...)
	for _, to := range links {
		fmt.Fprintf(&b, "<a href=\"%s\">link</a>\n", strings.ReplaceAll(to, "&", "&amp;"))
	}
	p := site.Page{Type: "text/html", Body: b.String() + strings.Repeat(target+" ", 50)}
	if n%2 == 0 {
		p.Header = map[string]string{"ETag": fmt.Sprintf("%q", target)}
	}
	return p
}

// asked checks that the site was asked for each of its URLs, and not for what robots.txt forbids.
func (w *web) asked(t *testing.T, visits []site.Visit) {
	t.Helper()
	missing := map[string]bool{}
	for n := range w.pages + w.listed {
		for _, text := range append(w.redirects(n), w.url(n)) {
			u, err := url.Parse(text)
			must(t, err)
			missing[u.Hostname()+u.RequestURI()] = true
		}
	}
	for _, v := range visits {
		delete(missing, v.Host+v.Path)
		if strings.HasPrefix(v.Path, "/p/") {
			t.Errorf("a request for %s, which robots.txt forbids", v.Path)
		}
	}
	if len(missing) > 0 {
		t.Errorf("%d URLs were never requested: %v", len(missing), slices.Sorted(maps.Keys(missing)))
	}
}

// wrapper runs the example with a resolver for the names of the site, whose name server it does not
// know.
const wrapper = `import runpy, socket, sys
real = socket.getaddrinfo
socket.getaddrinfo = lambda host, *more, **named: real("127.0.0.1" if host.endswith(".test") else host, *more, **named)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
`

// client returns a function that starts a Python program which crawls through the API of frontier serve.
func (c *crawl) client(address string) func() *process {
	c.Helper()
	python := "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		python = need.Program(c, "python3", "python3")
	}
	script := filepath.Join(c.dir, "client.py")
	must(c, os.WriteFile(script, []byte(wrapper), 0o600))
	return func() *process {
		return start(c.T, "crawl.py", python, script, "../../client/examples/crawl.py", "--api", "http://"+address, "--name", "client", "--threads", "8",
			"--delay", fmt.Sprint(delay.Seconds()), "--lease", "10", "--recrawl", "2", "--any-host", "--quiet")
	}
}

// serve starts a frontier serve and waits until it serves.
func (c *crawl) serve(address string) *process {
	c.Helper()
	p := start(c.T, "frontier serve", "frontier", "serve", "--db", c.dsn, "--delay", delay.String(), "--grpc-addr", "127.0.0.1:0", "--http-addr", address)
	p.wrote(c.ctx, `"msg":"serving"`)
	return p
}

// victim is a part of a crawl that is killed and started again.
type victim struct {
	name        string
	kill, start func()
	process     **process // nil for a database, a disk and a bucket
}

// everything starts two fetchds, a frontier serve, two runs of frontier crawl with more flags, and
// two programs that use the API. A third of the kills stop the program in order instead. stop ends those
// that crawl.
func (c *crawl) everything(seed string, flags ...string) (victims []victim, stop func()) {
	c.Helper()
	var crawlers []**process
	run := func(name string, start func() *process) **process {
		p := start()
		kill := func() {
			if rand.IntN(3) > 0 {
				p.kill()
				p.exits(c.ctx, -1)
				return
			}
			p.Signal(syscall.SIGTERM)
			if _, err := p.ExitCode(c.ctx); err != nil {
				c.Fatalf("%s: %v", p.name, err)
			}
		}
		victims = append(victims, victim{name, kill, func() { p = start() }, &p})
		return &p
	}
	for range 2 {
		address := rig.FreeAddress(c.T, "127.0.0.1")
		c.services = append(c.services, *run("fetchd", func() *process { return c.service(address) }))
	}
	api := rig.FreeAddress(c.T, "127.0.0.1")
	run("frontier serve", func() *process { return c.serve(api) })
	client := c.client(api)
	for range 2 {
		crawlers = append(crawlers, run("crawl.py", client), run("frontier crawl", func() *process {
			args := append(slices.Clone(flags), "--scope", "domain", "--open", "8", "--recrawl", "2s", seed)
			return c.worker(args...)
		}))
	}
	return victims, func() {
		for _, p := range crawlers {
			(*p).Signal(syscall.SIGTERM)
		}
		for _, p := range crawlers {
			<-(*p).Gone
		}
	}
}

// unkept matches what a worker logs about an outcome or a body that it cannot write.
var unkept = regexp.MustCompile(`cannot keep a body|no space left on device|disk is full`)

// fault causes a fault and waits until a worker has met it.
func (c *crawl) fault(cause func()) {
	c.Helper()
	met := func() (n int) {
		for _, w := range c.workers {
			n += len(unkept.FindAllString(w.log.String(), -1))
		}
		return n
	}
	before := met()
	cause()
	rig.Until(c.ctx, c.T, "a worker has met the fault", func() bool { return met() > before })
}

// linked checks that the links of each page that was recorded are in the frontier. Later they may be found
// when the page is fetched again.
func (w *web) linked(c *crawl) {
	c.Helper()
	fetched := texts(c.ctx, c.T, c.db, `SELECT url FROM urls WHERE fetched_at > 0`) // first: links are stored before the outcome
	found := texts(c.ctx, c.T, c.db, `SELECT url FROM urls`)
	for n := range w.pages {
		for _, u := range w.next(n) {
			if fetched[w.url(n)] && !found[u] {
				c.Errorf("page %d was recorded without its link to %s", n, u)
			}
		}
	}
}

// texts returns the texts that a query selects.
func texts(ctx context.Context, t *testing.T, db *sql.DB, query string) map[string]bool {
	t.Helper()
	rows, err := db.QueryContext(ctx, query)
	must(t, err)
	defer rows.Close()
	found := map[string]bool{}
	for rows.Next() {
		var text string
		must(t, rows.Scan(&text))
		found[text] = true
	}
	must(t, rows.Err())
	return found
}

// kill kills all victims in a random order, one or two at a time, with requests in between. It returns
// their names.
func (c *crawl) kill(w *web, victims []victim) (killed []string) {
	c.Helper()
	for order := rand.Perm(len(victims)); len(order) > 0; {
		now := order[:min(1+rand.IntN(2), len(order))]
		order = order[len(now):]
		c.requests(c.site.Count() + w.pages/4)
		for _, i := range now {
			victims[i].kill()
			killed = append(killed, victims[i].name)
		}
		slices.Sort(now) // a database, a disk or a bucket is the first to start
		for _, i := range now {
			victims[i].start()
		}
		w.linked(c)
	}
	return killed
}

// twice waits until each page was fetched two more times.
func (c *crawl) twice(pages int) {
	c.Helper()
	query := fmt.Sprintf(`SELECT count(*) FROM (SELECT f.url_id FROM fetches f JOIN urls u ON u.id = f.url_id WHERE f.ended_at > %d AND f.status = 'fetched'
		AND u.url LIKE '%%/x/%%' AND u.kind = 0 GROUP BY f.url_id HAVING count(*) >= 2) AS x`, c.count(`SELECT COALESCE(max(ended_at), 0) FROM fetches`))
	got := 0
	if err := wait.Until(c.ctx, 300*time.Millisecond, func() bool { got = c.count(query); return got >= pages }); err != nil {
		c.Errorf("%d of %d pages were fetched again twice: %v", got, pages, err)
	}
}

// TestChaos crawls a site with everything at once: two runs of frontier crawl find links and fetch pages again, and
// two programs do the same through frontier serve. These, two fetchds, the service and the database are killed in a
// random order and started again. In some rows a disk is full or a bucket is down in between. Every page is found and fetched again, none is recorded twice for one time,
// and no host receives a request too early.
func TestChaos(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name                                string
		server, pgBouncer, fullDisk, bucket bool
	}{
		{name: "SQLite"},
		{name: "PostgreSQL", server: true},
		{name: "PgBouncer", server: true, pgBouncer: true},
		{name: "full disk", fullDisk: true},
		{name: "bucket down", server: true, bucket: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			if (row.pgBouncer || row.fullDisk || row.bucket) && !all() {
				need.Request(t, "run .ci/run crawls-all", "it runs only in the long form")
			}
			ctx := long(t)
			var server *postgres
			var victims []victim
			var flags []string
			dir := t.TempDir()
			if row.fullDisk {
				dir = need.SmallDisk(t, "size=32m")
			}
			dsn := filepath.Join(dir, "frontier.db")
			if row.server {
				server = newPostgres(t)
				dsn = server.dsn()
			}
			var c *crawl
			w := &web{hosts: 40, pages: rig.Pick("FETCHD_CRAWLS", 200, 600), listed: 20, some: 8, at: func(host, path string) string { return c.site.URL(host, path) }}
			c = newCrawlOf(ctx, t, dsn, 0, site.Config{Page: w.page, Robots: w.robots})
			bodies := filepath.Join(c.dir, "bodies")
			if row.pgBouncer {
				c.dsn = server.bouncer()
			}
			if row.server {
				victims = append(victims, victim{name: "PostgreSQL", kill: server.kill, start: func() { server.restart(c.dsn) }})
			}
			if row.fullDisk {
				bodies = filepath.Join(dir, "bodies")
				flags = []string{"--bodies", bodies}
				filler := filepath.Join(dir, "filler")
				victims = append(victims, victim{name: "disk", kill: func() { c.fault(func() { c.fill(filler) }) }, start: func() { c.free(filler) }})
			}
			if row.bucket {
				var b *rig.Bucket
				b, bodies, flags = c.bucket()
				victims = append(victims, victim{name: "bucket", kill: func() { c.fault(b.Stop) }, start: func() { b.Start(ctx) }})
			}
			c.add([]string{w.url(0)})
			more, stop := c.everything(w.url(0), flags...)
			victims = append(victims, more...)
			var killed []string
			for range rig.Pick("FETCHD_CRAWLS", 1, 3) {
				killed = append(killed, c.kill(w, victims)...)
			}
			c.ends(w, stop, bodies, killed)
			if server != nil {
				server.logged()
			}
		})
	}
}

// ends waits until each page was fetched two more times, stops the crawl, and checks what it has done.
func (c *crawl) ends(w *web, stop func(), bodies string, killed []string) {
	c.Helper()
	pages := w.pages + w.listed + w.redirected()
	c.twice(pages)
	took := time.Since(c.started)
	stop()
	c.kept(pages)
	c.polite()
	c.bodies(bodies)
	w.asked(c.T, c.site.Visits())
	c.Logf("%d pages in %.1f s: %d requests, %d outcomes, %d of them 304; killed: %s", pages, took.Seconds(), c.site.Count(),
		c.count(`SELECT count(*) FROM fetches`), c.count(`SELECT count(*) FROM fetches WHERE http_status = 304`), strings.Join(killed, ", "))
}

// kept checks the database of a crawl that fetches its pages again.
func (c *crawl) kept(pages int) {
	c.Helper()
	const own = `SELECT count(*) FROM urls WHERE url LIKE '%/x/%' AND kind = 0`
	for _, row := range []struct {
		what, query string
		want        int
	}{
		{"pages", own, pages},
		{"pages that are not fetched again", own + ` AND NOT (status = 'fetched' AND recrawl_at > 0 OR status = 'pending')`, 0},
		{"outcomes other than fetched", `SELECT count(*) FROM fetches WHERE status <> 'fetched' AND error_class <> 'robots_disallowed'`, 0},
		{"claims with two outcomes", `SELECT count(*) FROM (SELECT 1 FROM fetches GROUP BY url_id, token HAVING count(*) > 1) AS x`, 0},
		{"pages that were fetched again in less than a second", `SELECT count(*) FROM (SELECT ended_at - lag(ended_at) OVER (PARTITION BY url_id ORDER BY ended_at) AS gap
			FROM fetches WHERE status = 'fetched') AS x WHERE gap < 1000`, 0},
		{"hosts with a fetch in flight", `SELECT count(*) FROM hosts WHERE in_flight <> 0`, 0},
		{"pages with a depth and no parent", `SELECT count(*) FROM urls u WHERE u.depth > 0 AND NOT EXISTS (SELECT 1 FROM urls p WHERE p.id = u.parent_id)`, 0},
	} {
		if got := c.count(row.query); got != row.want {
			c.Errorf("%s: %d, want %d", row.what, got, row.want)
		}
	}
	for what, digest := range map[string]string{"frontier crawl": "<> ''", "crawl.py": "= ''"} { // which stores no body
		if c.count(`SELECT count(*) FROM fetches WHERE http_status = 200 AND body_digest `+digest) == 0 {
			c.Errorf("%s has recorded no page", what)
		}
	}
}
