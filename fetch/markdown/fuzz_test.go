package markdown_test

import (
	"errors"
	"testing"
	"unicode/utf8"

	"fetchd/fetch/markdown"
)

// FuzzFrom converts anything. The result of a valid text is a valid text.
func FuzzFrom(f *testing.F) {
	f.Add("<h1>a</h1><p>b <a href='/c?d'>e</a> <b><i>f</b></i>", "https://a.example/")
	f.Add("<table><tr><td rowspan=2 colspan=-1>a<td>b|<tr><th>c</table>", "")
	f.Add("<ol start=99><li><pre>a\n```\nb</pre><li><blockquote>c<br>d", ":")
	f.Add("<title>a</title><nav>b</nav><main role=article>c<aside>d</aside></main><header>e<article>f", "http://a/")
	f.Add("<svg><a><table><td><p></a><math><mi><svg>", "http://[")
	f.Add("<a href='data:,'><img src=data:x><code>`a``</code>&#0;&amp;\\*_[]()<!-- -->", "http://a/")
	f.Add("<noscript><p hidden>a</noscript><script type=application/ld+json>{\"articleBody\":\"b<p>c\"}</script>", "http://a/")
	f.Add("<svg><style><b></style><select><option>a<p></select><template><p>b<plaintext>c", "")
	f.Fuzz(func(t *testing.T, html, base string) {
		for _, c := range []markdown.Content{markdown.Marked, markdown.Article} {
			page, err := markdown.From(html, base, c)
			switch _, refused := markdown.Need(html); {
			case err != nil && !errors.Is(err, markdown.ErrLimit):
				t.Errorf("From(%q, %q, %d): %v", html, base, c, err)
			case refused != nil && err == nil:
				t.Errorf("From(%q, %q, %d) converts what Need refuses: %v", html, base, c, refused)
			case utf8.ValidString(html) && utf8.ValidString(base) && !utf8.ValidString(page.Title+page.Text):
				t.Errorf("From(%q, %q, %d) = %q, which is not UTF-8", html, base, c, page.Title+page.Text)
			}
		}
	})
}
