package links_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/encoding/htmlindex"

	"fetchd/frontier/links"
	"fetchd/frontier/normal"
	"fetchd/frontier/work"
	"fetchd/test/must"
)

// page is the URL of the documents.
const page = "http://a.test/dir/page"

func TestRead(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, document string
		want           string // links without http://a.test, separated by spaces
	}{
		{"forms", `<a href=/a>x</a><map><area href='b'></map><iframe src="c"></iframe><frameset><frame src=d></frameset>`, "/a /dir/b /dir/c /dir/d"},
		{"link", `<link rel=canonical href=/1><link rel="x NEXT" href=/2><link rel=prev href=/3><link rel=stylesheet href=/no><link href=/no><link rel=icon href=/no><link rel=canonical>`, "/1 /2 /3"},
		{"alternate", `<link rel=alternate hreflang=de href=/1><link rel=alternate type="text/html; charset=x" href=/2><link rel=alternate type=application/rss+xml href=/no><link rel="alternate stylesheet" href=/no>`, "/1 /2"},
		{"refresh", `<meta http-equiv=Refresh content="5; url=/1"><meta http-equiv=refresh content="0;URL='/2' x"><meta http-equiv=refresh content="3,/3"><meta http-equiv=refresh content=5><meta http-equiv=refresh content="url=/no"><meta content="0;url=/no">`, "/1 /2 /3"},
		{"equal links", `<a href=/a><a href=/a#x><a href="http://A.test:80/a"><a href=/%61>`, "/a"},
		{"the page itself", `<a href=#top><a href=""><a href="?x">`, "/dir/page /dir/page?x"},
		{"entities", `<a href="/?a=1&amp;b=2"><a href="/&#120;">`, "/?a=1&b=2 /x"},
		{"capitals", `<A HREF=/a></A><AREA HREF=/b>`, "/a /b"},
		{"embedded pages", `<embed src=/e><object data=/o><a href=/in></a></object><embed src=/x type="text/html; charset=utf-8">`, "/e /o /in /x"},
		{"embedded files", `<embed src=/e type=application/pdf><object data=/o type=image/png></object><embed href=/e data=/e><object src=/o></object><a data=/o src=/o>`, ""},
		{"no href", `<a name=x><a><area><iframe></iframe>`, ""},
		{"href twice", `<a href=/a href=/no>`, "/a"},
		{"base", `<a href=1><base href="/x/"><base href=/no/><a href=2>`, "/x/1 /x/2"},
		{"base without href", `<base target=_top><base href="/x/"><a href=2>`, "/x/2"},
		{"a bad base", `<base href="javascript:x"><a href=2>`, "/dir/2"},
		{"base of another scheme", `<a href=1><base href="file:///C:/x/"><base href=/no/><a href=2><a href=/3><a href=//b.test/><a href=?x><a href=#x><a href=""><a href=http://a.test/4><a href=http:b.test>`, "/4 http://b.test/"},
		{"base without a hierarchy", `<base href=" MAILTO:x@y.test"><a href=2><a href=http://a.test/4>`, "/4"},
		{"base with data", `<base href="Data:text/html,x"><a href=2>`, "/dir/2"},
		{"base that is no URL", `<base href="http://["><a href=2>`, "/dir/2"},
		{"base of another host", `<base href="http://b.test/"><a href=2>`, "http://b.test/2"},
		{"a comment", `<!-- <a href=/no> --><a href=/a><!-- <a href=/no>`, "/a"},
		{"a script", `<script>"<a href=/no>"</script><script><!-- <script> <a href=/no> </script> --></script><a href=/a>`, "/a"},
		{"a style", `<style><a href=/no></style><a href=/a>`, "/a"},
		{"a template", `<template><a href=/no><template><a href=/no></template><a href=/no></template><a href=/a></template><a href=/b>`, "/a /b"},
		{"noscript", `<noscript><a href=/a></noscript>`, "/a"},
		{"texts", `<title><a href=/no></title><textarea><a href=/no></textarea><xmp><a href=/no></xmp><iframe src=/f><a href=/no></iframe><noframes><a href=/no></noframes><a href=/a>`, "/f /a"},
		{"after plaintext", `<a href=/a><plaintext><a href=/no>`, "/a"},
		{"other elements", `<img src=/no><script src=/no></script><form action=/no><object><video src=/no><p href=/no>`, ""},
		{"self-closing in SVG and MathML", `<svg><title/><style/><script/><desc/></svg><math><title/><textarea/></math><a href=/a>`, "/a"},
		{"texts in SVG and MathML", `<svg><title><a href=/1></a></title><style><a href=/2></a></style><xmp><a href=/3></svg><math><title><area href=/no><a href=/no><iframe src=/no></math><a href=/4>`, "/1 /2 /3 /4"},
		{"links of SVG", `<svg><a href=/1></a><a xlink:href=/2 href=/3></a><a xlink:href=/4 rel=nofollow></a><a xlink:href=/5><use href=/no></svg><a xlink:href=/no>`, "/1 /3 /5"},
		{"HTML in SVG", `<svg><foreignObject><style/><a href=/no></style><iframe src=/1></iframe></foreignObject><title/><a href=/2></svg><title/><a href=/no>`, "/1 /2"},
		{"HTML in MathML", `<math><mi><style/><a href=/no></style></mi><annotation-xml encoding=Text/HTML><area href=/1></annotation-xml><annotation-xml><area href=/no><style/></annotation-xml></math><a href=/2>`, "/1 /2"},
		{"the end of SVG", `<svg><g><p><style/><a href=/no></style><svg></p><area href=/1><svg><font><area href=/no></svg><svg><font color=red><area href=/2><div><svg><g></g></g><area href=/no></div><area href=/3>`, "/1 /2 /3"},
		{"a template in SVG", `<svg><template><a href=/1></template><a href=/2></svg><template><svg><foreignObject><div></template><title></title><a href=/3>`, "/1 /2 /3"},
		{"CDATA in SVG", `<svg><a href=/1><![CDATA[ > <a href=/no>]]><foreignObject><![CDATA[<a href=/no>]]></svg><a href=/2>`, "/1 /2"},
		{"CDATA", `<svg><![CDATA[<a href=/no>]]></svg><a href=/a>`, "/a"},
		{"a tag that does not end", `<a href=/a><a href=/no`, "/a"},
		{"an attribute that does not end", `<a href=/a><a href="/no>x</a>`, "/a"},
		{"self-closing", `<a href=/a /><link rel=next href=/b />`, "/a /b"},
		{"spaces", "<a href=' /a\n'><a href='/b  #x'><a href='/c\n#x'><a href=' #x'><a href='/b  '>", "/a /b%20%20 /c /dir/page /b"},
		{"empty", "", ""},
		{"no document", "\x00\x01\xff<", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := links.Read(iotest.OneByteReader(strings.NewReader(row.document)), links.Config{URL: page})
			if err != nil || got.Cut != "" {
				t.Fatalf("Read = %+v, %v", got, err)
			}
			if text := strings.ReplaceAll(strings.Join(got.Links, " "), "http://a.test", ""); text != row.want {
				t.Errorf("links %q, want %q", text, row.want)
			}
		})
	}
}

// TestXML checks documents that are read as XML.
func TestXML(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, document, want string }{
		{"empty elements", `<title/><style/><script src="a.js"/><textarea/><iframe src="/1"/><template/><a href="/2"/>`, "/1 /2"},
		{"texts", `<title><a href="/1"/></title><noscript><a href="/2"/></noscript><template><a href="/no"/></template>`, "/1 /2"},
		{"CDATA", `<script><![CDATA[ > <a href="/no"/> ]]></script><a href="/1"/>`, "/1"},
		{"capitals", `<A href="/no"/><TEMPLATE><a href="/1"/></TEMPLATE>`, "/1"},
		{"prefixes", `<h:html xmlns:h = 'http://www.w3.org/1999/xhtml' xmlns:x="http://a.test/"><h:a href="/1"/><x:a href="/no"/><y:a href="/no"/><h:template><h:a href="/no"/></h:template><h:a href="/2"/>`, "/1 /2"},
		{"SVG", `<svg xmlns="http://www.w3.org/2000/svg"><title/><a xlink:href="/1"/></svg>`, "/1"},
		{"processing instructions", `<?xml version="1.0"?><?x "> <a href="/no"/> <b ?><a href="/1"/><?x?><a href="/2"/>`, "/1 /2"},
		{"declarations", `<!DOCTYPE html [ <!ENTITY a "<a href='/no'/>"> <!ENTITY b "<b/> <a href='/no'/>"> ]><a href="/1"/>`, "/1"},
		{"a document type", `<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd"><!DOCTYPE html []><a href="/1"/>`, "/1"},
		{"a long tag", `<Title x="` + strings.Repeat("x", 2000) + `"/><script x="` + strings.Repeat("x", 2000) + `"/><a href="/1"/>`, "/1"},
		{"Latin 1", `<?xml version="1.0" encoding='ISO-8859-1'?><a href="/?` + "\xfc" + `"/>`, "/?%FC"},
		{"UTF-8", `<meta charset="iso-8859-1"/><a href="/?` + "\xfc" + `"/>`, "/?%EF%BF%BD"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := links.Read(iotest.OneByteReader(strings.NewReader(row.document)), links.Config{URL: page, ContentType: "Application/XHTML+XML;charset"})
			if text := strings.ReplaceAll(strings.Join(got.Links, " "), "http://a.test", ""); err != nil || text != row.want {
				t.Errorf("links %q, %v, want %q", text, err, row.want)
			}
		})
	}
}

func TestCharset(t *testing.T) {
	t.Parallel()
	utf16 := func(s string) string {
		var b strings.Builder
		b.WriteString("\xff\xfe")
		for _, r := range s {
			b.WriteByte(byte(r))
			b.WriteByte(byte(r >> 8))
		}
		return b.String()
	}
	spaces := strings.Repeat(" ", 5000)
	for _, row := range []struct{ name, contentType, document, want string }{
		{"UTF-8", "text/html; charset=utf-8", "<a href=/ü>", "/%C3%BC"},
		{"bytes that are not UTF-8", "text/html; charset=utf-8", "<a href='/\xfc\xe2\x82?\xff&#233;'>", "/%EF%BF%BD%EF%BF%BD?%EF%BF%BD%C3%A9"},
		{"Latin 1 in the header", "text/html; charset=iso-8859-1", "<a href=/\xfc>", "/%C3%BC"},
		{"Latin 1 in meta", "text/html", "<meta charset=iso-8859-1><a href='/?\xfc'>", "/?%FC"},
		{"http-equiv", "", `<meta http-equiv=content-type content="text/html; charset=windows-1251"><a href='/` + "\xe4" + `'>`, "/%D0%B4"},
		{"Shift_JIS", "text/html; charset=shift_jis", "<a href='/\x83\x5c'>", "/%E3%82%BD"},
		{"a late meta", "text/html", spaces + "<meta charset=iso-8859-1><a href='/\xfc?\xfc'>", "/%C3%BC?%FC"},
		{"a late http-equiv", "", spaces + `<meta http-equiv=Content-Type content="text/html; Charset = 'windows-1251'"><a href='/` + "\xe4" + `'>`, "/%D0%B4"},
		{"a late meta of another alphabet", "", spaces + "<meta charset=shift_jis><a href='/\x83\x5c?\x83\x5c'>", "/%E3%82%BD?%83\\"},
		{"two late metas", "", spaces + "<meta charset=iso-8859-1><meta charset=koi8-r><a href='/\xfc'>", "/%C3%BC"},
		{"a late meta of UTF-16", "", spaces + "<meta charset=utf-16><a href='/\xfc'>", "/%EF%BF%BD"},
		{"a late meta against the header", "text/html; charset=utf-8", spaces + "<meta charset=iso-8859-1><a href='/ü'>", "/%C3%BC"},
		{"a late meta in a script, a style, a title and a comment", "", spaces + "<script><meta charset=koi8-r></script><style><meta charset=koi8-r></style><title><meta charset=koi8-r></title><!--<meta charset=koi8-r>--><a href='/ü'>", "/%C3%BC"},
		{"an early meta in a script", "", "<script>'<meta charset=iso-8859-1>'</script><a href='/?\xfc'>", "/?%FC"},
		{"a meta after one in a script", "", "<script>'<meta charset=iso-8859-1>'</script><meta charset=windows-1251><a href='/\xe4?\xe4'>", "/%D0%B4?%E4"},
		{"a long meta after one in a script", "", "<script>'<meta charset=shift_jis>'</script><p x='" + spaces + "'><meta charset=utf-8 x='" + spaces + "'><a href='/ü?\xfc'>", "/%C3%BC?%EF%BF%BD"},
		{"a meta that the first one agrees with", "", "<meta charset=windows-1251><meta charset=koi8-r><a href='/\xe4'>", "/%D0%B4"},
		{"charset in a script", "", "<script charset=x></script><a href='/ü'>", "/%C3%BC"},
		{"an XML declaration", "text/html", "<?xml version='1.0' encoding='iso-8859-1'?><a href='/?\xfc'>", "/?%FC"},
		{"a byte order mark", "text/html; charset=iso-8859-1", "\xef\xbb\xbf<a href=/ü>", "/%C3%BC"},
		{"UTF-16", "text/html", utf16("<a href=/ü>"), "/%C3%BC"},
		{"unknown: UTF-8 after much ASCII", "text/html", strings.Repeat(" ", 5000) + "<a href=/ü>", "/%C3%BC"},
		{"unknown: bytes that are not UTF-8", "text/html", strings.Repeat(" ", 5000) + "<a href=/\xfc>", "/%FC"},
		{"a charset that does not exist", "text/html; charset=klingon", "<a href=/ü>", "/%C3%BC"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := links.Read(strings.NewReader(row.document), links.Config{URL: page, ContentType: row.contentType})
			must.Succeed(t, err)
			if diff := cmp.Diff([]string{"http://a.test" + row.want}, got.Links); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestQueryEncoding has the rows of the URL standard's tests about percent-encoding after encoding, and
// others.
func TestQueryEncoding(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ charset, reference, want string }{
		{"utf-8", "/ü?\u2020", "/%C3%BC?%E2%80%A0"},
		{"big5", "?\u2020", "/dir/page?%26%238224%3B"},
		{"euc-kr", "?\u2020", "/dir/page?%A2%D3"},
		{"windows-1252", "?\u2020", "/dir/page?%86"},
		{"iso-8859-1", "?q=é€", "/dir/page?q=%E9%80"},
		{"iso-8859-1", "/é?q=é&r=1#é", "/%C3%A9?q=%E9&r=1"},
		{"iso-8859-1", "http://ü.test/?é", "http://xn--tda.test/?%E9"},
		{"iso-8859-1", "#?é", "/dir/page"},
		{"iso-8859-1", "/é", "/%C3%A9"},
		{"iso-8859-1", "?é?é", "/dir/page?%E9?%E9"},
		{"iso-8859-1", "?%e9'\"<>", "/dir/page?%E9%27%22%3C%3E"},
		{"iso-8859-1", " ?\té ", "/dir/page?%E9"},
		{"iso-8859-1", "?☃&é", "/dir/page?%26%239731%3B&%E9"},
		{"koi8-r", "?д", "/dir/page?%C4"},
		{"windows-1251", "?д☃", "/dir/page?%E4%26%239731%3B"},
		{"gbk", "?€𠀀", "/dir/page?%80%26%23131072%3B"},
		{"gb18030", "?𠀀", "/dir/page?%952%826"},
		{"shift_jis", "?\u2212", "/dir/page?%81|"},
		{"shift_jis", "?ソ\u00a5\u203e", "/dir/page?%83\\\\~"},
		{"euc-jp", "?あ\u2212", "/dir/page?%A4%A2%A1%DD"},
		{"iso-2022-jp", "?\u000e A", "/dir/page?%26%2365533%3B%20A"},
		{"iso-2022-jp", "?あa", "/dir/page?%1B$B$%22%1B(Ba"},
		{"iso-2022-jp", "?あ☃い", "/dir/page?%1B$B$%22%1B(B%26%239731%3B%1B$B$$%1B(B"},
		{"utf-16le", "?é", "/dir/page?%C3%A9"},
		{"utf-16be", "?é", "/dir/page?%C3%A9"},
		{"windows-1252", "?" + strings.Repeat("é", 600), "/dir/page?" + strings.Repeat("%E9", 600)},
	} {
		t.Run(row.charset+" "+row.reference[:min(len(row.reference), 20)], func(t *testing.T) {
			t.Parallel()
			encoded, err := htmlindex.Get(row.charset)
			must.Succeed(t, err)
			// Numeric references, so that the document can have any character.
			var document strings.Builder
			document.WriteString(`<a href="`)
			for _, r := range row.reference {
				fmt.Fprintf(&document, "&#%d;", r)
			}
			text, err := encoded.NewEncoder().String(document.String() + `">`)
			must.Succeed(t, err)
			got, err := links.Read(strings.NewReader(text), links.Config{URL: page, ContentType: "text/html; charset=" + row.charset})
			must.Succeed(t, err)
			want := row.want
			if strings.HasPrefix(want, "/") {
				want = "http://a.test" + want
			}
			if diff := cmp.Diff([]string{want}, got.Links); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNoFollow(t *testing.T) {
	t.Parallel()
	const two = `<a href=/1><a rel="x NoFollow" href=/2>`
	for _, row := range []struct {
		name, document string
		header         []string
		links, skipped int
		closed         bool
	}{
		{"a link", two, nil, 1, 1, false},
		{"another rel", `<a rel="nofollowed ugc" href=/1>`, nil, 1, 0, false},
		{"meta", `<meta name=Robots content="noindex, NOFOLLOW">` + two, nil, 0, 0, true},
		{"meta after links", two + `<meta name=robots content=none>`, nil, 0, 1, true},
		{"meta of this crawler", `<meta name=MyBot content=nofollow>` + two, nil, 0, 0, true},
		{"meta of another crawler", `<meta name=otherbot content=nofollow>` + two, nil, 1, 1, false},
		{"noindex alone", `<meta name=robots content="noindex, follow">` + two, nil, 1, 1, false},
		{"meta in a comment", `<!--<meta name=robots content=nofollow>-->` + two, nil, 1, 1, false},
		{"header", two, []string{"noindex", "max-snippet: 20, nofollow"}, 0, 0, true},
		{"header for this crawler", two, []string{"mybot: nofollow"}, 0, 0, true},
		{"header for another crawler", two, []string{"otherbot: noindex, nofollow"}, 1, 1, false},
		{"header for another and this crawler", two, []string{"otherbot: noindex, mybot: none"}, 0, 0, true},
		{"header with a date", two, []string{"unavailable_after: 25 Jun 2010 15:00:00 PST"}, 1, 1, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := links.Config{URL: page, RobotsTags: row.header, Agent: "mybot/1.0 (+http://a.test)"}
			got, err := links.Read(strings.NewReader(row.document), c)
			if err != nil || len(got.Links) != row.links || got.NoFollow != row.skipped || got.Closed != row.closed {
				t.Errorf("Read = %+v, %v", got, err)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	const first = `<a href=/1>`
	long := strings.Repeat("x", 500<<10)
	spellings := func(n int) string { // of /aaa, as a and %61
		var b strings.Builder
		for i := range n {
			digits := strings.NewReplacer("0", "a", "1", "%61").Replace(fmt.Sprintf("%016b", i))
			b.WriteString("<a href=" + digits + ">")
		}
		return b.String()
	}
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "<a href=/%d>", i)
		}
		return b.String()
	}
	for _, row := range []struct {
		name, document string
		limits         links.Limits
		want           links.Page // with the number of links instead of Links
		links          int
	}{
		{"a million links", many(1_000_000), links.Limits{}, links.Page{Cut: links.CutLinks}, 10_000},
		{"as many links as the limit", many(5), links.Limits{Links: 5}, links.Page{}, 5},
		{"a repeated link at the limit", many(5) + `<a href=/4>`, links.Limits{Links: 5}, links.Page{}, 5},
		{"one link more", many(6), links.Limits{Links: 5}, links.Page{Cut: links.CutLinks}, 5},
		{"long links", strings.Repeat(first+"<a href=/"+long[:8000]+">", 1) + "<a href=/y" + long[:8000] + ">", links.Limits{LinkBytes: 10_000}, links.Page{Cut: links.CutLinkBytes}, 2},
		{"URLs of 500 KiB", `<a href="/` + long + `">` + first + `<iframe src="` + long + `"></iframe><a href=/2>`, links.Limits{}, links.Page{TooLong: 2}, 2},
		{"a relative link that is too long with its base", `<a href="` + long[:normal.MaxURLBytes] + `">` + first, links.Limits{}, links.Page{TooLong: 1}, 1},
		{"a long document", first + strings.Repeat(" ", 2000) + "<a href=/2>", links.Limits{Bytes: 1000}, links.Page{Cut: links.CutBytes}, 1},
		{"a document as long as the limit", first + "<p>", links.Limits{Bytes: int64(len(first) + 3)}, links.Page{}, 1},
		{"a long tag", first + `<p x="` + strings.Repeat("x", 3<<20) + `">` + first, links.Limits{}, links.Page{Cut: links.CutToken}, 1},
		{"a long script", first + `<script>` + strings.Repeat("x", 1<<20) + `</script><a href=/2>`, links.Limits{}, links.Page{}, 2},
		{"equal links of a long base", "<base href=/" + long[:8000] + ">" + strings.Repeat(first, 100_000), links.Limits{}, links.Page{}, 1},
		{"links to parts of a page with a long base", "<base href=/" + long[:8000] + ">" + numbered("<a href=?#%d>", 100_000), links.Limits{}, links.Page{}, 1},
		{"spellings of a link with a long base", "<base href=/" + long[:8000] + "/>" + spellings(1<<16), links.Limits{}, links.Page{Cut: links.CutWork}, 1},
		{"less work than the limit", first + `<a href=/2>`, links.Limits{Work: 5000}, links.Page{}, 2},
		{"more work than the limit", first + `<a href=/2>` + strings.Repeat("<p>", 1000) + `<a href=/3>`, links.Limits{Work: 5000}, links.Page{Cut: links.CutWork}, 2},
		{"equal links", strings.Repeat(first, 100_000) + "<a href=/2>", links.Limits{}, links.Page{}, 2},
		{"no URLs", `<a href="javascript:x"><a href="mailto:a@b.test"><a href="http://[">` + first, links.Limits{}, links.Page{Bad: 3}, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := links.Read(strings.NewReader(row.document), links.Config{URL: page, Limits: row.limits})
			must.Succeed(t, err)
			if len(got.Links) != row.links {
				t.Errorf("%d links, want %d", len(got.Links), row.links)
			}
			got.Links, got.Work = nil, 0
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestWork checks what documents cost that repeat something, so that a limit of the work limits the
// time: each of them takes a few nanoseconds for each unit.
func TestWork(t *testing.T) {
	t.Parallel()
	deep := `<base href="` + strings.Repeat("/bbbbbbbbbbbbbb", 500) + `/">`
	for _, row := range []struct {
		name, contentType, document string
		least, most                 int // thousands
	}{
		{"4,300 equal references with a base of 500 segments", "", deep + strings.Repeat(`<a href=?>`, 4300), 200, 600},
		{"4,300 references with a base of 500 segments", "", deep + numbered(`<a href=?%%%04x>`, 4300), 1_000, 2_000},
		{"10,000 links", "", numbered(`<li><a href="/wiki/Article_about_%d" class="link">x</a></li>`, 10_000), 5_000, 12_000},
		{"10,000 hosts outside ASCII", "", numbered(`<a href=//ü%d.test/>`, 10_000), 25_000, 40_000},
		{"10,000 links of a host outside ASCII", "", numbered(`<a href=//ü.test/%d>`, 10_000), 3_000, 6_000},
		{"200,000 attributes", "", "<a " + numbered("a%d ", 200_000) + ">", 10_000, 20_000},
		{"200,000 attributes of another element", "", "<p " + numbered("a%d ", 200_000) + ">", 5_000, 10_000},
		{"100,000 tags", "", strings.Repeat("<p>", 100_000), 3_000, 6_000},
		{"1 MB of another charset", "text/html; charset=gb18030", strings.Repeat("<p>°¡", 200_000), 12_000, 20_000},
		{"300,000 elements in SVG", "", "<svg>" + strings.Repeat("<g>", 300_000), 8_000, 16_000},
		{"60,000 elements in SVG, and their ends", "", "<svg>" + strings.Repeat("<g>", 60_000) + strings.Repeat("</x>", 60_000), 25_000, 50_000},
		{"60,000 elements of HTML in SVG", "", "<svg><desc>" + strings.Repeat("<b><i>", 30_000) + strings.Repeat("<p>", 30_000), 2_500, 6_000},
		{"a short page", "", "<title>x</title>" + numbered("<a href=/%d>x</a>", 10), 4, 8},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := links.Read(strings.NewReader(row.document), links.Config{URL: page, ContentType: row.contentType})
			if err != nil || got.Cut != "" && got.Cut != links.CutLinkBytes {
				t.Errorf("%d links, cut %q, %v", len(got.Links), got.Cut, err)
			}
			if thousands := got.Work / 1000; thousands < row.least || thousands > row.most {
				t.Errorf("work %d thousand, want %d to %d", thousands, row.least, row.most)
			}
		})
	}
}

// numbered returns n times a format with its number.
func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// TestPause checks that a search calls Pause in time, and that its error ends the search.
func TestPause(t *testing.T) {
	t.Parallel()
	document := "<a href=/1>" + strings.Repeat("<p>", 1<<17)
	ended := errors.New("ended")
	pauses, sum := 0, 0
	got, err := links.Read(strings.NewReader(document), links.Config{URL: page, Pause: func(spent int) error {
		pauses++
		if sum += spent; pauses == 3 {
			return ended
		}
		return nil
	}})
	if !errors.Is(err, ended) || sum != got.Work || sum > 4*work.Quantum {
		t.Errorf("Read = %v after %d pauses and %d of %d work", err, pauses, sum, got.Work)
	}
}

// TestLongTags checks that a document is read on after a long tag, whatever its element contains.
func TestLongTags(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, rest, want string }{
		{"a", `>x</a><a href=/1>`, "/1"},
		{"p", `/><a href=/1>`, "/1"},
		{"noscript", `><a href=/1></noscript>`, "/1"},
		{"template", `><a href=/no></template><a href=/1>`, "/1"},
		{"script", `>"<a href=/no>"</script><a href=/1>`, "/1"},
		{"textarea", `><a href=/no></textarea><a href=/1>`, "/1"},
		{"iframe", `></iframe><a href=/1>`, "/1"},
		{"plaintext", `><a href=/no>`, ""},
		{"an-element-of-a-script", `><a href=/1>`, "/1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			document := "<a href=/0>" + strings.Repeat("<"+row.name+` x="`+strings.Repeat("x", 70_000)+`"`+row.rest+"<b "+strings.Repeat("y ", 1000)+">", 3)
			got, err := links.Read(iotest.HalfReader(strings.NewReader(document)), links.Config{URL: page})
			want := strings.TrimSpace("/0 " + row.want)
			if text := strings.ReplaceAll(strings.Join(got.Links, " "), "http://a.test", ""); err != nil || got.Cut != "" || text != want {
				t.Errorf("links %q, want %q; %+v, %v", text, want, got, err)
			}
		})
	}
}

// TestReadError checks that the error of the reader is returned, at the start of a document and
// later.
func TestReadError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, size := range []int{0, 10, 5000} {
		r := io.MultiReader(strings.NewReader(strings.Repeat(" ", size)), iotest.ErrReader(broken))
		if got, err := links.Read(r, links.Config{URL: page}); !errors.Is(err, broken) {
			t.Errorf("after %d bytes: %+v, %v", size, got, err)
		}
	}
}

// FuzzRead checks that any bytes are a document whose links are distinct normal forms within the
// limits.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`<base href=/x/><a href=1><area href=2 rel=nofollow><meta http-equiv=refresh content="0;url='3'">`), "text/html; charset=shift_jis", "a: nofollow")
	f.Add([]byte("<noscript><a href=x></noscript><template></template></template><script><!--<script>"), "", "unavailable_after: x")
	f.Add([]byte("\xff\xfe<\x00a\x00"), "text/html", "")
	f.Fuzz(func(t *testing.T, document []byte, contentType, tag string) {
		c := links.Config{URL: page, ContentType: contentType, RobotsTags: []string{tag}, Agent: "mybot", Limits: links.Limits{Links: 5, LinkBytes: 200, Bytes: 4000}}
		got, err := links.Read(strings.NewReader(string(document)), c)
		must.Succeed(t, err)
		seen, bytes := map[string]bool{}, 0
		for _, u := range got.Links {
			if again, err := normal.NormalizeURL(u); err != nil || again != u || seen[u] {
				t.Errorf("%q: normal form %q, %v, seen %t", u, again, err, seen[u])
			}
			seen[u] = true
			bytes += len(u)
		}
		if len(got.Links) > 5 || bytes > 200 {
			t.Errorf("%d links of %d bytes", len(got.Links), bytes)
		}
	})
}
