package links

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/text/encoding/unicode"

	"fetchd/frontier/normal"
	"fetchd/frontier/work"
	"fetchd/internal/sniff"
)

// Limits of a document. Zero means the default.
type Limits struct {
	Bytes     int64 // of the document: 16 MiB
	Links     int   // distinct links: 10,000
	LinkBytes int   // of all links in their normal form: 1 MiB
	Work      int   // of the search, as package work counts it: 128 Mi
}

const (
	defaultBytes     = 16 << 20
	defaultLinks     = 10_000
	defaultLinkBytes = 1 << 20
	defaultWork      = 128 << 20
	// maxToken limits a tag, a text or a script.
	maxToken = 2 << 20
	// peek is how much of a document is read to find its charset: HTML standard, prescan.
	peek = sniff.HeadBytes
)

// Costs in the unit of package work, in addition to the bytes of the document and of references.
const (
	perToken     = 32
	perTagByte   = 2  // of a tag with attributes
	perSpace     = 16 // in a tag
	perAttribute = 32 // of an element that may have a link
	perReference = 64
	perStep      = 2 // of a search for an open element
	// perDecoded is what a byte costs whose charset is not UTF-8, including its search.
	perDecoded = 3
)

// Config configures [Read].
type Config struct {
	URL         string // of the document
	ContentType string // the value of the header; may be empty
	// RobotsTags are the values of the header X-Robots-Tag.
	RobotsTags []string
	// Agent is the name of the crawler, whose meta element and X-Robots-Tag lines apply too.
	Agent string
	// Requisites has [Page.Requisites] and [Page.Title] found. The document may then be a style sheet, a manifest or an
	// SVG image too, by its ContentType.
	Requisites bool
	// NoLinks has no links found.
	NoLinks bool
	Limits  Limits
	// Pause is called after each [work.Quantum] with the work since the last call. Its error ends the
	// search. It may be nil.
	Pause func(spent int) error
}

// Page is what a document links to.
type Page struct {
	// Links are distinct, in their normal form, and in the order of the document.
	Links []string
	// NoFollow is the number of links with rel=nofollow, and Closed means that the whole page asked
	// not to follow its links. Neither are in Links.
	NoFollow int
	Closed   bool
	// Requisites are what the document needs to be shown, distinct and in its order, at most [MaxRequisites].
	Requisites []Requisite
	// OverRequisites is how many references to more requisites that limit has left out.
	OverRequisites int
	Title          string // at most 500 bytes of it
	// TooLong is the number of links of more than [normal.MaxURLBytes], and Bad that of other links
	// without a normal form, such as javascript: and mailto:.
	// Equal references count once.
	TooLong, Bad int
	// Work is what the search has cost, as package work counts it.
	Work int
	// Cut says which limit ended the search; empty if none did.
	Cut string
}

// Limits that end a search.
const (
	CutBytes     = "the document is longer than the limit"
	CutSheet     = "the style sheet is longer than 4 MiB"
	CutToken     = "a tag or a text is longer than 2 MiB"
	CutLinks     = "the page has more links than the limit"
	CutLinkBytes = "the links of the page are longer than the limit"
	CutWork      = "the search of the page needs more work than the limit"
)

// CutName returns the name of a limit that ended a search, for metrics.
func CutName(cut string) string {
	return map[string]string{CutBytes: "bytes", CutSheet: "sheet_bytes", CutToken: "token", CutLinks: "links", CutLinkBytes: "link_bytes", CutWork: "work"}[cut]
}

// Read returns the links of a document. The error is that of r or of c.Pause.
func Read(r io.Reader, c Config) (Page, error) {
	c.Limits = c.Limits.withDefaults()
	s := &search{config: c, url: c.URL, meter: &work.Meter{Limit: c.Limits.Work, Pause: c.Pause},
		seen: make(map[string]struct{}), references: make(map[reference]struct{})}
	if isXML(c.ContentType) {
		s.xml = &xml{}
	}
	s.page.Closed = headerCloses(c.RobotsTags, c.Agent)
	bounded := &io.LimitedReader{R: r, N: c.Limits.Bytes + 1}
	if err := s.document(bounded); err != nil {
		return Page{}, err
	}
	if bounded.N <= 0 && s.page.Cut == "" {
		s.page.Cut = CutBytes
	}
	if s.page.Closed {
		s.page.Links = nil
	}
	s.page.Work = s.meter.Spent()
	return s.page, s.err
}

// document reads a document of any of the types that are searched.
func (s *search) document(r io.Reader) error {
	if s.config.Requisites {
		switch kindOf(s.config.ContentType, s.config.URL) {
		case sheet:
			return s.readSheet(r)
		case manifest:
			return s.readManifest(r)
		}
	}
	text, err := s.decoded(r)
	if err == nil {
		s.run(text)
	}
	return err
}

func (l Limits) withDefaults() Limits {
	return Limits{cmp.Or(l.Bytes, defaultBytes), cmp.Or(l.Links, defaultLinks), cmp.Or(l.LinkBytes, defaultLinkBytes), cmp.Or(l.Work, defaultWork)}
}

// DocumentBytes returns how much of a document is read.
func (l Limits) DocumentBytes() int64 { return l.withDefaults().Bytes }

// search is the state of one document.
type search struct {
	input
	foreign
	config    Config
	xml       *xml // nil for HTML
	meter     *work.Meter
	perByte   int            // what a byte of the document costs
	queries   *queryEncoding // nil for UTF-8
	page      Page
	url       string // that references are relative to
	base      *normal.Base
	based     bool // a base element was read
	templates int  // open template elements
	seen      map[string]struct{}
	bytes     int // of page.Links
	queue     []reference
	// requisites are the places of page.Requisites, by URL.
	requisites map[string]int
	text       string // the element whose text comes next: style or title, or empty
	// references are those that were resolved, to resolve equal ones once: the first ones, up to
	// maxRemembered.
	references map[reference]struct{}
	remembered int
	err        error // ends the search
}

// ended reports whether the rest of the document is not read.
func (s *search) ended() bool {
	return s.page.Cut != "" || (s.page.Closed || s.config.NoLinks) && !s.config.Requisites || s.err != nil
}

// spend adds work, and reports whether the search goes on.
func (s *search) spend(n int) bool {
	err := s.meter.Spend(n)
	switch {
	case errors.Is(err, work.ErrLimit):
		s.page.Cut = CutWork
	case err != nil:
		s.err = err
	}
	return err == nil
}

// run reads the document to its end or to a limit.
func (s *search) run(r io.Reader) {
	z := newTokenizer(r)
	for !s.ended() {
		z.AllowCDATA(s.xml != nil || s.top().space != inHTML)
		kind := z.Next()
		size := len(z.Raw())
		if !s.spend(s.tokenCost(kind, z.Raw())) {
			break
		}
		if s.xml != nil && s.xml.skips(kind, z.Raw()) {
			continue
		}
		switch kind {
		case html.ErrorToken:
			s.flush()
			s.end(z.Err())
			return
		case html.TextToken:
			s.content(z)
		case html.EndTagToken:
			s.text = ""
			s.endTag(z)
		case html.StartTagToken, html.SelfClosingTagToken:
			name, isMarkup := s.tag(z, kind == html.SelfClosingTagToken)
			switch {
			case s.declared != "":
				r = s.change(z, r)
				z = newTokenizer(r)
			case size > longTag:
				r = rest(z, name, r)
				z = newTokenizer(r)
				z.Next() // the start tag
			}
			if isMarkup {
				z.NextIsNotRawText()
			}
		}
	}
	s.flush()
}

func newTokenizer(r io.Reader) *html.Tokenizer {
	z := html.NewTokenizer(r)
	z.SetMaxBuf(maxToken)
	return z
}

// longTag is the length of a tag after which there is a new tokenizer. A tokenizer keeps the names of
// the attributes of a tag in a map, which does not shrink, and clears it for each tag: after one tag
// of 200,000 attributes, each other tag takes 0.1 ms.
const longTag = 1 << 10

// rest returns what follows the start tag that z has just read from r. It begins with the tag without
// its attributes, because the content of some elements is text.
func rest(z *html.Tokenizer, name string, r io.Reader) io.Reader {
	if name == "" || len(name) > len("plaintext") {
		name = "p"
	}
	return io.MultiReader(strings.NewReader("<"+name+">"), bytes.NewReader(bytes.Clone(z.Buffered())), r)
}

// tokenCost returns the work for a token.
func (s *search) tokenCost(kind html.TokenType, raw []byte) int {
	cost := perToken + s.perByte*len(raw)
	if kind == html.StartTagToken || kind == html.SelfClosingTagToken {
		cost += perTagByte * len(raw)
		for _, c := range []byte(" \t\r\n\f") { // between attributes
			cost += perSpace * bytes.Count(raw, []byte{c})
		}
	}
	return cost
}

// end ends the search where the tokenizer has ended.
func (s *search) end(err error) {
	switch {
	case errors.Is(err, io.EOF):
	case errors.Is(err, html.ErrBufferExceeded):
		s.page.Cut = CutToken
	default:
		s.err = fmt.Errorf("read the document: %w", err)
	}
}

// attributes are those of a tag that matter here.
type attributes struct {
	href, src, data, rel, media, name, equiv, content, charset, xlink string
	hasHref                                                           bool

	// Those of requisites.
	as, style, background, poster, lowsrc, srcset, imagesrcset string
	lazy, lazySets                                             []string
}

// endTag reads an end tag.
func (s *search) endTag(z *html.Tokenizer) {
	raw, _ := z.TagName()
	isTemplate := string(raw) == "template"
	switch {
	case s.xml != nil:
		isTemplate = s.xml.name(z.Raw(), raw) == "template"
	case len(s.open) == 0:
		s.endAround(tags[string(raw)])
	case s.endForeign(string(raw)):
		return
	}
	if isTemplate && s.templates > 0 {
		s.templates--
		s.endTemplate()
	}
}

// tag reads a start tag, and returns the name of its element. isMarkup means that its content is no
// text, whatever its name is. isClosed means that the tag ends with a slash.
func (s *search) tag(z *html.Tokenizer, isClosed bool) (name string, isMarkup bool) {
	raw, more := z.TagName()
	name = string(raw)
	in := inHTML
	if s.xml != nil {
		name = s.xml.name(z.Raw(), raw)
	} else {
		in = s.startForeign(z, name, more, isClosed)
	}
	isMarkup = s.xml != nil || in != inHTML || name == "noscript"
	s.element(z, name, in, more, isClosed && (s.xml != nil || in != inHTML))
	return name, isMarkup
}

// element reads an element. isEmpty means that it has no end tag.
func (s *search) element(z *html.Tokenizer, name string, in space, more, isEmpty bool) {
	s.text = ""
	follows := in == inHTML || in == inSVG && name == "a"
	switch name {
	case "template":
		if in == inHTML && !isEmpty {
			s.templates++
		}
		return
	case "a", "area", "link", "iframe", "frame", "embed", "object", "meta", "base":
	case "style", "title":
		if s.config.Requisites && !isEmpty && (name == "style" || in == inHTML) {
			s.text = name
		}
		follows = false
	default:
		follows = false
	}
	if s.templates > 0 || !follows && !s.config.Requisites {
		return
	}
	a := s.read(z, more)
	if s.config.Requisites {
		s.needs(name, &a)
	}
	switch {
	case !follows:
	case name == "base":
		s.setBase(a)
	case name == "meta":
		s.meta(a)
	default:
		s.follow(name, &a)
	}
}

// follow adds the link of a tag.
func (s *search) follow(name string, a *attributes) {
	switch name {
	case "link":
		if a.isLink() {
			s.add(a.href, a.rel)
		}
	case "iframe", "frame":
		if a.src != "" {
			s.add(a.src, "")
		}
	case "embed":
		if a.src != "" && a.isHTML() {
			s.add(a.src, "")
		}
	case "object":
		if a.data != "" && a.isHTML() {
			s.add(a.data, "")
		}
	case "a", "area":
		if a.hasHref {
			s.add(a.href, a.rel)
		} else if a.xlink != "" && name == "a" && (s.xml != nil || s.top().space == inSVG) {
			s.add(a.xlink, a.rel)
		}
	}
}

// read reads the attributes of a tag. Of one that comes twice, the first counts.
func (s *search) read(z *html.Tokenizer, more bool) (a attributes) {
	for more && s.spend(perAttribute) {
		var key, value []byte
		key, value, more = z.TagAttr()
		switch string(key) {
		case "href":
			if !a.hasHref {
				a.href, a.hasHref = string(value), true
			}
		case "src":
			set(&a.src, value)
		case "data":
			set(&a.data, value)
		case "rel":
			set(&a.rel, value)
		case "type":
			set(&a.media, value)
		case "name":
			set(&a.name, value)
		case "http-equiv":
			set(&a.equiv, value)
		case "content":
			set(&a.content, value)
		case "charset":
			set(&a.charset, value)
		case "xlink:href":
			set(&a.xlink, value)
		default:
			if s.config.Requisites {
				a.setRequisite(string(key), value)
			}
		}
	}
	return a
}

func set(to *string, value []byte) {
	if *to == "" {
		*to = string(value)
	}
}

// isLink reports whether a link element leads to another page.
func (a *attributes) isLink() bool {
	if !a.hasHref {
		return false
	}
	switch {
	case hasWord(a.rel, "canonical"), hasWord(a.rel, "next"), hasWord(a.rel, "prev"):
		return true
	case hasWord(a.rel, "alternate") && !hasWord(a.rel, "stylesheet"):
		return a.isHTML()
	}
	return false
}

// isHTML reports whether the type of what a tag refers to is that of a page, or is not given.
func (a *attributes) isHTML() bool {
	media, _, _ := strings.Cut(a.media, ";") // in linear time
	media = strings.ToLower(strings.TrimSpace(media))
	return media == "" || media == "text/html" || media == "application/xhtml+xml"
}

// hasWord reports whether one of the words of text is word, in any case.
func hasWord(text, word string) bool {
	for w := range strings.FieldsSeq(text) {
		if strings.EqualFold(w, word) {
			return true
		}
	}
	return false
}

// setBase sets the base of all references, also of those before it.
func (s *search) setBase(a attributes) {
	if s.based || !a.hasHref {
		return
	}
	s.based = true
	b, err := normal.NewBase(s.config.URL)
	if err != nil || !s.spend(b.Cost(a.href)) {
		return
	}
	u, err := b.Resolve(s.inReference(a.href))
	switch scheme := normal.Scheme(a.href); {
	case err == nil:
		s.url = u
	case errors.Is(err, normal.ErrScheme) && scheme != "data" && scheme != "javascript" && s.base == nil:
		s.base = &normal.Base{}
	} // otherwise the base is the document's URL
}

func (s *search) meta(a attributes) {
	if s.tentative {
		s.setCharset(a)
	}
	switch {
	case strings.EqualFold(a.equiv, "refresh"):
		if target, ok := refresh(a.content); ok {
			s.add(target, "")
		}
	case strings.EqualFold(a.name, "robots") || isAgent(a.name, s.config.Agent):
		s.page.Closed = s.page.Closed || closes(a.content)
	}
}

// early is how many references wait for a base element. It should be before all of them, but need
// not be.
const early = 100

// add adds a reference.
func (s *search) add(text, rel string) {
	switch {
	case s.config.NoLinks || s.page.Closed:
	case hasWord(rel, "nofollow"):
		s.page.NoFollow++
	case len(text) > normal.MaxURLBytes:
		s.page.TooLong++
	default:
		s.wait(reference{text, link})
	}
}

// wait resolves a reference as soon as the base is known.
func (s *search) wait(r reference) {
	if s.base != nil || s.based {
		s.flush()
		s.resolve(r)
		return
	}
	s.queue = append(s.queue, r)
	if len(s.queue) == early {
		s.flush()
	}
}

// flush fixes the base, and resolves the references that wait for it.
func (s *search) flush() {
	if s.base == nil {
		b, err := normal.NewBase(s.url)
		if err != nil {
			return // a document without a URL has no links
		}
		s.base = b
	}
	for _, reference := range s.queue {
		if s.page.Cut == CutLinks || s.page.Cut == CutLinkBytes || s.err != nil {
			break
		}
		s.resolve(reference)
	}
	s.queue = nil
}

// maxRemembered limits the memory for references, in bytes with perReference each.
const maxRemembered = 1 << 20

// remember reports whether a reference was resolved before.
func (s *search) remember(r reference) (twice bool) {
	if _, twice = s.references[r]; twice {
		return true
	}
	if s.remembered += len(r.text) + perReference; s.remembered <= maxRemembered {
		s.references[r] = struct{}{}
	}
	return false
}

// inReference returns a reference as its document's charset has it.
func (s *search) inReference(reference string) string {
	if s.charset == "utf-8" && !utf8.ValidString(reference) {
		reference, _ = unicode.UTF8.NewDecoder().String(reference) // U+FFFD, as browsers have it; it has no error
	}
	return s.queries.inReference(reference)
}

func (s *search) resolve(r reference) {
	text, _, hasPart := strings.Cut(r.text, "#") // a page has one link, whatever its parts are
	if hasPart && text != "" && text[len(text)-1] <= ' ' {
		text += "#" // a space before a part is not the end of the reference
	}
	if s.base == nil || s.remember(reference{text, r.purpose}) {
		return
	}
	encoded := s.inReference(text)
	if !s.spend(perReference+s.base.Cost(encoded)) && len(s.queue) == 0 { // few references wait for a base
		return
	}
	u, err := s.base.Resolve(encoded)
	switch {
	case err == nil && r.purpose != link:
		s.addRequisite(u, r.purpose == searched)
		return
	case r.purpose != link:
		return
	case errors.Is(err, normal.ErrTooLong):
		s.page.TooLong++
		return
	case err != nil:
		s.page.Bad++
		return
	}
	if _, twice := s.seen[u]; twice {
		return
	}
	switch {
	case len(s.page.Links) == s.config.Limits.Links:
		s.page.Cut = CutLinks
		return
	case s.bytes+len(u) > s.config.Limits.LinkBytes:
		s.page.Cut = CutLinkBytes
		return
	}
	s.seen[u] = struct{}{}
	s.bytes += len(u)
	s.page.Links = append(s.page.Links, u)
}
