package markdown

import (
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// part is what an element is for a page, as its name or role says.
type part int

const (
	other   part = iota
	main         // the main content
	article      // an article
	section      // a part with its own headers
	menu         // navigation or search
	around       // a header, footer or aside: of the site, unless it is in one of the first three
)

var (
	elements = map[atom.Atom]part{atom.Main: main, atom.Article: article, atom.Section: section, atom.Nav: menu, atom.Search: menu,
		atom.Header: around, atom.Footer: around, atom.Aside: around}
	roles = map[string]part{"main": main, "article": article, "navigation": menu, "search": menu,
		"banner": around, "contentinfo": around, "complementary": around}
)

func partOf(n *html.Node) part {
	if p, ok := roles[strings.ToLower(strings.TrimSpace(value(n, "role")))]; ok {
		return p
	}
	return elements[n.DataAtom]
}

// keepMain removes what is not the main content, as far as the page says what that is: everything outside its
// main element, menus, and headers, footers and asides around its articles. It reports whether it removed
// something.
func keepMain(doc *html.Node) (removed bool) {
	var mains []*html.Node
	content := false // there is a main element or an article
	for n := range doc.Descendants() {
		switch partOf(n) {
		case main:
			mains = append(mains, n)
			content = true
		case article:
			content = true
		}
	}
	if len(mains) == 1 {
		for n := mains[0]; n.Parent != nil && n.DataAtom != atom.Body; n = n.Parent {
			removed = removeOthers(n) || removed
		}
	}
	_, some := removeParts(doc, content, false)
	m := menus{page: measure(doc)}
	m.remove(doc, within{})
	return removed || some || m.removed
}

// removeOthers removes the siblings of an element, and reports whether there were any but spaces.
func removeOthers(n *html.Node) (removed bool) {
	for sibling := n.Parent.FirstChild; sibling != nil; {
		next := sibling.NextSibling
		if sibling != n {
			n.Parent.RemoveChild(sibling)
			removed = removed || sibling.Type != html.TextNode || strings.TrimSpace(sibling.Data) != ""
		}
		sibling = next
	}
	return removed
}

// removeParts removes menus below n, and what is around articles. It reports whether there is an article or a
// main element below n, and whether it removed something. content says that the page has one, and within that n
// is in one or in a section.
func removeParts(n *html.Node, content, within bool) (has, removed bool) {
	for child := n.FirstChild; child != nil; {
		next := child.NextSibling
		kind := partOf(child)
		is := kind == main || kind == article
		below, some := removeParts(child, content, within || is || kind == section)
		removed = removed || some
		if !below && (kind == menu || kind == around && content && !within) {
			remove(child)
			removed = true
		}
		has = has || is || below
		child = next
	}
	return has, removed
}

// remove removes an element. The texts around it do not become one word.
func remove(n *html.Node) {
	n.Parent.InsertBefore(&html.Node{Type: html.TextNode, Data: " "}, n)
	n.Parent.RemoveChild(n)
}

// amount is how much an element has.
type amount struct {
	text, linked int // characters, and those of links
	links        int
	code         bool // a listing
	heading      bool // the heading of the page
}

func (a *amount) add(b amount) {
	a.text += b.text
	a.linked += b.linked
	a.links += b.links
	a.code = a.code || b.code
	a.heading = a.heading || b.heading
}

func measure(n *html.Node) (a amount) {
	if n.Type == html.TextNode {
		a.text = countText(n.Data)
		return a
	}
	for child := range n.ChildNodes() {
		a.add(measure(child))
	}
	a.count(n)
	return a
}

// count adds what an element is to what its content has.
func (a *amount) count(n *html.Node) {
	switch n.DataAtom {
	case atom.A:
		a.linked = a.text
		a.links++
	case atom.H1:
		a.heading = true
	case atom.Pre:
		a.code = true
	}
}

// countText counts characters, and adjacent spaces as one.
func countText(s string) (n int) {
	space := true
	for _, c := range s {
		if is := unicode.IsSpace(c); !is || !space {
			n++
			space = is
		}
	}
	return n
}

// blocks are the elements that can be menus.
var blocks = atoms(atom.Div, atom.Ul, atom.Ol, atom.Section, atom.Aside, atom.Header, atom.Footer, atom.Nav, atom.Form, atom.Dl, atom.Table, atom.P)

// menus removes what is not content from a page.
type menus struct {
	page    amount
	removed bool
}

// The shares of the text of a page, in percent, and other limits. They were chosen by measurement (test/reader).
const (
	maxNamed  = 50   // of an element that is removed for its name
	maxMenu   = 30   // of another element that is removed
	linkList  = 50   // of links, above which they are what the page is about
	menuLinks = 70   // of links in a menu
	minLinks  = 3    // of a menu
	maxLink   = 40   // characters for each link of a menu
	maxForm   = 1000 // characters of a form
	siteDepth = 4    // elements from the body to the header of a site
)

// within says what is around an element.
type within struct {
	content bool // an article or the main content
	heading bool
	depth   int // below the body
}

// remove removes the elements below n that are not content, and returns what n has had.
func (m *menus) remove(n *html.Node, in within) (has amount) {
	if n.Type == html.TextNode {
		return measure(n)
	}
	in.depth++
	switch {
	case n.DataAtom == atom.Body:
		in.depth = 0
	case partOf(n) == main, partOf(n) == article:
		in.content = true
	case isHeading[n.DataAtom], value(n, "role") == "heading":
		in.heading = true
	}
	for child := n.FirstChild; child != nil; {
		next := child.NextSibling
		a := m.remove(child, in)
		if child.Type == html.ElementNode && !a.code && !a.heading && m.isBoilerplate(child, a, in) {
			remove(child)
			m.removed = true
		}
		has.add(a)
		child = next
	}
	has.count(n)
	return has
}

var isHeading = atoms(atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Summary, atom.Dt, atom.Pre)

// isBoilerplate reports whether an element that has a is a menu or the like.
func (m *menus) isBoilerplate(n *html.Node, a amount, in within) bool {
	share := 100 * a.text / max(1, m.page.text)
	switch {
	case share >= maxNamed || in.heading:
		return false
	case n.DataAtom == atom.Button, isNamed(n):
		return true
	case share >= maxMenu:
		return false
	case n.DataAtom == atom.Form, n.DataAtom == atom.Fieldset:
		return a.text < maxForm
	case n.DataAtom == atom.Header, n.DataAtom == atom.Footer:
		return in.depth < siteDepth && !in.content
	}
	return blocks[n.DataAtom] && a.isMenu() && m.page.linked*100 <= m.page.text*linkList
}

// isMenu reports whether there is little but short links.
func (a amount) isMenu() bool {
	return a.links >= minLinks && a.linked*100 > a.text*menuLinks && a.text < maxLink*a.links
}

// isNamed reports whether a class or the id of an element says that it is not content: its words include one of
// boilerplate, and no other words than those that say where it is.
func isNamed(n *html.Node) bool {
	for name := range strings.FieldsSeq(value(n, "class") + " " + value(n, "id")) {
		if namesBoilerplate(name) {
			return true
		}
	}
	return false
}

var camel = regexp.MustCompile(`([a-z0-9])([A-Z])`)

func namesBoilerplate(name string) (is bool) {
	for word := range strings.FieldsFuncSeq(strings.ToLower(camel.ReplaceAllString(name, "$1-$2")), func(c rune) bool { return !unicode.IsLetter(c) }) {
		switch {
		case boilerplate[word]:
			is = true
		case !places[word]:
			return false
		}
	}
	return is
}

func words(list string) map[string]bool {
	set := make(map[string]bool)
	for word := range strings.FieldsSeq(list) {
		set[word] = true
	}
	return set
}

var (
	boilerplate = words(`nav navbar navigation menu menus megamenu submenu footer sidebar breadcrumb breadcrumbs cookie cookies consent gdpr
		share sharing sharer social socials related recommended recommendations newsletter subscribe subscription signup login promo
		ad ads advert advertisement advertising sponsor sponsored popup modal skip toolbar pagination pager masthead topbar
		copyright offcanvas drawer`)
	places = words(`top bottom left right main site page global primary secondary mobile desktop header head foot bar list links link items item
		wrapper wrap container content inner outer area section block box row col column widget widgets module component group
		post posts entry article articles blog wp the c m l o js is has of and to icon icons button buttons btn text title banner
		media new more you may also like notice region panel layout sub fixed sticky full width light dark custom default style`)
)
