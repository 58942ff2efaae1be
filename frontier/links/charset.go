package links

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/charset"
	"golang.org/x/text/transform"
)

// input is a document and its charset.
type input struct {
	in      *bufio.Reader
	charset string // the name in the Encoding standard; empty if it is unknown
	// tentative means that a meta element may still change the charset.
	tentative bool
	// declared is the charset to which a meta element has just changed.
	declared string
}

// decoded returns the document in UTF-8. If its charset is unknown, its bytes stay: those of a
// reference that are not UTF-8 are escaped.
func (s *search) decoded(r io.Reader) (io.Reader, error) {
	s.in = bufio.NewReader(r)
	head, err := s.in.Peek(peek)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	_, name, certain := charset.DetermineEncoding(head[:min(len(head), len("\ufeff"))], s.config.ContentType)
	if !certain {
		s.tentative = s.xml == nil
		name = s.declaredIn(head)
	}
	return s.decode(s.in, name), nil
}

// decode returns the rest of a document in UTF-8.
func (s *search) decode(r io.Reader, name string) io.Reader {
	s.charset, s.perByte = name, 1
	e, _ := charset.Lookup(name)
	if name == "utf-8" || e == nil {
		return r
	}
	s.perByte = perDecoded
	s.queries = newQueryEncoding(name)
	if s.tentative {
		r = byTag{&s.input}
	}
	return transform.NewReader(r, e.NewDecoder())
}

// change returns the rest of a document after a meta element that has changed the charset: HTML
// standard, changing the encoding while parsing. r is the rest without what z has read of it.
func (s *search) change(z *html.Tokenizer, r io.Reader) io.Reader {
	if s.queries == nil && s.perByte == 1 {
		r = io.MultiReader(bytes.NewReader(bytes.Clone(z.Buffered())), r)
	} else {
		r = s.in // byTag has read nothing behind the tag
	}
	name := s.declared
	s.declared, s.tentative, s.queries = "", false, nil
	return s.decode(r, name)
}

// byTag reads a document up to a > at once, as long as its charset may change. So its decoder has read
// nothing behind the tag that changes it.
type byTag struct{ *input }

func (b byTag) Read(p []byte) (int, error) {
	if !b.tentative {
		return b.in.Read(p)
	}
	_, err := b.in.Peek(1)
	if err != nil {
		return 0, err
	}
	next, err := b.in.Peek(min(len(p), b.in.Buffered()))
	if end := bytes.IndexByte(next, '>') + 1; end > 0 {
		next = next[:end]
	}
	n := copy(p, next)
	_, _ = b.in.Discard(n)
	return n, err
}

// xmlDeclaration has the encoding in its first group: HTML standard, get an XML encoding.
var xmlDeclaration = regexp.MustCompile(`^<\?xml[^>]*?\sencoding\s*=\s*["']([^"'>]+)["']`)

// declaredIn returns the charset that the start of a document declares, or an empty string: HTML
// standard, prescan. It does not know scripts: a meta element in a script counts until a real one does.
func (s *search) declaredIn(head []byte) string {
	declaration := ""
	if m := xmlDeclaration.FindSubmatch(head); m != nil {
		declaration = lookup(string(m[1]))
	}
	if s.xml != nil {
		if declaration == "" {
			return "utf-8"
		}
		return declaration
	}
	z := html.NewTokenizer(bytes.NewReader(head))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return declaration
		case html.StartTagToken, html.SelfClosingTagToken:
			if tag, more := z.TagName(); string(tag) == "meta" {
				a := s.read(z, more)
				if name := a.encoding(); name != "" {
					return name
				}
			}
			z.NextIsNotRawText()
		}
	}
}

// setCharset sets the charset that a meta element declares.
func (s *search) setCharset(a attributes) {
	switch name := a.encoding(); name {
	case "":
	case s.charset:
		s.tentative = false
	default:
		s.declared = name
	}
}

// inContent finds the charset in the content of a meta element with http-equiv.
var inContent = regexp.MustCompile(`(?i)charset[ \t\r\n\f]*=[ \t\r\n\f]*(?:"([^"]*)"|'([^']*)'|([^ \t\r\n\f;"'][^ \t\r\n\f;]*))`)

// encoding returns the name of the charset that a meta element declares, or an empty string.
func (a *attributes) encoding() string {
	if name := lookup(a.charset); name != "" || !strings.EqualFold(a.equiv, "content-type") {
		return name
	}
	m := inContent.FindStringSubmatch(a.content[:min(len(a.content), peek)])
	if m == nil {
		return ""
	}
	return lookup(m[1] + m[2] + m[3])
}

// lookup returns the name of a charset that a document declares in ASCII, or an empty string.
func lookup(label string) string {
	switch _, name := charset.Lookup(label); name {
	case "utf-16le", "utf-16be":
		return "utf-8"
	case "x-user-defined":
		return "windows-1252"
	default:
		return name
	}
}
