package main

import (
	"strings"
	"testing"

	"fetchd/internal/cli"
)

const sitemapSpace = `xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"`

func TestAddSitemap(t *testing.T) {
	t.Parallel()
	whole := `<?xml version="1.0" encoding="UTF-8"?>
<urlset ` + sitemapSpace + ` xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
  <url>
    <loc>
      http://a.test/?a=1&amp;b=2
    </loc>
    <lastmod>2005-01-01</lastmod>
    <image:image><image:loc>http://a.test/image.png</image:loc></image:image>
    <image:loc>http://a.test/other.png</image:loc>
  </url>
  <url><loc><![CDATA[http://a.test/cdata?a&b]]></loc></url>
  <url><loc>http://a.test/&#x31;<!-- a comment -->2</loc></url>
  <url><loc>bad</loc></url>
  <url><priority>1.0</priority></url>
  <other><loc>http://a.test/other</loc></other>
</urlset>
`
	const held = "http://a.test/?a=1&b=2 http://a.test/cdata?a&b http://a.test/12"
	const bad = "stdin:13: URL has the wrong scheme: it has none\n"
	in := func(text string) string { return "<urlset " + sitemapSpace + ">\n" + text }
	const one = "<url><loc>http://a.test/1</loc></url>\n"
	const rest = "; the rest was not read\n"
	for _, tt := range []struct {
		name, text string
		urls, bad  string
	}{
		{"whole", whole, held, bad},
		{"compressed", zipped(t, whole), held, bad},
		{"a byte order mark", "\ufeff" + whole, held, bad},
		{"CRLF", strings.ReplaceAll(whole, "\n", "\r\n"), held, bad},
		{"without a namespace", "<urlset>" + one + "</urlset>", "http://a.test/1", ""},
		{"with a prefix", `<s:urlset xmlns:s="x"><s:url><s:loc>http://a.test/1</s:loc></s:url></s:urlset>`, "http://a.test/1", ""},
		{"text", "http://a.test/1\r\nhttp://a.test/2\r\n", "http://a.test/1 http://a.test/2", ""},
		{"compressed text", zipped(t, "\ufeffhttp://a.test/1\n"), "http://a.test/1", ""},
		{"nothing", "", "", ""},
		{"an empty loc", in("<url><loc> </loc></url></urlset>"), "", "stdin:2: URL has the wrong scheme: it has none\n"},
		{"a loc that is too long", in("<url><loc>http://a.test/" + strings.Repeat("x", 70_000) + "</loc></url>" + one + "</urlset>"), "http://a.test/1",
			"stdin:2: URL is too long: 70014 bytes, the limit is 8192\n"},
		{"an index", "<sitemapindex " + sitemapSpace + ">\n<sitemap><loc>https://u:secret@a.test/1.xml.gz</loc></sitemap>\n<sitemap><loc>no</loc></sitemap></sitemapindex>", "https://a.test/1.xml.gz",
			"stdin:3: URL has the wrong scheme: it has none\n"},
		{"a feed", "<rss><channel></channel></rss>", "", "stdin:1: the element \"rss\" is neither urlset nor sitemapindex, so this is not a sitemap" + rest},
		{"only a comment", "<!-- nothing -->", "", "stdin:1: it has no element urlset, so it is not a sitemap" + rest},
		{"cut off", in(one + "<url><loc>http://a.test/2"), "http://a.test/1", "stdin:3: XML syntax error on line 3: unexpected EOF" + rest},
		{"badly nested", in(one + "<url></loc>"), "http://a.test/1", "stdin:3: XML syntax error on line 3: element <url> closed by </loc>" + rest},
		{"an entity of its own", "<!DOCTYPE urlset [<!ENTITY x \"http://a.test/\">]>\n" + in("<url><loc>&x;</loc></url></urlset>"), "",
			"stdin:3: XML syntax error on line 3: invalid character entity &x;" + rest},
		{"another encoding", `<?xml version="1.0" encoding="ISO-8859-1"?>` + in(one), "",
			"stdin:1: xml: opening charset \"ISO-8859-1\": its encoding is \"ISO-8859-1\", but a sitemap must be UTF-8" + rest},
		{"a name for UTF-8", `<?xml version="1.0" encoding="utf8"?>` + in(one+"</urlset>"), "http://a.test/1", ""},
		{"too deep", in(one + strings.Repeat("<a>", 100)), "http://a.test/1", "stdin:3: elements are nested more than 64 deep" + rest},
		{"a comment that is too long", in(one + "<!--" + strings.Repeat("x", 1<<20) + "-->"), "http://a.test/1", "stdin:3: one tag or text is longer than 1 MiB" + rest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCrawl(t)
			got := c.add(tt.text, "--sitemap", "-")
			code := cli.ExitOK
			if tt.bad != "" {
				code = cli.ExitBadInput
			}
			if got.code != code {
				t.Errorf("exit status %d, want %d", got.code, code)
			}
			diff(t, "errors", tt.bad, got.err)
			diff(t, "URLs", tt.urls, c.urls())
		})
	}
}
