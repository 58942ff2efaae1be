package markdown

import (
	"strings"

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
	for _, a := range n.Attr {
		if p, ok := roles[strings.ToLower(strings.TrimSpace(a.Val))]; ok && a.Key == "role" {
			return p
		}
	}
	return elements[n.DataAtom]
}

// keepMain removes what is not the main content, as far as the page says what that is: everything outside its
// main element, menus, and headers, footers and asides around its articles. It reports whether it removed
// something. It reads only elements and roles: a page that has none of them is kept.
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
	_, some := removeMenus(doc, content, false)
	return removed || some
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

// removeMenus removes menus below n, and what is around articles. It reports whether there is an article or a
// main element below n, and whether it removed something. content says that the page has one, and within that n
// is in one or in a section.
func removeMenus(n *html.Node, content, within bool) (has, removed bool) {
	for child := n.FirstChild; child != nil; {
		next := child.NextSibling
		kind := partOf(child)
		is := kind == main || kind == article
		below, some := removeMenus(child, content, within || is || kind == section)
		removed = removed || some
		if !below && (kind == menu || kind == around && content && !within) {
			n.InsertBefore(&html.Node{Type: html.TextNode, Data: " "}, child) // the texts around it are not one word
			n.RemoveChild(child)
			removed = true
		}
		has = has || is || below
		child = next
	}
	return has, removed
}
