package markdown_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"fetchd/fetch/markdown"
)

// convert converts a page, and returns its text without the newline that ends it.
func convert(t *testing.T, source, base string, c markdown.Content) (markdown.Page, error) {
	t.Helper()
	page, err := markdown.From(source, base, c)
	text, ends := strings.CutSuffix(page.Text, "\n")
	if ends != (page.Text != "") {
		t.Errorf("a text ends without a newline: %q", text)
	}
	page.Text = text
	return page, err
}

// TestFrom converts small pages.
func TestFrom(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, html, want string }{
		{"headings and text", "<h1>A</h1><p>b <b>c</b> <em>d</em></p>", "# A\n\nb **c** *d*"},
		{"a list", "<ul><li>a<li>b<ul><li>c</ul></ul>", "- a\n- b\n  \n  - c"},
		{"code", "<pre><code class=language-go>a\n\nb</code></pre>", "```go\na\n\nb\n```"},
		{"a table", "<table><tr><th>a<th>b<tr><td>c<td>d</table>", "| a | b |\n|---|---|\n| c | d |"},
		{"a table with a span", "<table><tr><th>a<th>b<tr><td colspan=2>c</table>", "| a | b |\n|---|---|\n| c |  |"},
		{"a span without end", "<table><tr><th>a<th>b<tr><td colspan=999999999999>c</table>", "a b \n\nc"},
		{"a table in a table", "<table><tr><td>a<table><tr><td>b</table></table>", "a\n\n|  |\n|---|\n| b |"},
		{"a relative link", `<a href="../c?d#e">f</a>`, "[f](https://a.example/c?d#e)"},
		{"a link within the page", `<a href="#e">f</a>`, "[f](#e)"},
		{"a link that shows nothing", "<a href=/b> <svg></svg></a>a", "a"},
		{"a link that shows a sign", "<a href=/b>→</a>", "[→](https://a.example/b)"},
		{"the place of a heading", "<h1>A<a href=#a>¶</a></h1>", "# A"},
		{"two lists", "<ul><li>a</ul><ul><li>b</ul>", "- a\n\n- b"},
		{"an image", `<img alt=x src=/y.png>`, "![x](https://a.example/y.png)"},
		{"an image in its URL", `<p>a<img alt=x src="data:image/png;base64,AAAA">`, "a"},
		{"what is not seen", "<head><title>t</title></head><script>a</script><style>b</style><!-- c --><template>d</template><noscript>e</noscript><svg><text>f</text></svg><select><option>h</select>g", "g"},
		{"what an attribute hides", `<p hidden>a</p><p hidden="until-found">b</p><div style="color:red; DISPLAY : none !important"><p>c</div><p style="visibility:hidden">d</p><p style="display:block">e</p>`, "b\n\ne"},
		{"what comments do not show", `<p style="display:/**/none">a</p><p style="/*;*/visibility:collapse/*">b</p><p style="/*display:none*/">c`, "c"},
		{"a hidden formula", `<math hidden><mtext><p>a</p></mtext></math><math style="display:none"><mi>b</mi></math><math><mi>c</mi></math>`, "c"},
		{"what old browsers show", "<canvas>a</canvas><video><p>b</p></video><audio>c</audio>d", "d"},
		{"dialogs", "<dialog>a</dialog><dialog open>b</dialog>", "b"},
		{"brackets", "<p>[a] ![b] [c ![d</p><p>[" + strings.Repeat("e", 300), `\[a] !\[b] [c ![d` + "\n\n\\[" + strings.Repeat("e", 300)},
		{"a body that a script shows", `<body style="display:none" hidden><p>a`, "a"},
		{"texts around a comment", "<p>a<!-- b -->c", "ac"},
		{"nothing", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if got, err := convert(t, row.html, "https://a.example/b/index.html", markdown.Marked); got.Text != row.want || got.LeftOut || err != nil {
				t.Errorf("markdown.From(%q) = %+v, %v; want %q", row.html, got, err, row.want)
			}
		})
	}
}

// TestMain leaves out what is around the main content.
func TestMain(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, html, want string }{
		{"one main element", "<p>a</p><div><p>b</p><main>c</main><p>d</div><p>e", "c"},
		{"one element with the role", `<p>a</p><div role="main">c</div>`, "c"},
		{"the role in capitals", `<p>a</p><div role=" MAIN ">c</div>`, "c"},
		{"a main element that is hidden, and another one", "<p>a</p><main hidden>b</main><main>c</main>", "c"},
		{"a menu, a header and a footer around an article", "<header>a</header><nav>b</nav><article><h1>c</h1></article><aside>d</aside><footer>e</footer>", "# c"},
		{"the same with roles", `<div role=banner>a</div><div role=navigation>b</div><div role=article>c</div><div role=complementary>d</div><div role=contentinfo>e</div><div role=search>f</div>`, "c"},
		{"a menu in an article", "<article>a<nav>b</nav>c</article>", "a c"},
		{"a header and an aside in an article", "<nav>x</nav><article><header>a</header><aside>b</aside></article>", "a\n\nb"},
		{"a header and an aside in the main content", "<nav>x</nav><main><header>a</header><aside>b</aside></main>", "a\n\nb"},
		{"a header of a section", "<nav>x</nav><section><header>a</header><article>b</article></section>", "a\n\nb"},
		{"a header around everything", "<header><nav>x</nav><article>a</article></header>", "a"},
		{"a menu without an article", "<header>a</header><nav>b</nav><p>c</p><footer>d</footer>", "a\n\nc\n\nd"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := convert(t, row.html, "", markdown.Marked)
			if got.Text != row.want || !got.LeftOut || err != nil {
				t.Errorf("markdown.From(%q) = %+v, %v; want %q", row.html, got, err, row.want)
			}
		})
	}
	for _, row := range []struct{ name, html, want string }{
		{"a header without an article", "<header>a</header><aside>b</aside>", "a\n\nb"},
		{"two main elements", "<main>a</main><main>b</main>", "a\n\nb"},
		{"nothing but a menu", "<nav>a</nav>", "a"},
		{"a main element that a script fills", "<p>a</p><main> </main>", "a"},
		{"spaces around the main element", " <main>a</main> ", "a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if got, err := convert(t, row.html, "", markdown.Marked); got.Text != row.want || got.LeftOut || err != nil {
				t.Errorf("markdown.From(%q) = %+v, %v; want %q and nothing left out", row.html, got, err, row.want)
			}
		})
	}
}

// TestTitle reads the title of a page.
func TestTitle(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, html, want string }{
		{"a title", "<title>a &amp; b</title>c", "a & b"},
		{"lines and spaces", "<title>\n a\n\t b </title>", "a b"},
		{"elements in a title", "<title><b>a</b></title>", "<b>a</b>"},
		{"the title of a picture", "<svg><title>a</title></svg><p>b", ""},
		{"an empty title", "<title></title>a", ""},
		{"no title", "a", ""},
		{"characters that are not seen", "<title>&#8206; a\x01&#8238;b\u2028c\u200b</title>", "ab c"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if got, err := convert(t, row.html, "", markdown.Marked); got.Title != row.want || err != nil {
				t.Errorf("markdown.From(%q) has the title %q, %v; want %q", row.html, got.Title, err, row.want)
			}
		})
	}
}

// TestHostile converts pages that make a converter use gigabytes.
func TestHostile(t *testing.T) {
	const (
		whole = 4 << 20 // of the default limit of fetchctl mcp
		size  = whole / 4
	)
	fill := func(head, piece string) string { return head + strings.Repeat(piece, (size-len(head))/len(piece)) }
	var open strings.Builder
	for i := range 500 {
		fmt.Fprintf(&open, "<b id=%d>", i)
	}
	for _, row := range []struct {
		name, html string
		complex    bool
	}{
		{"open elements", fill("", "<div>"), true},
		{"line breaks", strings.Repeat("<br>", whole/4), true},
		{"formatting that is not closed", fill(open.String(), "<p>x"), true},
		{"formatting that is closed wrongly", fill(open.String(), "<p></i>x"), true},
		{"lines in quotations", fill(strings.Repeat("<blockquote>", 500), "x<br>"), true},
		{"lines of code in lists", fill(strings.Repeat("<ul><li>", 200)+"<pre>", "x\n"), true},
		{"texts between comments", strings.Repeat("x<!---->", whole/8), true},
		{"long texts between comments", fill("", strings.Repeat("x", 40)+"<!---->"), false},
		{"one long text", fill("<p>", "x"), false},
		{"one long word of signs", fill("<p>", "*"), false},
		{"one long line of spaces", fill("<p>", " \u00a0"), false},
		{"brackets", fill("<p>", "[a](b"), false},
		{"brackets that are not closed", fill("<p>", "["), false},
		{"images that are not closed", fill("<p>", "!&#91;"), false},
		{"brackets in noscript", "<noscript>" + fill("<p>", "["), false},
		{"less-than signs", fill("<p>", "&lt;"), false},
		{"backquotes in code", fill("<code>", "`"), false},
		{"code blocks", fill("", "<pre>a b c d e f g h i j k l m n o</pre>"), false},
		{"a row and many rows", "<table><tr>" + strings.Repeat("<td>", size/8) + strings.Repeat("<tr>", size/8), true},
		{"spans", fill("<table>", `<tr><td colspan="1000" rowspan="1000">x`), false},
		{"spans within the limit", "<table>" + strings.Repeat("<tr>"+strings.Repeat("<td colspan=2>", 90), 100), false},
		{"nested tables", fill(strings.Repeat("<table><tr><td>a<tr><td>", 100), "xxxxxxxxx "), false},
		{"a wide cell and many rows", "<table><tr><td>" + strings.Repeat("x", 1<<20) + strings.Repeat("<tr><td>y", 40_000), false},
		{"links", fill("", `<a href="/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa">x</a>`), false},
		{"a link around everything", fill(`<a href=/b>`, "<p>xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"), false},
		{"nested links", fill("", "<a href=/x>yyyyyyyyyyyyyyyy"), false},
		{"attributes", "<p " + fill("", "a=b ") + ">", false},
		{"many attributes", "<p " + numbered("a%d ", 400_000) + ">", true},
		{"many attributes, and other tags", "<p " + numbered("a%d ", 50_000) + ">" + fill("", "<p a>"), true},
		{"some attributes, and other tags", "<p " + numbered("a%d ", 300) + ">" + strings.Repeat("<p a>xxxxxxxxxxxxx", 20_000), false},
		{"list items", fill("<ol>", "<li>xxxxxxxxxxxxxxxxxxxxxxxxxxxx"), false},
		{"bold in bold", fill("", "<b>xxxxxxxxxxxxxxxxxxxxxxxxxxxx<i>yyyyyyyyyyy</i></b>"), false},
		{"headings", fill("", "<h1>xxxxxxxxxxxxxxxxxxxxxxxxxxx</h1>"), false},
		{"entities", fill("<p>", "&amp;&notit;"), false},
		{"headers in headers", fill(strings.Repeat("<header>", 400), "<p>xxxxxxxxxxxxxxxxxxxxxxxxxxxx") + "<article>x", false},
		{"menus", fill("<main>", "<nav>xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx</nav>"), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			page, err := convert(t, row.html, "https://a.example/", markdown.Marked)
			runtime.ReadMemStats(&after)
			allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%v, %d MiB allocated, %d bytes of text", time.Since(start), allocated, len(page.Text))
			if errors.Is(err, markdown.ErrLimit) != row.complex || !row.complex && err != nil {
				t.Errorf("error %v, want one: %t", err, row.complex)
			}
			if allocated > 2<<10 {
				t.Errorf("%d MiB were allocated", allocated)
			}
		})
	}
}

// numbered returns a format with the numbers up to n.
func numbered(format string, n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, format, i)
	}
	return s.String()
}

// sentences returns a text of n sentences.
func sentences(n int) string {
	return strings.Repeat("The bridge was opened in May, and the river, as before, runs below it. ", n)
}

// TestMenus leaves out what is around the content without elements that say so.
func TestMenus(t *testing.T) {
	t.Parallel()
	text := "<p>" + sentences(20) + "</p>"
	want := strings.TrimSpace(sentences(20))
	links := "<a href=/a>a</a> <a href=/b>b</a> <a href=/c>c</a>"
	for _, row := range []struct {
		name, html string
		kept       bool
	}{
		{"a class", "<div class='x site-footer'>gone</div>", true}, // x says something else, site-footer does not
		{"a class of BEM", "<div class=mainMenu__list>gone</div>", true},
		{"an id", "<p id=cookie-consent>gone</p>", true},
		{"a class with another word", "<div class=menu-recipes>stays</div>", false},
		{"a widget", "<div class=elementor-widget>stays</div>", false},
		{"links", "<div>" + links + "</div>", true},
		{"two links", "<div><a href=/a>stays</a> <a href=/b>stays</a></div>", false},
		{"links in a text", "<div>" + links + sentences(2) + "</div>", false},
		{"a button", "<p><button>gone</button></p>", true},
		{"a button in a heading", "<h2><button>stays</button></h2>", false},
		{"a button in a heading by its role", "<p role=heading><button>stays</button></p>", false},
		{"a form", "<form>gone</form>", true},
		{"the header of a site", "<div><header>gone</header></div>", true},
		{"a header with the heading", "<div><header><h1>stays</h1></header></div>", false},
		{"a listing in a toolbar", "<div class=toolbar><pre>stays</pre></div>", false},
		{"an author", "<p class=byline>stays</p>", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := convert(t, row.html+text, "", markdown.Marked)
			if gone := got.Text == want; gone != row.kept || got.LeftOut != row.kept || err != nil {
				t.Errorf("markdown.From(%q) = %.100q, %t, %v; want it left out: %t", row.html, got.Text, got.LeftOut, err, row.kept)
			}
		})
	}
	list := "<p>x</p><ul>" + numbered("<li><a href=/%d>a link</a></li>", 30) + "</ul>"
	if got, err := convert(t, list, "", markdown.Marked); !strings.Contains(got.Text, "29") || err != nil {
		t.Errorf("a list of links is %q, %v", got.Text, err)
	}
}

// TestArticle finds the main text.
func TestArticle(t *testing.T) {
	t.Parallel()
	post := "<div class=post><div class=user>Ann</div><p>" + sentences(2) + "</p></div>"
	for _, row := range []struct {
		name, html string
		want, not  []string
		fallback   markdown.Fallback
	}{
		{"an article", "<title>T</title><div class=wrap><div class=c1><h1>T</h1><p class=byline>By Ann</p><p>" + sentences(9) + "</p><pre><code class=language-go>a\n\tb</code></pre><p>" + sentences(9) +
			"<b>c</b> <code>d  e</code> <a href=/f>g</a></p></div><div class=c2><b>other</b></div></div>", []string{"# T\n", "By Ann", "```go\na\n\tb\n```", "**c**", "`d e`", "[g](http://a.example/f)"}, []string{"other", "## T"}, markdown.NoFallback},
		{"a forum", "<h1>T</h1><table><tr><td>" + post + "</table><div>" + strings.Repeat("<span>"+post+"</span>", 12) + "</div>", []string{"T", "Ann"}, nil, markdown.NoFallback},
		{"links", "<h1>T</h1>" + numbered("<div><a href=/%d>a link to a page</a></div>", 30), []string{"/29"}, nil, markdown.NoFallback},
		{"a page too deep for a search", strings.Repeat("<div>", 400) + "<p>" + sentences(2000), []string{"bridge"}, nil, markdown.ToMarked},
		{"what is hidden", "<p>" + sentences(9) + "</p><p hidden>no</p><p style='display:none'>no</p>", []string{"bridge"}, []string{"no"}, markdown.NoFallback},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := convert(t, row.html, "http://a.example/", markdown.Article)
			if err != nil || got.Fallback != row.fallback {
				t.Errorf("fallback %d, %v; want %d", got.Fallback, err, row.fallback)
			}
			for _, part := range row.want {
				if !strings.Contains(got.Text, part) {
					t.Errorf("%q is not in %.1000q", part, got.Text)
				}
			}
			for _, part := range row.not {
				if strings.Contains(got.Text, part) {
					t.Errorf("%q is in %.1000q", part, got.Text)
				}
			}
		})
	}
}

// TestFallback converts pages that scripts fill.
func TestFallback(t *testing.T) {
	t.Parallel()
	const script = "<script>render()</script>"
	data := func(s string) string { return `<script type="application/ld+json">` + s + "</script>" }
	for _, row := range []struct {
		name, html, want string
		fallback         markdown.Fallback
	}{
		{"a text", "<p>a</p><noscript>b</noscript>" + script + data(`{"articleBody":"c"}`), "a", markdown.NoFallback},
		{"noscript", "<noscript><h1>a</h1></noscript>" + script, "# a", markdown.ToNoscript},
		{"noscript that is hidden", "<div hidden><noscript>a</noscript></div>" + script, "", markdown.Scripted},
		{"noscript with hidden text", "<noscript>a<p style='display: none'>b</p></noscript>" + script, "a", markdown.ToNoscript},
		{"noscript that asks for scripts", "<noscript>Please enable JavaScript.</noscript>" + script, "", markdown.Scripted},
		{"noscript that counts readers", "<noscript><img src=/count.gif alt=a></noscript>" + script, "", markdown.Scripted},
		{"an articleBody", data(`{"@graph":[{"name":"articleBody","articleBody":"a &amp; b\nc"}]}`) + script, "a & b\n\nc", markdown.ToArticleBody},
		{"an articleBody with hidden text", data(`{"articleBody":"a<p hidden>b"}`), "a", markdown.ToArticleBody},
		{"an articleBody that is hidden", "<div hidden>" + data(`{"articleBody":"a"}`) + script, "", markdown.Scripted},
		{"an articleBody in many lists", data(`{"articleBody":"a","b":`+strings.Repeat("[", 101)+strings.Repeat("]", 101)+`,"articleBody":"c"}`) + script, "a", markdown.ToArticleBody},
		{"noscript in noscript", "<noscript>a<noscript>b</noscript>", "a", markdown.ToNoscript},
		{"data that breaks off", data(`{"articleBody":"a`) + script, "", markdown.Scripted},
		{"scripts", "<div id=root></div>" + script, "", markdown.Scripted},
		{"nothing", "<div></div>", "", markdown.Scripted},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range []markdown.Content{markdown.Marked, markdown.Article} {
				got, err := convert(t, row.html, "", c)
				if c == markdown.Article && got.Fallback == markdown.ToMarked {
					got.Fallback = markdown.NoFallback // the texts are short
				}
				if got.Text != row.want || got.Fallback != row.fallback || err != nil {
					t.Errorf("markdown.From(%q, %d) = %+v, %v; want %q, %d", row.html, c, got, err, row.want, row.fallback)
				}
			}
		})
	}
}

// TestSource reads sources that parsers read differently in different places.
func TestSource(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, html, want string }{
		{"tags in a style of a picture", "<svg><style><div><p>a</style></svg>b", "b"},
		{"a picture that is not closed", "<svg><path d=a><p>b", "b"},
		{"HTML in a picture", "<svg><foreignObject><p>a</p></foreignObject></svg>b", "b"},
		{"an icon between words", "<p>a<svg/>b<svg></svg>c", "a b c"},
		{"a selection that is not closed", "<select><option>a<input>b", "b"},
		{"a formula", "<math><mi>a</mi><mo>+</mo><mi>b</mi></math>", "a+b"},
		{"an end without a start", "a</b></p></div>b", "ab"},
		{"another base", "<base href=/c/><a href=d>e</a>", "[e](https://a.example/c/d)"},
		{"an image that is loaded later", "<img alt=a data-src=/b.png>", "![a](https://a.example/b.png)"},
		{"spaces", "<p>a <b>b</b> <i>c</i>\n<span>d</span> <a href=/e>e</a></p>\n<p>f</p>", "a **b** *c* d [e](https://a.example/e)\n\nf"},
		{"spaces in a listing", "<pre>a\n  <b> </b>\n\n  b</pre>", "```\na\n   \n\n  b\n```"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if got, err := convert(t, row.html, "https://a.example/", markdown.Marked); got.Text != row.want || err != nil {
				t.Errorf("markdown.From(%q) = %q, %v; want %q", row.html, got.Text, err, row.want)
			}
		})
	}
}
