// Package markdown converts HTML pages of strangers to Markdown.
//
// Links become absolute, and what a reader does not see is left out. Time and memory of a conversion
// are bounded: a page that would need too much is refused.
package markdown

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	htmlbase "github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// The limits of a conversion. A page of a few MiB can make a parser or the converter use
// gigabytes: unclosed formatting is repeated in each paragraph, tables are filled up to their
// longest row, and each line is prefixed for each list around it. A large article has a tenth of
// each.
const (
	maxNodes    = 500_000 // that the parser makes
	maxPrefixes = 500_000 // of lines in lists and quotations
	maxCells    = 100_000 // of tables
	maxSpans    = 10_000  // cells that another one covers
	// maxCleared limits the attributes of the widest tag so far, added for each tag. A tokenizer keeps
	// their names in a map that does not shrink, and clears it for each tag.
	maxCleared = 100_000_000
)

// ErrLimit means that a page has more elements than are converted.
var ErrLimit = errors.New("it has too many elements")

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
	Scripted               // there is no text: a script would show it
)

// Page is a page that was converted.
type Page struct {
	Title    string // without line ends; empty if there is none
	Text     string
	LeftOut  bool // parts of the page were left out
	Fallback Fallback
}

// nodeBytes is the memory of a node, at most, with what the converter makes of it.
const nodeBytes = 2 << 10

// Need returns the memory that [From] uses at most for a page, without the page itself. The error is [ErrLimit]
// if the page is not converted.
func Need(source string) (bytes int64, err error) {
	nodes := countNodes(source)
	if nodes > maxNodes {
		return 0, ErrLimit
	}
	return int64(nodes)*nodeBytes + 8*int64(len(source)), nil
}

// From converts HTML. base is the URL of the page, for relative links. The error is [ErrLimit], unless the
// converter fails.
func From(source, base string, c Content) (Page, error) {
	if c == Off {
		return Page{}, nil
	}
	page, err := convert(source, base, false)
	if c == Article && err == nil {
		page.Fallback = ToMarked
	}
	return page, err
}

// convert converts HTML. Unless whole is true, menus and other parts around the main content are left out.
func convert(source, base string, whole bool) (page Page, err error) {
	defer func() { // a defect of the converter ends this conversion only
		if fault := recover(); fault != nil {
			page, err = Page{}, fmt.Errorf("the converter failed: %v", fault)
		}
	}()
	if countNodes(source) > maxNodes {
		return Page{}, ErrLimit
	}
	doc, err := html.Parse(strings.NewReader(source))
	if err != nil {
		return Page{}, ErrLimit // elements are nested too deeply
	}
	page.Title = title(doc)
	p := &pruner{}
	p.base, _ = url.Parse(base)
	p.prune(doc, 0)
	if p.prefixes > maxPrefixes {
		return Page{}, ErrLimit
	}
	page.LeftOut = !whole && keepMain(doc)
	markdown, err := converter.NewConverter(converter.WithPlugins(htmlbase.NewBasePlugin(), commonmark.NewCommonmarkPlugin(),
		table.NewTablePlugin(table.WithCellPaddingBehavior(table.CellPaddingBehaviorMinimal)), // padding is quadratic
	)).ConvertNode(doc)
	page.Text = string(markdown)
	if page.LeftOut && page.Text == "" && err == nil {
		return convert(source, base, true) // the page is one menu
	}
	return page, err
}

// title returns the title of a page in one line.
func title(doc *html.Node) string {
	for n := range doc.Descendants() {
		if n.DataAtom == atom.Title && n.Namespace == "" && n.FirstChild != nil {
			return strings.Join(strings.Fields(n.FirstChild.Data), " ")
		}
	}
	return ""
}

// formatting are the elements that the HTML standard opens again in the next block if they were
// not closed.
var formatting = map[atom.Atom]bool{atom.A: true, atom.B: true, atom.Big: true, atom.Code: true, atom.Em: true, atom.Font: true, atom.I: true,
	atom.Nobr: true, atom.S: true, atom.Small: true, atom.Strike: true, atom.Strong: true, atom.Tt: true, atom.U: true}

// countNodes returns how many nodes the parser makes of a source at most, about, or more than maxNodes
// if its attributes exceed maxCleared.
func countNodes(source string) int {
	open, all, nodes := make(map[atom.Atom]int), 0, 0 // all: elements of formatting that are open
	widest, cleared := 0, 0
	z := html.NewTokenizer(strings.NewReader(source))
	for nodes <= maxNodes {
		kind := z.Next()
		if kind == html.ErrorToken {
			break
		}
		if kind != html.EndTagToken {
			nodes++
		}
		if kind != html.StartTagToken && kind != html.EndTagToken && kind != html.SelfClosingTagToken {
			continue
		}
		name, more := z.TagName()
		a := atom.Lookup(name)
		if len(z.Raw()) > 1<<10 { // others have few attributes
			widest = max(widest, countAttributes(z, more))
		}
		if cleared += widest; cleared > maxCleared {
			return maxNodes + 1
		}
		switch {
		case kind == html.SelfClosingTagToken:
		case !formatting[a]: // it may end a block, and the next one repeats all formatting
			nodes += all
		case kind == html.EndTagToken:
			nodes += min(all, maxClones) - min(open[a], 1)
			all -= min(open[a], 1)
			open[a] -= min(open[a], 1)
		case a != atom.A || open[a] == 0: // a link ends the one before it
			open[a]++
			all++
		}
	}
	return nodes
}

func countAttributes(z *html.Tokenizer, more bool) (n int) {
	for ; more; n++ {
		_, _, more = z.TagAttr()
	}
	return n
}

// maxClones is how often the parser repeats elements at an end tag between others.
const maxClones = 24

// unseen are the elements that a reader does not see.
var unseen = map[atom.Atom]bool{atom.Head: true, atom.Script: true, atom.Style: true, atom.Noscript: true, atom.Template: true, atom.Iframe: true,
	atom.Svg: true, atom.Input: true, atom.Select: true, atom.Textarea: true, atom.Object: true, atom.Link: true, atom.Meta: true}

// isUnseen reports whether a reader does not see an element. Texts that only a program reads are
// where instructions for a language model are hidden. Rules of style sheets are not known.
func isUnseen(n *html.Node) bool {
	if unseen[n.DataAtom] || n.Data == "svg" {
		return true
	}
	if n.DataAtom == atom.Html || n.DataAtom == atom.Body {
		return false // pages hide their body until a script runs
	}
	for _, a := range n.Attr {
		if a.Key == "hidden" && !strings.EqualFold(a.Val, "until-found") || a.Key == "style" && hides(a.Val) {
			return true
		}
	}
	return false
}

// hides reports whether the declarations of an element hide it.
func hides(style string) bool {
	for declaration := range strings.SplitSeq(strings.ToLower(style), ";") {
		name, value, _ := strings.Cut(declaration, ":")
		value, _, _ = strings.Cut(value, "!")
		switch strings.TrimSpace(name) + ":" + strings.TrimSpace(value) {
		case "display:none", "visibility:hidden":
			return true
		}
	}
	return false
}

// pruner prepares a page for the converter, and measures it.
type pruner struct {
	base     *url.URL
	prefixes int
	cells    int
	spans    int
}

// prune removes what is not seen below n, joins adjacent texts, and makes links absolute. depth
// counts the lists and quotations around n. The converter joins texts too, in quadratic time. The
// parser limits the depth of n.
func (p *pruner) prune(n *html.Node, depth int) {
	var text strings.Builder
	var last *html.Node // the text that is collected
	flush := func() {
		if last != nil {
			last.Data = text.String()
			p.prefixes += depth * strings.Count(last.Data, "\n")
			text.Reset()
			last = nil
		}
	}
	for child := n.FirstChild; child != nil; {
		next := child.NextSibling
		switch {
		case child.Type == html.CommentNode, child.Type == html.ElementNode && isUnseen(child):
			n.RemoveChild(child)
		case child.Type == html.TextNode:
			text.WriteString(child.Data)
			if last == nil {
				last = child
			} else {
				n.RemoveChild(child)
			}
		default:
			flush()
			p.element(child, depth)
		}
		child = next
	}
	flush()
}

func (p *pruner) element(n *html.Node, depth int) {
	p.prefixes += depth
	switch n.DataAtom {
	case atom.Blockquote, atom.Li, atom.Ul, atom.Ol:
		depth++
	case atom.A:
		p.resolve(n, "href")
	case atom.Img:
		p.resolve(n, "src")
	case atom.Td, atom.Th: // the cells of a layout are parts of a line
		n.AppendChild(&html.Node{Type: html.TextNode, Data: " "})
	case atom.Table:
		if p.measure(n); p.cells > maxCells || p.spans > maxSpans {
			n.Attr = []html.Attribute{{Key: "role", Val: "presentation"}} // the converter makes lines of it
		}
	}
	p.prune(n, depth)
}

// resolve makes a link absolute. The data of an image in its URL is left out.
func (p *pruner) resolve(n *html.Node, name string) {
	for i := range n.Attr {
		a := &n.Attr[i]
		if a.Key != name {
			continue
		}
		if strings.HasPrefix(a.Val, "data:") {
			a.Val = ""
		} else if p.base != nil && !strings.HasPrefix(a.Val, "#") {
			if u, err := p.base.Parse(strings.TrimSpace(a.Val)); err == nil {
				a.Val = u.String()
			}
		}
	}
}

// measure adds the cells that the Markdown of a table has: its rows, times those of the longest.
func (p *pruner) measure(table *html.Node) {
	rows, longest := 0, 0
	for n := range table.Descendants() {
		if n.DataAtom != atom.Tr {
			continue
		}
		rows++
		columns := 0
		for cell := range n.ChildNodes() {
			down, right := span(cell, "rowspan"), span(cell, "colspan")
			columns += right
			p.spans += down*right - 1
			rows = max(rows, down)
		}
		longest = max(longest, columns)
	}
	p.cells += rows * longest
}

// span returns the number of rows or columns that a cell spans.
func span(cell *html.Node, name string) int {
	for _, a := range cell.Attr {
		if a.Key == name {
			if n, err := strconv.Atoi(strings.TrimSpace(a.Val)); err != nil || n > maxCells {
				return maxCells + 1
			} else if n > 1 {
				return n
			}
		}
	}
	return 1
}
