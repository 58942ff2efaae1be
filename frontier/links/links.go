package links

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/charset"
	"golang.org/x/text/transform"

	"fetchd/frontier/normal"
)

// Limits of a document. Zero means the default.
type Limits struct {
	Bytes     int64 // of the document: 16 MiB
	Links     int   // distinct links: 10,000
	LinkBytes int   // of all links in their normal form: 1 MiB
}

const (
	defaultBytes     = 16 << 20
	defaultLinks     = 10_000
	defaultLinkBytes = 1 << 20
	// maxToken limits a tag, a text or a script.
	maxToken = 2 << 20
	// maxWork limits the bytes that are resolved: each reference with its base. It limits the time of
	// a document whose references are equal or not valid, which the other limits do not count.
	maxWork = 32 << 20
	// perReference is what a reference costs in addition, in bytes.
	perReference = 64
	// peek is how much of a document is read to find its charset: HTML standard, prescan.
	peek = 1024
)

// Config configures [Read].
type Config struct {
	URL         string // of the document
	ContentType string // the value of the header; may be empty
	// RobotsTags are the values of the header X-Robots-Tag.
	RobotsTags []string
	// Agent is the name of the crawler, whose meta element and X-Robots-Tag lines apply too.
	Agent string
	// FollowNoFollow ignores rel=nofollow, meta robots and X-Robots-Tag.
	FollowNoFollow bool
	Limits         Limits
}

// Page is what a document links to.
type Page struct {
	// Links are distinct, in their normal form, and in the order of the document.
	Links []string
	// NoFollow is the number of links with rel=nofollow, and Closed means that the whole page asked
	// not to follow its links. Neither are in Links.
	NoFollow int
	Closed   bool
	// TooLong is the number of links of more than [normal.MaxURLBytes], and Bad that of other links
	// without a normal form, such as javascript: and mailto:.
	TooLong, Bad int
	// Cut says which limit ended the search; empty if none did.
	Cut string
}

// Limits that end a search.
const (
	CutBytes     = "the document is longer than the limit"
	CutToken     = "a tag or a text is longer than 2 MiB"
	CutLinks     = "the page has more links than the limit"
	CutLinkBytes = "the links of the page are longer than the limit"
	CutWork      = "the references of the page with their base are longer than 32 MiB"
)

// Read returns the links of a document. The error is that of r.
func Read(r io.Reader, c Config) (Page, error) {
	c.Limits = c.Limits.withDefaults()
	s := &search{config: c, seen: make(map[string]struct{})}
	s.url = c.URL
	if !c.FollowNoFollow {
		s.page.Closed = headerCloses(c.RobotsTags, c.Agent)
	}
	bounded := &io.LimitedReader{R: r, N: c.Limits.Bytes + 1}
	text, err := decoded(bounded, c.ContentType)
	if err != nil {
		return Page{}, err
	}
	err = s.run(text)
	if bounded.N <= 0 && s.page.Cut == "" {
		s.page.Cut = CutBytes
	}
	if s.page.Closed {
		s.page.Links = nil
	}
	return s.page, err
}

func (l Limits) withDefaults() Limits {
	return Limits{cmp.Or(l.Bytes, defaultBytes), cmp.Or(l.Links, defaultLinks), cmp.Or(l.LinkBytes, defaultLinkBytes)}
}

// DocumentBytes returns how much of a document is read.
func (l Limits) DocumentBytes() int64 { return l.withDefaults().Bytes }

// decoded returns the document in UTF-8. If its charset is unknown, its bytes stay: those of a
// reference that are not UTF-8 are escaped.
func decoded(r io.Reader, contentType string) (io.Reader, error) {
	in := bufio.NewReader(r)
	head, err := in.Peek(peek)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	encoding, name, certain := charset.DetermineEncoding(head, contentType)
	known := certain || bytes.Contains(bytes.ToLower(head), []byte("charset")) // otherwise the encoding is a guess
	if name == "utf-8" || !known {
		return in, nil
	}
	return transform.NewReader(in, encoding.NewDecoder()), nil
}

// search is the state of one document.
type search struct {
	config    Config
	page      Page
	url       string // that references are relative to
	base      *normal.Base
	based     bool // a base element was read
	templates int  // open template elements
	seen      map[string]struct{}
	bytes     int // of page.Links
	work      int // bytes that were resolved
	queue     []string
}

// run reads the document to its end or to a limit.
func (s *search) run(r io.Reader) error {
	z := html.NewTokenizer(r)
	z.SetMaxBuf(maxToken)
	for s.page.Cut == "" && !s.page.Closed {
		switch z.Next() {
		case html.ErrorToken:
			s.flush()
			return s.end(z.Err())
		case html.EndTagToken:
			if name, _ := z.TagName(); string(name) == "template" && s.templates > 0 {
				s.templates--
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			s.tag(z)
		}
	}
	return nil
}

func (s *search) end(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, html.ErrBufferExceeded):
		s.page.Cut = CutToken
		return nil
	}
	return fmt.Errorf("read the document: %w", err)
}

// attributes are those of a tag that matter here.
type attributes struct {
	href, src, rel, media, name, equiv, content string
	hasHref                                     bool
}

func (s *search) tag(z *html.Tokenizer) {
	raw, more := z.TagName()
	name := string(raw)
	switch name {
	case "template":
		s.templates++
		return
	case "noscript":
		z.NextIsNotRawText()
		return
	case "a", "area", "link", "iframe", "frame", "meta", "base":
	default:
		return
	}
	if s.templates > 0 {
		return
	}
	a := read(z, more)
	switch name {
	case "base":
		s.setBase(a)
	case "meta":
		s.meta(a)
	case "link":
		if a.isLink() {
			s.add(a.href, a.rel)
		}
	case "iframe", "frame":
		if a.src != "" {
			s.add(a.src, "")
		}
	default:
		if a.hasHref {
			s.add(a.href, a.rel)
		}
	}
}

// read reads the attributes of a tag. Of one that comes twice, the first counts.
func read(z *html.Tokenizer, more bool) (a attributes) {
	for more {
		var key, value []byte
		key, value, more = z.TagAttr()
		switch string(key) {
		case "href":
			if !a.hasHref {
				a.href, a.hasHref = string(value), true
			}
		case "src":
			set(&a.src, value)
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
		media, _, _ := mime.ParseMediaType(a.media) // an invalid type is none of these
		return a.media == "" || media == "text/html" || media == "application/xhtml+xml"
	}
	return false
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
	if err != nil {
		return
	}
	if u, err := b.Resolve(a.href); err == nil { // otherwise the base is the document's URL
		s.url = u
	}
}

func (s *search) meta(a attributes) {
	switch {
	case strings.EqualFold(a.equiv, "refresh"):
		if target, ok := refresh(a.content); ok {
			s.add(target, "")
		}
	case !s.config.FollowNoFollow && (strings.EqualFold(a.name, "robots") || isAgent(a.name, s.config.Agent)):
		s.page.Closed = s.page.Closed || closes(a.content)
	}
}

// early is how many references wait for a base element. It should be before all of them, but need
// not be.
const early = 100

// add adds a reference.
func (s *search) add(reference, rel string) {
	switch {
	case hasWord(rel, "nofollow") && !s.config.FollowNoFollow:
		s.page.NoFollow++
	case len(reference) > normal.MaxURLBytes:
		s.page.TooLong++
	case s.base != nil || s.based:
		s.flush()
		s.resolve(reference)
	default:
		s.queue = append(s.queue, reference)
		if len(s.queue) == early {
			s.flush()
		}
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
		s.resolve(reference)
	}
	s.queue = nil
}

func (s *search) resolve(reference string) {
	if s.base == nil || s.page.Cut != "" {
		return
	}
	if s.work += len(s.url) + len(reference) + perReference; s.work > maxWork {
		s.page.Cut = CutWork
		return
	}
	u, err := s.base.Resolve(reference)
	switch {
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
