// Package markdown converts HTML pages of strangers to Markdown.
//
// Links become absolute, and what a reader does not see is left out. Time and memory of a conversion
// are bounded: a page that would need too much is refused.
package markdown

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	htmlbase "github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
)

// The limits of a conversion.
const (
	maxNodes = 125_000 // that the parser makes
	maxBytes = 3 << 20 // that are left of its source
	maxToken = 4 << 20 // of a tag, a text or a script
	maxNeed  = 80 << 20
	// maxCleared limits the attributes of the widest tag so far, added for each tag. A tokenizer keeps
	// their names in a map that does not shrink, and clears it for each tag.
	maxCleared = 20_000_000
)

// ErrLimit means that a page has more elements or text than are converted.
var ErrLimit = errors.New("it has too many elements or too much text")

// Content is which part of a page is wanted.
type Content uint8

// The contents.
const (
	Off     Content = iota // no text
	Marked                 // without what the page marks as being around its main content
	Article                // the main text
)

// Fallback is how the text of a page was found after the usual way found none.
type Fallback uint8

// The fallbacks.
const (
	NoFallback    Fallback = iota
	ToMarked               // [Article] found too little: the text is that of [Marked]
	ToNoscript             // the text is for browsers without scripts
	ToArticleBody          // the text is in the page's data for search engines
	Scripted               // there is no text: if the page has any, a script shows it
)

// Page is a page that was converted.
type Page struct {
	Title    string // without line ends and characters that are not seen; empty if there is none
	Text     string
	LeftOut  bool // parts of the page were left out
	Fallback Fallback
}

// Need returns the memory that [From] uses at most for a page, next to the page itself. The error is [ErrLimit] if
// the page is not converted.
func Need(source string) (bytes int64, err error) {
	r := newReducer(nil, 0)
	if err := r.read(source); err != nil {
		return 0, err
	}
	return r.need(), nil
}

// From converts HTML. base is the URL of the page, for relative links. The error is [ErrLimit], unless the
// converter fails.
func From(source, base string, c Content) (page Page, err error) {
	defer func() { // a defect of a library ends this conversion only
		if fault := recover(); fault != nil {
			page, err = Page{}, fmt.Errorf("the converter failed: %v", fault)
		}
	}()
	if c == Off {
		return Page{}, nil
	}
	r, text, err := reduce(source, 0)
	if err != nil {
		return Page{}, err
	}
	p := conversion{article: r.article, indented: r.indented, base: new(url.URL)}
	if u, err := url.Parse(base); err == nil {
		p.base = u
	}
	if u, err := p.base.Parse(strings.TrimSpace(r.base)); err == nil {
		p.base = u
	}
	page, err = p.convert(text, c)
	if err == nil && page.Text == "" {
		page, err = p.fallback(source, r)
	}
	page.Title = r.title
	return page, err
}

// conversion is what is known about a page that is converted.
type conversion struct {
	base     *url.URL // of its links
	article  bool     // it says that it is one
	indented int      // as counted, see reducer
}

// fallback converts what a browser with scripts does not show.
func (p conversion) fallback(source string, r *reducer) (Page, error) {
	for _, try := range []struct {
		shows hiddenParts
		as    Fallback
	}{{noscripts, ToNoscript}, {articleBodies, ToArticleBody}} {
		if r.found&try.shows == 0 {
			continue
		}
		_, text, err := reduce(source, try.shows)
		if err != nil {
			return Page{}, err
		}
		page, err := p.convert(text, Marked)
		if err != nil {
			return Page{}, err
		}
		if page.Text != "" && !(try.as == ToNoscript && asksForScripts(page.Text)) {
			page.Fallback = try.as
			return page, nil
		}
	}
	return Page{Fallback: Scripted}, nil
}

// asksForScripts reports whether a text of <noscript> has nothing of its page.
func asksForScripts(text string) bool {
	const sentences = 500
	return len(text) < sentences && strings.Contains(strings.ToLower(text), "javascript") ||
		!strings.ContainsFunc(images.ReplaceAllString(text, ""), unicode.IsLetter)
}

// images matches images, such as those that count readers.
var images = regexp.MustCompile(`!\[[^\]]*\]\([^)]*\)`)

// reduce returns the source of a page as it is parsed.
func reduce(source string, shows hiddenParts) (*reducer, string, error) {
	r := newReducer(new(strings.Builder), shows)
	err := r.read(source)
	return r, r.out.String(), err
}

// convert converts a source that was reduced.
func (p conversion) convert(source string, c Content) (page Page, err error) {
	doc, steps, err := p.parse(source)
	if err != nil {
		return page, err
	}
	if c == Article {
		if found := findArticle(doc, steps, p.article); found != nil {
			page.LeftOut = true
			page.Text, err = render(found)
			return page, err
		}
		page.Fallback = ToMarked
		if doc, _, err = p.parse(source); err != nil {
			return page, err
		}
	}
	page.LeftOut = keepMain(doc)
	page.Text, err = render(doc)
	if page.LeftOut && page.Text == "" && err == nil { // the page is one menu
		page.LeftOut = false
		if doc, _, err = p.parse(source); err == nil {
			page.Text, err = render(doc)
		}
	}
	return page, err
}

// uncounted is how much of preparer.indented a page may have because its lists are closed in the wrong place.
const uncounted = 1_000_000

// parse returns the tree of a source, and preparer.steps.
func (p conversion) parse(source string) (*html.Node, int, error) {
	doc, err := html.Parse(strings.NewReader(source))
	if err != nil {
		return nil, 0, ErrLimit // elements are nested too deeply
	}
	prepared := &preparer{base: p.base}
	prepared.prepare(doc, 0, 0)
	if prepared.indented > min(p.indented+uncounted, maxIndented) {
		return nil, 0, ErrLimit
	}
	return doc, prepared.steps, nil
}

// render returns the Markdown of a tree. It ends with a newline, if there is any. Empty links leave here, because
// they count where menus are searched.
func render(n *html.Node) (string, error) {
	var empty []*html.Node
	for inner := range n.Descendants() {
		if isEmptyLink(inner) {
			empty = append(empty, inner)
		}
	}
	for _, link := range empty {
		link.Parent.RemoveChild(link)
	}
	c := converter.NewConverter(converter.WithPlugins(htmlbase.NewBasePlugin(), commonmark.NewCommonmarkPlugin(commonmark.WithListEndComment(false)),
		table.NewTablePlugin(table.WithCellPaddingBehavior(table.CellPaddingBehaviorMinimal)), // padding is quadratic
	))
	c.Register.UnEscaper(escapesBracket, converter.PriorityEarly)
	text, err := c.ConvertNode(n)
	if len(text) > 0 {
		text = append(text, '\n')
	}
	return string(text), err
}

// maxLabel is how far the end of a link is searched.
const maxLabel = 200

// escapesBracket returns 1 if there is a bracket at i that may begin a link, and -1 otherwise. The converter searches
// the whole line for the end of the link, in quadratic time. So a bracket without an end nearby is escaped too.
func escapesBracket(text []byte, i int) int {
	if text[i] != '[' {
		return -1
	}
	near := text[i:min(len(text), i+maxLabel)]
	if end := bytes.IndexAny(near, "]\n"); end >= 0 && near[end] == '\n' || end < 0 && len(near) < maxLabel {
		return -1
	}
	return 1
}
