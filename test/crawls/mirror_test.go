//go:build linux

package crawls

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"fetchd/test/rig"
)

// mirror is a site of one host with links in every form, and with what a crawler must not follow.
type mirror struct {
	pages int
	host  string

	mu       sync.Mutex
	requests map[string]int // by path with query
}

func startMirror(t *testing.T, pages int) *mirror {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	m := &mirror{pages: pages, host: l.Addr().String(), requests: make(map[string]int)}
	server := &http.Server{Handler: m}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l) // until Close
	}()
	t.Cleanup(func() {
		server.Close()
		<-ended
	})
	return m
}

// write writes to a client, which may have left, or to a buffer, which has no errors.
func write(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// path returns the path of a page.
func path(n int) string { return fmt.Sprintf("/d%d/p%d.html", n%10, n) }

// link returns a link to a page, in one of the forms that browsers and crawlers follow.
func (m *mirror) link(n int) string {
	p := path(n)
	folder, file, _ := strings.Cut(p[1:], "/")
	forms := []string{
		`<a href="http://` + m.host + p + `">x</a>`,
		`<a href='` + p + `'>x</a>`,
		`<A HREF=../` + p[1:] + `>x</A>`,
		`<a href="` + p + `#part">x</a>`,
		`<a href="//` + m.host + p + `">x</a>`,
		`<map name=x><area href="` + p + `"></map>`,
		`<iframe src="` + p + `"></iframe>`,
		`<link rel="next" href="` + p + `">`,
		`<meta http-equiv="refresh" content="9; url=` + p + `">`,
		`<a href="/` + folder + `/./y/../` + file + `">x</a>`,
		`<a href="/` + folder + `/%70` + file[1:] + `">x</a>`,
		`<a href="  ` + p + ` ">x</a>`,
		`<noscript><a href="` + p + `">x</a></noscript>`,
		`<frameset><frame src="` + p + `"></frameset>`,
		`<a href="&#47;` + p[1:] + `">x</a>`,
		`<a title="a > b" href="` + p + `">x</a>`,
	}
	return forms[n%len(forms)]
}

// page returns page n: a tree of links, duplicates, and links that must not be followed.
func (m *mirror) page(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<!DOCTYPE html>\n<html><head><title>Page %d</title></head><body>\n", n)
	for child := 3*n + 1; child <= 3*n+3 && child < m.pages; child++ {
		b.WriteString(m.link(child) + "\n")
	}
	fmt.Fprintf(&b, "<a href=\"/\">home</a><a href=%q>up</a><a href=\"#top\">top</a><a href=%q>again</a>\n", path(max(0, (n-1)/3)), "http://"+m.host+path(n))
	fmt.Fprintf(&b, "<!-- <a href=\"/bad/comment%d\"> --><script>var x = '<a href=\"/bad/script%d\">'</script>\n", n, n)
	fmt.Fprintf(&b, "<textarea><a href=\"/bad/text%d\"></textarea><template><a href=\"/bad/template%d\"></a></template>\n", n, n)
	fmt.Fprintf(&b, "<a rel=nofollow href=\"/no/%d\">no</a><a href=\"/private/%d\">private</a><a href=\"/cal/%d\">calendar</a>\n", n, n, n)
	fmt.Fprintf(&b, "<a href=\"http://127.0.0.2:%s/other/%d\">other</a><a href=\"mailto:a@b.test\">mail</a><a href=\"javascript:x()\">x</a>\n", m.host[strings.Index(m.host, ":")+1:], n)
	if n%50 == 0 {
		fmt.Fprintf(&b, "<a href=\"/go/%d\">moved</a><a href=\"/closed/%d\">closed</a>\n", n, n)
	}
	b.WriteString("</body></html>\n")
	return b.String()
}

// ServeHTTP implements http.Handler.
func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	m.requests[r.RequestURI]++
	m.mu.Unlock()
	first, rest, _ := strings.Cut(r.URL.Path[1:], "/")
	n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(rest, "p"), ".html")) // 0 for the home page
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	switch {
	case r.URL.Path == "/":
		write(w, "%s", m.link(0))
	case r.URL.Path == "/robots.txt":
		write(w, "User-agent: *\nDisallow: /private/\n\nSitemap: http://%s/maps/index.xml\n", m.host)
	case first == "maps":
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(m.sitemap(rest))
	case first == "go":
		http.Redirect(w, r, path((n+7)%m.pages), http.StatusMovedPermanently)
	case first == "closed":
		write(w, `<meta name="robots" content="nofollow"><a href="/no/closed%d">no</a>`, n)
	case first == "listed":
		write(w, "<a href=%q>home</a>", "/")
	case first == "cal":
		write(w, `<a href="/cal/%d">next</a>`, n+1)
	case r.URL.Path == path(n) && n < m.pages:
		write(w, "%s", m.page(n))
	default:
		http.NotFound(w, r)
	}
}

// listed is how many pages only the sitemaps name.
func (m *mirror) listed() int { return m.pages / 20 }

func (m *mirror) sitemap(name string) []byte {
	var b bytes.Buffer
	switch name {
	case "index.xml":
		fmt.Fprintf(&b, "<sitemapindex><sitemap><loc>http://%s/maps/pages.xml.gz</loc></sitemap><sitemap><loc>http://%[1]s/maps/index.xml</loc></sitemap></sitemapindex>", m.host)
	case "pages.xml.gz":
		z := gzip.NewWriter(&b)
		write(z, "%s", "<urlset>")
		for n := range m.listed() {
			write(z, "<url><loc>http://%s/listed/%d</loc><lastmod>2024-01-01</lastmod></url><url><loc>http://%[1]s%[3]s</loc></url>", m.host, n, path(n))
		}
		write(z, "%s", "</urlset>")
		_ = z.Close()
	}
	return b.Bytes()
}

// want returns what a crawler requests, each once, without robots.txt.
func (m *mirror) want() map[string]int {
	all := map[string]int{"/": 1, "/maps/index.xml": 1, "/maps/pages.xml.gz": 1}
	for n := range m.pages {
		all[path(n)] = 1
		if n%50 == 0 {
			all[fmt.Sprintf("/go/%d", n)], all[fmt.Sprintf("/closed/%d", n)] = 1, 1
		}
	}
	for n := range m.listed() {
		all[fmt.Sprintf("/listed/%d", n)] = 1
	}
	return all
}

// take returns the requests since the last call, without robots.txt.
func (m *mirror) take() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	got := m.requests
	m.requests = make(map[string]int)
	delete(got, "/robots.txt")
	return got
}

// TestMirror crawls a site with links in every form: every page in the scope is requested, each once.
func TestMirror(t *testing.T) {
	ctx := long(t)
	m := startMirror(t, rig.Pick("FETCHD_CRAWLS", 500, 10_000))
	db := filepath.Join(t.TempDir(), "frontier.db")
	home := "http://" + m.host + "/"
	_, port, err := net.SplitHostPort(m.host)
	must(t, err)
	for _, args := range [][]string{{"add", "--db", db, home}, {"set", "--db", db, m.host, "--max-in-flight", "32", "--delay", "0s"}} {
		start(t, "frontier "+args[0], "frontier", args...).exits(ctx, 0)
	}
	w := start(t, "frontier crawl", "frontier", "crawl", "--db", db, "--delay", "0s", "--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-port", port,
		"--exclude", "/cal/", home)
	w.exits(ctx, 0)
	got := m.take()
	for n := 0; n < m.pages; n += 50 { // a page that a redirect leads to is requested once more
		if p := path((n + 7) % m.pages); got[p] == 2 {
			got[p] = 1
		}
	}
	if missing, more := difference(m.want(), got); len(missing)+len(more) > 0 {
		t.Errorf("the crawl misses %s and requests %s\n%s", some(missing), some(more), last(w.log.String(), 20))
	}
}

// difference returns the keys of want that got does not have, and those of got that are not in want or
// have another number. Escapes do not matter.
func difference(want, got map[string]int) (missing, more []string) {
	plain := map[string]int{}
	for p, n := range got {
		if u, err := url.PathUnescape(p); err == nil {
			p = u
		}
		plain[p] += n
	}
	for p := range want {
		if plain[p] == 0 {
			missing = append(missing, p)
		}
	}
	for p, n := range plain {
		if want[p] != n {
			more = append(more, p)
		}
	}
	slices.Sort(missing)
	slices.Sort(more)
	return missing, more
}

// some formats a list, of which it shows the start.
func some(list []string) string {
	return fmt.Sprintf("%d %q", len(list), list[:min(len(list), 5)])
}
