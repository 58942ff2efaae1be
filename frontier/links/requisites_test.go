package links_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/frontier/links"
	"fetchd/test/must"
)

const sheet, manifest, svg = "text/css", "application/manifest+json", "image/svg+xml"

// TestRequisites checks what a document needs to be shown. A plus marks what may need more itself.
func TestRequisites(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, contentType, document string
		want                        string // without http://a.test, separated by spaces
	}{
		{"images", "", `<img src=1><img srcset="2, 3 2x, 4,5 100w"><picture><source srcset="/6 (a,b), /7"></picture><input type=IMAGE src=8><input src=no><img lowsrc=9>`,
			"/dir/1 /dir/2 /dir/3 /dir/4,5 /6 /7 /dir/8 /dir/9"},
		{"a srcset without spaces", "", `<img srcset=",a,,b 1x,c 2x,"><img srcset=" "><img srcset=",">`, "/dir/a,,b /dir/c"},
		{"images that are shown later", "", `<img data-src=1 data-srcset="2 1x" data-original=3 data-lazy=4 data-lazy-src=5 data-full-src=6 data-x=no>`, "/dir/1 /dir/3 /dir/4 /dir/5 /dir/6 /dir/2"},
		{"scripts, sounds, films", "", `<script src=/a.js></script><script>"<img src=no>"</script><video poster=/p src=/v></video><audio src=/s><source src=/t><track src=/u>`, "/a.js /v /p /s /t /u"},
		{"frames", "", `<iframe src=/1></iframe><frame src=/2><embed src=/3><object data=/4 type=image/png></object>`, "+/1 +/2 +/3 +/4"},
		{"link", "", `<link rel=stylesheet href=/1><link rel="alternate StyleSheet" href=/2><link rel="shortcut icon" href=/3><link rel=manifest href=/4><link rel=modulepreload href=/5><link rel=apple-touch-icon href=/6>`,
			"+/1 +/2 /3 +/4 /5 /6"},
		{"link that is none", "", `<link rel=prefetch href=/1><link rel=dns-prefetch href=/2><link rel=next href=/3><link rel=alternate href=/4><link href=/5><link rel=canonical href=/6>`, ""},
		{"preload", "", `<link rel=preload as=style href=/1><link rel=preload as=font href=/2><link rel=preload as=image imagesrcset="/3 1x, /4 2x">`, "+/1 /2 /3 /4"},
		{"styles", "", `<body background=/1><p style="background:url( '/2' )"><style>@import "/3"; a { b: url(/4) }</style><td background=/5>`, "/1 /2 +/3 /4 /5"},
		{"SVG in a page", "", `<svg><image href=/1 /><image xlink:href=/2 /><use href="/3#x"/><use href="#here"/><script href=/4></script></svg>`, "/1 /2 /3 /4"},
		{"noscript, template, comment", "", `<noscript><img src=/1></noscript><template><img src=/no><style>@import "/no"</style></template><!-- <img src=/no> -->`, "/1"},
		{"a base behind them", "", `<link rel=stylesheet href=1><base href=/b/><img src=2>`, "+/b/1 /b/2"},
		{"no references", "", `<img src><img src=""><img src="#x"><img src=DATA:image/png,x><img src=javascript:x><iframe src=about:blank></iframe>`, ""},
		{"the same twice", "", `<img src=/a><link rel=stylesheet href=/a><img src=/a>`, "+/a"},
		{"links are none", "", `<a href=/a><area href=/b><form action=/c><meta property=og:image content=/d>`, ""},

		{"url", sheet, `a{b:url(1)}c{d:url( "2" )}e{f:URL('3')}@font-face{src:url(5)format("x"),url(6)}`, "/dir/1 /dir/2 /dir/3 /dir/5 /dir/6"},
		{"import", sheet, `@charset "utf-8";@import "1";@IMPORT url(2) screen;@\69mport '3' layer(x);@import url("4");`, "+/dir/1 +/dir/2 +/dir/3 +/dir/4"},
		{"image-set", sheet, `a{b:image-set("1" 1x, url(2) 2x, "3" type("no") 3x); c:-webkit-image-set('4' 1x), "no"} d{content:"no"}`, "/dir/1 /dir/2 /dir/3 /dir/4"},
		{"escapes", sheet, `a{b:url(a\)b);c:url("\31 \"x\
y");d:url(\26x);e:url("\0\110000x")}`, "/dir/a)b /dir/1%22xy /dir/&x /dir/%EF%BF%BD%EF%BF%BDx"},
		{"what is no reference", sheet, `/* url(no) */@namespace url(no);@namespace x "no";a{b:"url(no)";c:url();d:url(#x);e:url(data:x,y);f:url(no no);g:url("no" x)}@media print{h{i:url(1)}}`, "/dir/1"},
		{"what does not end", sheet, `a{b:url(1);c:url(2`, "/dir/1 /dir/2"},
		{"a comment that does not end", sheet, `a{b:url(1)}/* url(no)`, "/dir/1"},
		{"a string that a line ends", sheet, "a{b:\"x\n;c:url(1)}", "/dir/1"},
		{"a charset rule", sheet, "@charset \"windows-1251\";a{b:url(\xe4)}", "/dir/%D0%B4"},
		{"in another charset", sheet + "; charset=utf-16le", "@\x00i\x00m\x00p\x00o\x00r\x00t\x00 \x00'\x001\x00'\x00", "+/dir/1"},

		{"a manifest", manifest, `{"name":"x","icons":[{"src":"1"},{"src":"/2"}],"screenshots":[{"src":"3"}],"shortcuts":[{"url":"no","icons":[{"src":"4"}]}],"start_url":"no"}`, "/dir/1 /2 /dir/3 /dir/4"},
		{"a manifest that is not valid", manifest, `{"icons":[{"src":1}`, ""},
		{"texts in SVG", "", `<svg><style>
<![CDATA[a{b:url(1)}]]></style><style/><style>a{b:url(2)}</style><g style="c:url(3)"/></svg><img src=4>`, "/dir/1 /dir/2 /dir/3 /dir/4"},
		{"an SVG image", svg, `<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"><style>a{b:url(1)}</style><image xlink:href="2"/></svg>`, "/dir/1 /dir/2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p, err := links.Read(strings.NewReader(row.document), links.Config{URL: page, ContentType: row.contentType, Requisites: true})
			must.Succeed(t, err)
			if diff := cmp.Diff(row.want, requisites(p)); diff != "" || p.Cut != "" {
				t.Errorf("want, got: %s cut %q", diff, p.Cut)
			}
		})
	}
}

func requisites(p links.Page) string {
	var all []string
	for _, r := range p.Requisites {
		u := strings.TrimPrefix(r.URL, "http://a.test")
		if r.Searched {
			u = "+" + u
		}
		all = append(all, u)
	}
	return strings.Join(all, " ")
}

// TestRequisitesAndLinks checks that both are found as they are asked for.
func TestRequisitesAndLinks(t *testing.T) {
	t.Parallel()
	const document = `<title> A &amp;
	B </title><svg><title>no</title></svg><iframe src=/f></iframe><a href=/a><meta name=robots content=nofollow><img src=/i><a href=/b>`
	for _, row := range []struct {
		name                     string
		config                   links.Config
		links, requisites, title string
	}{
		{"links of a page that closes them", links.Config{}, "", "", ""},
		{"both", links.Config{Requisites: true}, "", "+/f /i", "A & B"},
		{"both of a page that a header closes", links.Config{Requisites: true, RobotsTags: []string{"nofollow"}}, "", "+/f /i", "A & B"},
		{"requisites", links.Config{Requisites: true, NoLinks: true}, "", "+/f /i", "A & B"},
	} {
		row.config.URL = page
		p, err := links.Read(strings.NewReader(document), row.config)
		must.Succeed(t, err)
		if got := strings.Join(p.Links, " "); got != row.links || requisites(p) != row.requisites || p.Title != row.title {
			t.Errorf("%s: links %q, requisites %q, title %q", row.name, got, requisites(p), p.Title)
		}
	}
	p, err := links.Read(strings.NewReader(`<a href=/a><iframe src=/f></iframe><img src=/i>`), links.Config{URL: page, Requisites: true})
	must.Succeed(t, err)
	if got := strings.Join(p.Links, " "); got != "http://a.test/a http://a.test/f" || requisites(p) != "+/f /i" {
		t.Errorf("links %q, requisites %q", got, requisites(p))
	}
}

// TestRequisiteLimits checks what a hostile document costs: the limits, and work that grows with its length only.
func TestRequisiteLimits(t *testing.T) {
	t.Parallel()
	var many, set strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&many, "<img src=http://h%d.test/>", i)
		fmt.Fprintf(&set, "/%d %dw, ", i, i+1)
	}
	const mib = 1 << 20
	for _, row := range []struct {
		name, contentType, document string
		n                           int
		cut                         string
	}{
		{"10,000 images", "", many.String(), links.MaxRequisites, ""},
		{"a srcset of 10,000", "", `<img srcset="` + set.String() + `">`, links.MaxRequisites, ""},
		{"a srcset of commas", "", `<img srcset="` + strings.Repeat(",", mib) + `">`, 0, ""},
		{"a srcset of parentheses", "", `<img srcset="x ` + strings.Repeat("(", mib) + `">`, 1, ""},
		{"a long style sheet", sheet, strings.Repeat("a{}", 6*mib), 0, links.CutSheet},
		{"many tokens", sheet, strings.Repeat(";", 3*mib), 0, ""},
		{"url that does not end", sheet, strings.Repeat("url(", mib), 0, ""},
		{"strings that do not end", sheet, strings.Repeat("\"\n", mib), 0, ""},
		{"comments that do not end", sheet, strings.Repeat("/*", mib), 0, ""},
		{"unicode ranges", sheet, strings.Repeat("u+aaaaaaaa", mib/4), 0, ""},
		{"escapes", sheet, "url(" + strings.Repeat(`\0`, mib) + ")", 0, ""},
		{"escapes of names", sheet, strings.Repeat(`\`, 2*mib) + "(", 0, ""},
		{"functions", sheet, strings.Repeat("image-set(", mib/4), 0, ""},
		{"a manifest of icons", manifest, `{"icons":[` + strings.Repeat(`{"src":"x"},`, 50_000) + `{"src":"y"}]}`, 2, ""},
		{"a nested manifest", manifest, `{"icons":` + strings.Repeat("[", mib/2), 0, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p, err := links.Read(strings.NewReader(row.document), links.Config{URL: page, ContentType: row.contentType, Requisites: true})
			must.Succeed(t, err)
			over := map[bool]int{true: 9000}[row.n == links.MaxRequisites]
			if len(p.Requisites) != row.n || p.OverRequisites != over || p.Cut != row.cut || p.Work > 64*len(row.document)+mib {
				t.Errorf("%d requisites, %d left out, cut %q, work %d for %d bytes", len(p.Requisites), p.OverRequisites, p.Cut, p.Work, len(row.document))
			}
		})
	}
}
