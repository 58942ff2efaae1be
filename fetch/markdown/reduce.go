package markdown

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// hiddenParts are the parts of a page that a browser with scripts does not show, and that may have its text.
type hiddenParts uint8

const (
	noscripts     hiddenParts = 1 << iota // <noscript>
	articleBodies                         // articleBody in <script type="application/ld+json">
)

// reducer copies the source of a page for the parser. It leaves out what no reader sees, and all attributes that
// are not used. So a page costs the parser, and all that follows, only what is copied. No element is copied whose
// content the tokenizer reads differently in different places: the parser finds the tags that were counted.
type reducer struct {
	out   *strings.Builder // nil if it only counts
	shows hiddenParts      // that are copied too
	part  bool             // it reads a part of a page; a part has no parts

	title, base string
	found       hiddenParts // that the page has
	article     bool        // the page says that it is an article

	nodes    int // that the parser makes at most, about
	bytes    int // that are copied
	indented int // see preparer.indented
	longest  int // token
	widest   int // attributes of a tag
	clears   int // of attributes; see maxCleared

	open       map[string]int // elements by name
	formatting int            // elements that may be repeated in the next block
	raw        atom.Atom      // the element whose raw text is next
	data       bool           // that text is JSON-LD
	ogType     bool           // the tag is a <meta property="og:type">
	skipped    skipped
	blank      bool // a space here is not seen
}

// The memory of a conversion at most, as measured: for a node with all that is made of it, for a byte of the reduced
// source, for one in lists (see preparer.indented), for one of the longest token, and for an attribute of the widest tag.
const (
	bytesOfNode      = 340
	bytesOfByte      = 15
	bytesOfIndent    = 4
	bytesOfToken     = 6
	bytesOfAttribute = 160
	baseNeed         = 5 << 20
)

// skipped is an element that is not copied, with all in it.
type skipped struct {
	name    string
	depth   int // elements of this name, 0 if nothing is skipped
	foreign int // elements in it that contain HTML
}

// dropped are the elements that are not copied. Their content is, if it is not raw text.
var dropped = atoms(atom.Html, atom.Head, atom.Body, atom.Base, atom.Link, atom.Meta, atom.Param, atom.Source, atom.Track, atom.Frame,
	atom.Frameset, atom.Input, atom.Col, atom.Colgroup, atom.Wbr, atom.Area, atom.Embed, atom.Math, atom.Keygen)

// rawText are the elements whose content the tokenizer reads as one text. None of them is copied.
var rawText = atoms(atom.Script, atom.Style, atom.Noscript, atom.Title, atom.Textarea, atom.Iframe, atom.Noembed, atom.Noframes, atom.Xmp, atom.Plaintext)

// wholly are the elements that are left out with the tags in them.
var wholly = atoms(atom.Svg, atom.Select, atom.Template, atom.Datalist)

// endsSVG are the elements that end an SVG picture, and endsSelect those that end a selection, if it has not ended before.
var (
	endsSVG = atoms(atom.B, atom.Blockquote, atom.Br, atom.Center, atom.Code, atom.Dd, atom.Div, atom.Dl, atom.Dt, atom.Em, atom.H1, atom.H2,
		atom.H3, atom.H4, atom.H5, atom.H6, atom.Hr, atom.I, atom.Img, atom.Li, atom.Ol, atom.P, atom.Pre, atom.Small, atom.Span, atom.Strong,
		atom.Sub, atom.Sup, atom.Table, atom.U, atom.Ul)
	endsSelect = atoms(atom.Input, atom.Textarea, atom.Select, atom.Button, atom.Div, atom.P)
)

// formatting are the elements that the HTML standard opens again in the next block if they were
// not closed.
var formatting = atoms(atom.A, atom.B, atom.Big, atom.Code, atom.Em, atom.Font, atom.I, atom.Nobr, atom.S, atom.Small, atom.Strike,
	atom.Strong, atom.Tt, atom.U)

// inline are elements around which a space is seen.
var inline = atoms(atom.Abbr, atom.Bdi, atom.Bdo, atom.Button, atom.Cite, atom.Data, atom.Del, atom.Dfn, atom.Img, atom.Ins, atom.Kbd, atom.Label,
	atom.Mark, atom.Q, atom.Samp, atom.Span, atom.Sub, atom.Sup, atom.Time, atom.Var, 0)

// void are elements without content.
var void = atoms(atom.Br, atom.Hr, atom.Img, atom.Image)

// implied is how many nodes the parser makes at most for a start tag, next to its element, and impliedAtEnd for an end tag.
var (
	implied      = map[atom.Atom]int{atom.Table: 2, atom.Tbody: 1, atom.Thead: 1, atom.Tfoot: 1}
	impliedAtEnd = map[atom.Atom]int{atom.P: 1, atom.Tr: 1, atom.Tbody: 2, atom.Thead: 2, atom.Tfoot: 2, atom.Caption: 2}
)

func atoms(list ...atom.Atom) map[atom.Atom]bool {
	set := make(map[atom.Atom]bool, len(list))
	for _, a := range list {
		set[a] = true
	}
	return set
}

// newReducer returns a reducer that shows some parts too. It only counts if out is nil.
func newReducer(out *strings.Builder, shows hiddenParts) *reducer {
	return &reducer{out: out, shows: shows, open: make(map[string]int), blank: true}
}

// need returns the memory of a conversion: first the tokens are read, and then the tree is made.
func (r *reducer) need() int64 {
	tokens := r.longest*bytesOfToken + r.widest*bytesOfAttribute + 2*r.bytes
	tree := r.nodes*bytesOfNode + r.bytes*bytesOfByte + r.indented*bytesOfIndent
	return int64(max(tokens, tree)) + baseNeed
}

// lists counts the lists and quotations that are open.
func (r *reducer) lists() int {
	return min(maxLists, 2*(r.open["ul"]+r.open["ol"])+r.open["blockquote"])
}

func (r *reducer) write(s string) {
	r.bytes += len(s)
	if r.out != nil {
		r.out.WriteString(s)
	}
}

// read copies a source. The error is ErrLimit.
func (r *reducer) read(source string) error {
	z := html.NewTokenizer(strings.NewReader(source))
	z.SetMaxBuf(maxToken)
	for {
		kind := z.Next()
		r.longest = max(r.longest, len(z.Raw()))
		raw := r.raw
		r.raw = 0
		switch kind {
		case html.ErrorToken:
			if errors.Is(z.Err(), html.ErrBufferExceeded) {
				return ErrLimit
			}
			return r.limits()
		case html.TextToken:
			if err := r.text(z, raw); err != nil {
				return err
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			r.start(z, kind == html.SelfClosingTagToken)
		case html.EndTagToken:
			r.end(z)
		}
		if err := r.limits(); err != nil {
			return err
		}
	}
}

func (r *reducer) limits() error {
	if r.nodes > maxNodes || r.bytes > maxBytes || r.clears > maxCleared || r.need() > maxNeed {
		return ErrLimit
	}
	return nil
}

func (r *reducer) text(z *html.Tokenizer, raw atom.Atom) error {
	switch {
	case raw == atom.Title && r.skipped.depth == 0:
		if r.title == "" {
			r.title = strings.Join(strings.Fields(strings.Map(seen, string(z.Text()))), " ")
		}
	case raw == atom.Noscript && r.skipped.depth == 0 && !r.part:
		return r.readPart(noscripts, string(z.Raw()))
	case raw == atom.Script && r.data && r.skipped.depth == 0 && !r.part:
		for _, body := range articleBody(z.Raw()) {
			if err := r.readPart(articleBodies, "<p>"+strings.ReplaceAll(body, "\n", "<p>")+"</p>"); err != nil {
				return err
			}
		}
	case raw != 0 || r.skipped.depth > 0:
	case r.blank && r.open["pre"] == 0 && len(bytes.TrimSpace(z.Raw())) == 0:
	default:
		r.nodes++
		r.indented += r.lists() * indent(string(z.Raw()))
		r.blank = false
		r.write(string(z.Raw()))
	}
	return nil
}

// seen returns a character of a title, or -1 if it is not seen.
func seen(c rune) rune {
	if unicode.In(c, unicode.Cc, unicode.Cf) && !unicode.IsSpace(c) {
		return -1
	}
	return c
}

// readPart copies a part that a browser does not show, or counts it.
func (r *reducer) readPart(kind hiddenParts, source string) error {
	r.nodes++ // for the time that a part takes, if there is nothing in it
	r.found |= kind
	if r.shows&kind != 0 {
		r.part = true
		defer func() { r.part = false }()
		return r.read(source)
	}
	other := newReducer(nil, 0)
	other.part = true
	err := other.read(source)
	r.nodes += other.nodes
	r.bytes += other.bytes
	r.indented += other.indented
	r.longest = max(r.longest, len(source)+other.longest) // both are in memory
	r.widest = max(r.widest, other.widest)
	r.clears += other.clears
	return err
}

// The limits of JSON-LD. What follows is not read.
const (
	maxDepth  = 100 // of objects and lists
	maxBodies = 1000
)

// articleBody returns the texts named articleBody in JSON.
func articleBody(data []byte) (bodies []string) {
	if !bytes.Contains(data, []byte(`"articleBody"`)) {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	var objects []bool // what is open: an object, or a list
	for key := ""; len(objects) <= maxDepth && len(bodies) < maxBodies; {
		token, err := decoder.Token()
		if err != nil {
			return bodies
		}
		delimiter, _ := token.(json.Delim)
		text, isText := token.(string)
		isKey := key == "" && isText && len(objects) > 0 && objects[len(objects)-1]
		switch {
		case isKey:
			key = "=" + text
			continue
		case delimiter == '{', delimiter == '[':
			objects = append(objects, delimiter == '{')
		case delimiter != 0:
			objects = objects[:len(objects)-1]
		case isText && key == "=articleBody":
			bodies = append(bodies, text)
		}
		key = ""
	}
	return bodies
}

// start reads a start tag.
func (r *reducer) start(z *html.Tokenizer, closed bool) {
	tag, more := z.TagName()
	a := atom.Lookup(tag)
	name := a.String()
	if a == 0 {
		name = string(tag)
	}
	kept, hidden := r.attributes(z, more, a)
	if rawText[a] {
		r.raw = a
	}
	switch {
	case r.skips(a, name, closed):
	case wholly[a], a == atom.Math && hidden:
		if !closed {
			r.skipped = skipped{name: name, depth: 1}
		}
		r.write(" ")
	case rawText[a], dropped[a]:
	default:
		r.element(a, name, kept)
	}
}

// skips reports whether a start tag is left out with the element around it.
func (r *reducer) skips(a atom.Atom, name string, closed bool) bool {
	s := &r.skipped
	switch {
	case s.depth == 0:
		return false
	case s.name == "select" && endsSelect[a], s.name == "svg" && s.foreign == 0 && endsSVG[a]:
		s.depth = 0
		return a == atom.Select
	case name == s.name && !closed:
		s.depth++
	case (name == "foreignobject" || a == atom.Desc) && !closed:
		s.foreign++
	}
	return true
}

// element copies a start tag.
func (r *reducer) element(a atom.Atom, name, attributes string) {
	r.nodes += 1 + implied[a]
	r.indented += r.lists() * bytesOfLine
	if !formatting[a] {
		r.nodes += r.formatting // it may end a block, and the next one repeats all formatting
		r.blank = !inline[a]
	}
	r.write("<" + name + attributes + ">")
	if void[a] || a == atom.A && r.open[name] > 0 { // a link ends the one before it
		return
	}
	r.open[name]++
	if formatting[a] {
		r.formatting++
	}
}

// maxClones is how often the parser repeats elements at an end tag between others.
const maxClones = 24

// end reads an end tag. It is copied if there is a start tag.
func (r *reducer) end(z *html.Tokenizer) {
	tag, _ := z.TagName()
	r.clears += r.widest
	if s := &r.skipped; s.depth > 0 {
		switch name := string(tag); name {
		case s.name:
			s.depth--
		case "foreignobject", "desc":
			s.foreign = max(0, s.foreign-1)
		}
		return
	}
	a := atom.Lookup(tag)
	if dropped[a] || r.open[string(tag)] == 0 {
		return
	}
	r.open[string(tag)]--
	if formatting[a] {
		r.formatting--
		r.nodes += min(r.formatting, maxClones)
	} else {
		r.nodes += r.formatting + impliedAtEnd[a]
		r.blank = !inline[a]
	}
	r.write("</" + string(tag) + ">")
}

// attributes reads the attributes of a tag, and returns those that are copied. hidden reports whether the element is not seen.
func (r *reducer) attributes(z *html.Tokenizer, more bool, a atom.Atom) (copied string, hidden bool) {
	var kept strings.Builder
	n, closed := 0, a == atom.Dialog
	r.data, r.ogType = false, false
	for ; more; n++ {
		var name, value []byte
		name, value, more = z.TagAttr()
		switch string(name) {
		case "hidden":
			hidden = hidden || !strings.EqualFold(string(value), "until-found")
		case "open":
			closed = false
		case "style":
			hidden = hidden || hides(string(value))
		case "type":
			r.data = a == atom.Script && strings.EqualFold(strings.TrimSpace(string(value)), "application/ld+json")
		case "property":
			r.ogType = a == atom.Meta && string(value) == "og:type"
		case "content":
			r.article = r.article || r.ogType && string(value) == "article"
		default:
			kept.WriteString(r.keeps(a, string(name), value))
		}
	}
	r.widest = max(r.widest, n)
	r.clears += r.widest
	if hidden = hidden || closed; hidden {
		kept.WriteString(" hidden")
	}
	return kept.String(), hidden
}

// maxName is how much of a class or an id is used.
const maxName = 200

// keeps returns an attribute as it is copied.
func (r *reducer) keeps(a atom.Atom, name string, value []byte) string {
	keep := false
	switch name {
	case "role":
		keep = true
	case "class", "id":
		keep = !formatting[a] || a == atom.Code
		value = value[:min(len(value), maxName)]
	case "href":
		keep = a == atom.A
		if a == atom.Base && r.base == "" {
			r.base = string(value)
		}
	case "src", "alt", "data-src":
		keep = a == atom.Img && !bytes.HasPrefix(value, []byte("data:"))
	case "title":
		keep = a == atom.A || a == atom.Img
	case "rowspan", "colspan":
		keep = a == atom.Td || a == atom.Th
	case "start":
		keep = a == atom.Ol
	}
	if !keep || len(value) == 0 {
		return ""
	}
	return " " + name + `="` + html.EscapeString(string(value)) + `"`
}

// comments matches the comments of CSS.
var comments = regexp.MustCompile(`(?s)/\*.*?(\*/|$)`)

// hides reports whether the declarations of an element hide it.
func hides(style string) bool {
	for declaration := range strings.SplitSeq(strings.ToLower(comments.ReplaceAllString(style, " ")), ";") {
		name, value, _ := strings.Cut(declaration, ":")
		value, _, _ = strings.Cut(value, "!")
		switch strings.TrimSpace(name) + ":" + strings.TrimSpace(value) {
		case "display:none", "visibility:hidden", "visibility:collapse":
			return true
		}
	}
	return false
}
