package markdown

import (
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// The limits of the Markdown of a page: each list adds to the lines in it, and tables are filled up to their
// longest row.
const (
	maxIndented = 12_000_000 // bytes in lists and quotations, times those around them
	maxLists    = 24         // lists and quotations around another
	maxCells    = 50_000     // of tables
	maxSpans    = 10_000     // cells that another one covers
)

// A line, and an element, count as so many bytes of text.
const (
	bytesOfLine    = 32
	bytesOfElement = 8
)

// indent returns what a text in a list counts.
func indent(text string) int {
	return len(text) + bytesOfLine*strings.Count(text, "\n")
}

// isHidden reports whether an element is not seen. Texts that only a program reads are where instructions for a
// language model are hidden. Rules of style sheets are not known.
func isHidden(n *html.Node) bool {
	return unseen[n.DataAtom] || attribute(n, "hidden") != nil
}

// unseen are elements whose content only a browser without them shows.
var unseen = atoms(atom.Head, atom.Object, atom.Audio, atom.Canvas, atom.Video)

// isEmptyLink reports whether an element is a link that shows nothing, or a link within the page that shows no
// letter, as those next to headings and notes do.
func isEmptyLink(n *html.Node) bool {
	if n.DataAtom != atom.A {
		return false
	}
	within := strings.HasPrefix(value(n, "href"), "#")
	shows := func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) || !within && !unicode.IsSpace(c) }
	for inner := range n.Descendants() {
		if inner.DataAtom == atom.Img || inner.Type == html.TextNode && strings.ContainsFunc(inner.Data, shows) {
			return false
		}
	}
	return true
}

// attribute returns an attribute of an element, or nil.
func attribute(n *html.Node, name string) *html.Attribute {
	for i := range n.Attr {
		if n.Attr[i].Key == name {
			return &n.Attr[i]
		}
	}
	return nil
}

// value returns the value of an attribute. It is empty if there is none.
func value(n *html.Node, name string) string {
	if a := attribute(n, name); a != nil {
		return a.Val
	}
	return ""
}

// preparer prepares a page for the converter, and measures it.
type preparer struct {
	base     *url.URL
	indented int
	cells    int
	spans    int
	steps    int // bytes of text that are read if a walk starts at each element
}

// prepare removes what is hidden below n, joins adjacent texts, and makes links absolute. depth counts the
// elements around n, and lists the lists and quotations. The converter joins texts too, in quadratic time. The
// parser limits the depth.
func (p *preparer) prepare(n *html.Node, depth, lists int) {
	var text strings.Builder
	var last *html.Node // the text that is collected
	flush := func() {
		if last == nil {
			return
		}
		if text.Len() > 0 {
			last.Data = text.String()
			text.Reset()
		}
		p.indented += lists * indent(last.Data)
		p.steps += depth * len(last.Data)
		last = nil
	}
	for child := n.FirstChild; child != nil; {
		next := child.NextSibling
		switch {
		case child.Type == html.CommentNode, child.Type == html.ElementNode && isHidden(child):
			n.RemoveChild(child)
		case child.Type == html.TextNode && last == nil:
			last = child
		case child.Type == html.TextNode:
			if text.Len() == 0 {
				text.WriteString(last.Data)
			}
			text.WriteString(child.Data)
			n.RemoveChild(child)
		default:
			flush()
			p.element(child, depth+1, lists)
		}
		child = next
	}
	flush()
}

func (p *preparer) element(n *html.Node, depth, lists int) {
	p.indented += lists * bytesOfLine
	p.steps += depth * bytesOfElement
	switch n.DataAtom {
	case atom.Blockquote, atom.Li, atom.Ul, atom.Ol:
		if lists++; lists > maxLists {
			lists, n.Data, n.DataAtom = maxLists, "div", atom.Div
		}
	case atom.A:
		p.resolve(n, "href")
	case atom.Img:
		if src := attribute(n, "data-src"); src != nil {
			n.Attr = append(n.Attr, html.Attribute{Key: "src", Val: src.Val})
		}
		p.resolve(n, "src")
	case atom.Td, atom.Th: // the cells of a layout are parts of a line
		n.AppendChild(&html.Node{Type: html.TextNode, Data: " "})
	case atom.Table:
		if p.measureTable(n); p.cells > maxCells || p.spans > maxSpans {
			n.Attr = []html.Attribute{{Key: "role", Val: "presentation"}} // the converter makes lines of it
		}
	}
	p.prepare(n, depth, lists)
}

// resolve makes a link absolute.
func (p *preparer) resolve(n *html.Node, name string) {
	a := attribute(n, name)
	if a == nil || p.base == nil || strings.HasPrefix(a.Val, "#") {
		return
	}
	if strings.HasPrefix(a.Val, "data:") {
		a.Val = ""
	} else if u, err := p.base.Parse(strings.TrimSpace(a.Val)); err == nil {
		a.Val = u.String()
	}
}

// measureTable adds the cells that the Markdown of a table has: its rows, times those of the longest.
func (p *preparer) measureTable(table *html.Node) {
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
	if a := attribute(cell, name); a != nil {
		if n, err := strconv.Atoi(strings.TrimSpace(a.Val)); err != nil || n > maxCells {
			return maxCells + 1
		} else if n > 1 {
			return n
		}
	}
	return 1
}
