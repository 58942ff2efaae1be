package links

import (
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// space is the namespace of an element.
type space byte

const (
	inHTML space = iota
	inSVG
	inMath
)

// element is an open element of a document.
type element struct {
	name  string
	space space
	kind  kind
}

// foreign is the stack of open elements from an svg or math element on, and HTML in them. It is empty
// outside of them.
type foreign struct {
	open []element
	// around counts the open elements of HTML outside of the stack, by their number in tags: start tags
	// without an end tag. Elements that other tags have closed count too.
	around [256]int
	// steps is the number of elements that were compared with a tag.
	steps int
}

// maxOpen limits the stack. As in browsers, an element that is deeper takes the place of the last one.
const maxOpen = 128

// kind is what the tree construction of the HTML standard asks about an element.
type kind uint16

const (
	special    kind = 1 << iota // 13.2.4.2, The stack of open elements
	void                        // it has no content
	breaksOut                   // its start tag ends foreign content: 13.2.6.5
	closesP                     // its start tag closes a p element
	formatting                  // its end tag runs the adoption agency algorithm
	ofTable                     // its end tag is not limited by an integration point
	holdsHTML                   // an HTML integration point: start tags in it are those of HTML
	holdsText                   // a MathML text integration point: so are most of these
)

// tagInfo is what is known of the name of an element of HTML.
type tagInfo struct {
	kind   kind
	number uint8 // zero for an element that no end tag closes
}

var tags = tagsOf(map[kind]string{
	special | closesP: `address article aside details dialog dir fieldset figcaption figure footer form header hgroup main nav
		plaintext search section summary xmp`,
	special | closesP | breaksOut: "blockquote center dd div dl dt h1 h2 h3 h4 h5 h6 li listing menu ol p pre ul",
	special | breaksOut:           "body head",
	special: `applet button frameset html iframe marquee noembed noframes noscript object script select style
		template textarea title`,
	special | void:                          "area base basefont bgsound col frame image input keygen link param source track wbr",
	special | void | breaksOut:              "br embed img meta",
	special | void | breaksOut | closesP:    "hr",
	special | ofTable:                       "caption colgroup tbody td tfoot th thead tr",
	special | ofTable | closesP | breaksOut: "table",
	formatting:                              "a font",
	formatting | breaksOut:                  "b big code em i nobr s small strike strong tt u",
	breaksOut:                               "ruby span strong sub sup var",
	0:                                       "abbr bdi bdo canvas cite data dfn del ins kbd label legend map mark meter optgroup option output picture progress q rp rt samp slot time video audio",
})

func tagsOf(kinds map[kind]string) map[string]tagInfo {
	tags := make(map[string]tagInfo)
	for k, names := range kinds {
		for name := range strings.FieldsSeq(names) {
			tags[name] = tagInfo{kind: k}
			if k&void == 0 && name != "html" && name != "head" && name != "body" {
				tags[name] = tagInfo{k, uint8(len(tags))}
			}
		}
	}
	return tags
}

// startForeign reads a start tag in or before foreign content, and returns the namespace of its element.
func (s *search) startForeign(z *html.Tokenizer, name string, more, isClosed bool) space {
	if len(s.open) == 0 && name != "svg" && name != "math" { // the usual case, without the closure
		s.around[tags[name].number]++
		return inHTML
	}
	before := s.steps
	in := s.start(name, isClosed, func(names ...string) (value string, ok bool) {
		for more && s.spend(perAttribute) {
			var key, text []byte
			if key, text, more = z.TagAttr(); slices.Contains(names, string(key)) {
				return string(text), true
			}
		}
		return "", false
	})
	s.spend(perStep * (s.steps - before))
	return in
}

// endForeign reads an end tag in foreign content, and reports whether its element is not one of HTML.
func (s *search) endForeign(name string) bool {
	before := s.steps
	isForeign := s.foreign.end(name)
	s.spend(perStep * (s.steps - before))
	return isForeign
}

// start adds an element for a start tag, and returns its namespace. attribute returns the first attribute
// with one of some names; it is called once.
func (f *foreign) start(name string, isClosed bool, attribute func(names ...string) (value string, ok bool)) space {
	info := tags[name]
	if top := f.top(); !top.startsHTML(name) {
		breaks := info.kind&breaksOut != 0
		if name == "font" {
			_, breaks = attribute("color", "face", "size")
		}
		if !breaks {
			e := newForeign(name, top.space, attribute)
			if !isClosed {
				f.push(e)
			}
			return top.space
		}
		f.breakOut()
	}
	e := element{name: name, kind: info.kind}
	switch {
	case name == "svg":
		e.space, e.kind = inSVG, 0
	case name == "math":
		e.space, e.kind = inMath, 0
	case len(f.open) == 0: // the start tag has ended them
		f.around[info.number]++
		return inHTML
	default:
		f.startHTML(e)
		return inHTML
	}
	if !isClosed {
		f.push(e)
	}
	return e.space
}

func newForeign(name string, in space, attribute func(names ...string) (value string, ok bool)) element {
	e := element{name: name, space: in}
	switch name {
	case "foreignobject", "desc", "title":
		if in == inSVG {
			e.kind = special | holdsHTML
		}
	case "mi", "mo", "mn", "ms", "mtext":
		if in == inMath {
			e.kind = special | holdsText
		}
	case "annotation-xml":
		if in == inMath {
			e.kind = special
			if value, _ := attribute("encoding"); strings.EqualFold(value, "text/html") || strings.EqualFold(value, "application/xhtml+xml") {
				e.kind |= holdsHTML
			}
		}
	}
	return e
}

// startsHTML reports whether a start tag in e is one of HTML: 13.2.6, tree construction dispatcher.
func (e element) startsHTML(name string) bool {
	return e.space == inHTML || e.kind&holdsHTML != 0 || e.kind&holdsText != 0 && name != "mglyph" && name != "malignmark" ||
		e.space == inMath && e.name == "annotation-xml" && name == "svg"
}

// top returns the last element. Outside of foreign content it is one of HTML.
func (f *foreign) top() element {
	if len(f.open) == 0 {
		return element{}
	}
	return f.open[len(f.open)-1]
}

func (f *foreign) push(e element) {
	f.open = append(f.open[:min(len(f.open), maxOpen-1)], e)
}

// breakOut ends elements up to one that holds HTML.
func (f *foreign) breakOut() {
	for f.top().space != inHTML && f.top().kind&(holdsHTML|holdsText) == 0 {
		f.open = f.open[:len(f.open)-1]
	}
}

// startHTML adds an element of HTML within foreign content.
func (f *foreign) startHTML(e element) {
	if e.kind&closesP != 0 {
		f.endHTML("p", tags["p"])
	}
	switch e.name {
	case "li", "dd", "dt":
		f.endItem(e.name)
	case "a", "button", "nobr":
		f.endHTML(e.name, tags[e.name])
	case "html", "head", "body", "frameset":
		return
	}
	if e.kind&ofTable != 0 && e.name != "table" && !f.startInTable(e.name) {
		f.open = nil
		return
	}
	if e.kind&void != 0 {
		return
	}
	f.push(e)
}

// endItem ends an item of a list before the next one.
func (f *foreign) endItem(name string) {
	for i := len(f.open) - 1; i >= 0 && f.open[i].space == inHTML; i-- {
		f.steps++
		switch e := f.open[i]; {
		case e.name == name, name != "li" && (e.name == "dd" || e.name == "dt"):
			f.open = f.open[:i]
			return
		case e.kind&special != 0 && e.name != "address" && e.name != "div" && e.name != "p":
			return
		}
	}
}

// startInTable ends the parts of a table that a start tag of another part ends. It reports whether
// there is a table.
func (f *foreign) startInTable(name string) bool {
	around := map[string]string{"td": "tr tbody thead tfoot", "th": "tr tbody thead tfoot", "tr": "tbody thead tfoot"}[name] + " table"
	for i := len(f.open) - 1; i >= 0 && f.open[i].space == inHTML; i-- {
		f.steps++
		for part := range strings.FieldsSeq(around) {
			if f.open[i].name == part {
				f.open = f.open[:i+1]
				return true
			}
		}
	}
	return false
}

// end ends the elements that an end tag ends, and reports whether they are not those of HTML.
func (f *foreign) end(name string) bool {
	if name == "p" || name == "br" {
		f.breakOut()
	}
	i := len(f.open) - 1
	for ; i >= 0 && f.open[i].space != inHTML; i-- {
		f.steps++
		if f.open[i].name == name {
			f.open = f.open[:i]
			return true
		}
	}
	switch {
	case name == "template": // see endTemplate
	default:
		f.endHTML(name, tags[name])
	}
	return false
}

// endTemplate ends the elements in the last template.
func (f *foreign) endTemplate() {
	i := len(f.open) - 1
	for i > 0 && (f.open[i].space != inHTML || f.open[i].name != "template") {
		i--
	}
	f.open = f.open[:max(i, 0)]
}

// endHTML ends the elements that an end tag ends in HTML content: 13.2.6.4.7.
func (f *foreign) endHTML(name string, info tagInfo) {
	k := info.kind
	bound := -1 // the last special element
	for i := len(f.open) - 1; i >= 0; i-- {
		f.steps++
		e := f.open[i]
		switch {
		case e.space == inHTML && e.name == name && k&formatting != 0 && bound >= 0:
			f.open = append(f.open[:i], f.open[i+1:]...)
			return
		case e.space == inHTML && e.name == name:
			f.open = f.open[:i]
			return
		case k&ofTable != 0:
			if e.space == inHTML && e.name == "table" {
				return
			}
		case e.limits(name), k&(special|formatting) == 0 && e.kind&special != 0:
			return
		case e.kind&special != 0:
			bound = i
		}
	}
	if f.endAround(info) {
		f.open = nil
	}
}

// endAround reads an end tag of an element outside of the stack, and reports whether there is one.
func (f *foreign) endAround(info tagInfo) bool {
	if info.number == 0 || f.around[info.number] == 0 {
		return false
	}
	f.around[info.number]--
	return true
}

// limits reports whether the elements around e are not in the scope of an end tag: 13.2.4.2.
func (e element) limits(name string) bool {
	if e.space != inHTML {
		return e.kind&special != 0
	}
	switch e.name {
	case "applet", "caption", "marquee", "object", "table", "td", "template", "th":
		return true
	}
	return name == "p" && e.name == "button"
}
