package links_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"

	"fetchd/frontier/links"
	"fetchd/test/must"
)

type shape struct {
	name string
	page func(b *builder, size int)
}

// shapes are generators of pages as sites have them, of a size of 1 to 5. The largest are larger than
// nearly all pages of the web.
var shapes = []shape{
	{"an article", func(b *builder, size int) {
		b.navigation(40)
		b.repeat(20*size, `<p>Some words and <a href="/wiki/Article_%d" title="Article %d">a link</a> and more words, <i>and</i> more.</p>`)
		b.footer(30)
	}},
	{"a wiki page with many references", func(b *builder, size int) {
		b.navigation(60)
		b.repeat(400*size, `<sup class="reference" id="cite-%d"><a href="#cite_note-%d">[1]</a></sup> text <a href="/wiki/A_%d" class="mw-redirect" title="A">A</a>`)
		b.repeat(400*size, `<li id="cite_note-%d"><a href="#cite_ref-%d">^</a> <a rel="nofollow" class="external text" href="https://ref%d.test/papers/2020/paper.pdf">Paper</a></li>`)
	}},
	{"an index of 10,000 links", func(b *builder, size int) {
		b.repeat(2000*size, `<li><a href="/dictionary/entry-%d.html" class="entry">entry</a> <span>%d</span></li>`)
	}},
	{"a directory listing", func(b *builder, size int) {
		b.repeat(2000*size, `<tr><td valign="top"><img src="/icons/unknown.gif" alt="[   ]"></td><td><a href="package-%d.tar.gz">package-%d.tar.gz</a></td><td align="right">2026-01-01 00:00  </td><td align="right">1.2M</td></tr>`)
	}},
	{"a navigation on every page", func(b *builder, size int) {
		b.navigation(800 * size)
		b.repeat(20, `<p>Text %d</p>`)
		b.navigation(800 * size) // for small screens
	}},
	{"a forum", func(b *builder, size int) {
		b.navigation(50)
		b.repeat(100*size, `<div class="post" id="p%d"><a href="./viewtopic.php?f=2&amp;t=100&amp;p=%d#p%d">#</a> <a href="./memberlist.php?mode=viewprofile&amp;u=%d" class="username">user</a><blockquote>quoted</blockquote><p>text</p><a href="./posting.php?mode=quote&amp;f=2&amp;p=%d" rel="nofollow">quote</a></div>`)
	}},
	{"a calendar", func(b *builder, size int) {
		b.repeat(366*size, `<td><a href="?year=2026&amp;day=%d">%d</a></td>`)
	}},
	{"a shop", func(b *builder, size int) {
		b.navigation(400)
		b.repeat(200*size, `<div class="product" data-id="%d" data-json="{&quot;id&quot;:%d,&quot;price&quot;:9.99,&quot;tags&quot;:[&quot;a&quot;,&quot;b&quot;]}"><a href="/p/product-name-%d?ref=list"><img src="/img/%d.jpg" srcset="/img/%d-1.jpg 1x, /img/%d-2.jpg 2x" alt=""></a></div>`)
	}},
	{"facets of a shop", func(b *builder, size int) {
		b.repeat(1000*size, `<a rel="nofollow" href="/search?category=shoes&amp;colour=red&amp;size=42&amp;brand=%d&amp;sort=price&amp;page=1&amp;session=abcdef">brand</a>`)
	}},
	{"a page with data in it", func(b *builder, size int) {
		b.repeat(1, `<script type="application/json" id="__NEXT_DATA__">{"props":[`+strings.Repeat(`{"id":1,"url":"/x/y","title":"some title"},`, 2000*size)+`%d]}</script>`)
		b.navigation(100)
	}},
	{"images within the page", func(b *builder, size int) {
		b.repeat(5*size, `<img alt="%d" src="data:image/png;base64,`+strings.Repeat("iVBORw0KGgoAAAANSUhEUgAA/+", 2000)+`"><a href="/photo/%d">photo</a>`)
	}},
	{"drawings within the page", func(b *builder, size int) {
		b.repeat(500*size, `<svg width="24" height="24" viewBox="0 0 24 24"><path fill="none" d="M12 2L2 7l10 5 10-5-10-5zM2 17l10 5 10-5M2 12l10 5 10-5"/></svg><a href="/i/%d" class="icon icon-24 is-primary has-hover">x</a>`)
	}},
	{"classes of a framework", func(b *builder, size int) {
		b.repeat(400*size, `<div class="flex flex-col md:flex-row items-center justify-between px-4 py-2 mx-auto max-w-7xl text-gray-700 dark:text-gray-200 hover:bg-gray-100 transition-colors duration-200"><a class="inline-flex items-center rounded-md px-3 py-2 text-sm font-medium" href="/item/%d">x</a></div>`)
	}},
	{"a table of figures", func(b *builder, size int) {
		b.repeat(1000*size, `<tr><td>%d</td><td>1</td><td>2</td><td>3</td><td>4</td><td>5</td><td><a href="/row/%d">more</a></td></tr>`)
	}},
	{"source code with line numbers", func(b *builder, size int) {
		b.repeat(1000*size, `<tr><td id="L%d" class="blob-num" data-line-number="%d"></td><td class="blob-code"><span class="pl-k">func</span> <span class="pl-en">f</span>(<span class="pl-s1">x</span>) <a href="#L%d">x</a></td></tr>`)
	}},
	{"a standard on one page", func(b *builder, size int) {
		b.repeat(1500*size, `<p id="p%d">The <dfn>thing</dfn> is a <a href="#concept-%d" id="ref-for-%d">concept</a> with <code><a href="https://other.test/spec/#term-%d">term</a></code> of <a href="#a">a</a>.</p>`)
	}},
	{"comments of a discussion", func(b *builder, size int) {
		b.repeat(400*size, `<tr class="athing comtr" id="%d"><td><a href="vote?id=%d&amp;how=up&amp;goto=item%%3Fid%%3D1">up</a> <a href="user?id=u%d">u</a> <a href="item?id=%d">1 hour ago</a><span class="comment">words and <a href="https:&#x2F;&#x2F;example%d.test&#x2F;a" rel="nofollow">link</a></span></td></tr>`)
	}},
	{"letters outside ASCII", func(b *builder, size int) {
		b.repeat(1000*size, `<li><a href="/вики/Статья_%d?раздел=история">Статья о чём-то</a>, <a href="/é%d?q=é">é</a></li>`)
	}},
	{"a host outside ASCII", func(b *builder, size int) {
		b.repeat(2000*size, `<a href="https://müller.test/artikel/%d">Artikel</a>`)
	}},
	{"many hosts outside ASCII", func(b *builder, size int) {
		b.repeat(400*size, `<a href="https://müller%d.test/">Müller</a>`)
	}},
	{"links to other sites", func(b *builder, size int) {
		b.repeat(2000*size, `<a href="https://www.site%d.test/path/page.html?utm_source=list&amp;utm_medium=web">x</a>`)
	}},
	{"long tracking links", func(b *builder, size int) {
		b.repeat(80*size, `<a href="https://track.test/c?u=%d&amp;data=`+strings.Repeat("abcdef%%2F", 150)+`">x</a>`)
	}},
	{"deep relative links", func(b *builder, size int) {
		b.text(`<base href="/a/very/deep/folder/of/a/site/with/many/levels/">`)
		b.repeat(2000*size, `<a href="../../../x/%d/../y.html">x</a>`)
	}},
	{"one line of text", func(b *builder, size int) {
		b.repeat(1, `<pre>`+strings.Repeat("a line of a log, without any link\n", 5_000*size)+`%d</pre>`)
	}},
	{"scripts in links", func(b *builder, size int) {
		b.repeat(1000*size, `<a href="javascript:void(0)" onclick="show(%d)">x</a><a href="mailto:x@y.test">mail</a><a href="#">top</a>`)
	}},
}

// builder builds a page.
type builder struct{ strings.Builder }

func (b *builder) text(s string) { b.WriteString(s) }

// repeat writes a format n times, with a number in the place of each verb.
func (b *builder) repeat(n int, format string) {
	verbs := strings.Count(strings.ReplaceAll(format, "%%", ""), "%d")
	for i := range n {
		args := make([]any, verbs)
		for j := range args {
			args[j] = i
		}
		b.text(fmt.Sprintf(format+"\n", args...))
	}
}

func (b *builder) navigation(n int) {
	b.text(`<!doctype html><html><head><meta charset="utf-8"><link rel="canonical" href="/"><link rel="stylesheet" href="/style.css"><title>x</title></head><body><nav><ul>`)
	b.repeat(n, `<li class="nav-item"><a class="nav-link" href="/category/%d/" data-track="nav">Category</a></li>`)
	b.text(`</ul></nav>`)
}

func (b *builder) footer(n int) {
	b.repeat(n, `<a href="/about/%d" class="footer__link">About</a>`)
	b.text(`</body></html>`)
}

// TestShapes checks that no page of a usual shape meets a limit, in several charsets and at URLs of
// several lengths: 500 pages.
func TestShapes(t *testing.T) {
	t.Parallel()
	long := "http://a.test/" + strings.Repeat("folder/", 5) + "page?" + strings.Repeat("parameter=value&", 5)
	var pages atomic.Int64
	t.Run("all", func(t *testing.T) {
		for _, shape := range shapes {
			t.Run(shape.name, func(t *testing.T) {
				t.Parallel()
				for _, size := range []int{1, 3, 5} {
					var b builder
					shape.page(&b, size)
					for _, c := range []struct{ charset, url string }{{"utf-8", page}, {"utf-8", long}, {"windows-1251", page}, {"gb18030", long}} {
						got := readShape(t, b.String(), c.charset, c.url)
						if got.Cut != "" || got.Work > 64<<20 { // half of the limit
							t.Errorf("size %d, %s: %d bytes, %d links, work %d Mi, cut %q", size, c.charset, b.Len(), len(got.Links), got.Work>>20, got.Cut)
						}
						pages.Add(1)
					}
				}
			})
		}
	})
	if n := pages.Load(); n != 300 {
		t.Errorf("%d pages, want 300", n)
	}
}

// TestLargestShape checks a page of 13 MB with 300,000 references, as the longest standards have them.
func TestLargestShape(t *testing.T) {
	t.Parallel()
	var b builder
	shapes[slices.IndexFunc(shapes, func(s shape) bool { return s.name == "a standard on one page" })].page(&b, 44)
	got := readShape(t, b.String(), "utf-8", page)
	if got.Cut != "" || b.Len() < 12<<20 {
		t.Errorf("%d bytes, work %d Mi, cut %q", b.Len(), got.Work>>20, got.Cut)
	}
}

// readShape returns the links of a page in a charset.
func readShape(t *testing.T, text, charset, url string) links.Page {
	t.Helper()
	e, err := htmlindex.Get(charset)
	must.Succeed(t, err)
	if charset != "utf-8" {
		if text, err = encoding.HTMLEscapeUnsupported(e.NewEncoder()).String(text); err != nil {
			t.Fatal(err)
		}
	}
	got, err := links.Read(strings.NewReader(text), links.Config{URL: url, ContentType: "text/html; charset=" + charset})
	must.Succeed(t, err)
	return got
}
