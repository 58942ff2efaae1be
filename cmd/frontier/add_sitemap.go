package main

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"fetchd/frontier/normal"
)

const (
	// maxSitemap is the longest sitemap by its protocol, decompressed.
	maxSitemap = 50 << 20
	// maxToken is the longest piece of XML that is kept at once: a tag with its
	// attributes, a text, a comment.
	maxToken = 1 << 20
	// maxDepth is how deep elements may stand in each other; sitemaps need 4.
	maxDepth = 64
)

var (
	errSitemapSize  = fmt.Errorf("the sitemap is longer than %d MiB, the limit of its protocol", maxSitemap>>20)
	errSitemapToken = fmt.Errorf("one tag or text is longer than %d MiB", maxToken>>20)
	errSitemapDepth = fmt.Errorf("elements stand more than %d deep in each other", maxDepth)
	errNoSitemap    = errors.New("it has no element urlset: this is no sitemap")
)

// sitemapEntries reads a sitemap as sitemaps.org describes it: XML, or a URL a line.
func sitemapEntries(r io.Reader) iter.Seq[entry] { return sitemapUpTo(maxSitemap, r) }

func sitemapUpTo(limit int, r io.Reader) iter.Seq[entry] {
	in := bufio.NewReader(r)
	head, _ := in.Peek(512) // a later read tells what went wrong
	m := &meter{in: in, left: limit}
	if bytes.HasPrefix(head, []byte("\ufeff")) {
		_, _ = in.Discard(3) // it was peeked at
	}
	if !bytes.HasPrefix(bytes.TrimSpace(bytes.TrimPrefix(head, []byte("\ufeff"))), []byte("<")) {
		m.token = limit // lines have a limit of their own
		return listEntries(m)
	}
	return func(yield func(entry) bool) {
		s := newSitemap(m)
		if err := s.entries(yield); err != nil {
			line, _ := s.xml.InputPos()
			yield(entry{line: line, err: restUnread(err)})
		}
	}
}

// meter bounds how much is read, in all and of one token. It has ReadByte, so the
// decoder reads no further than its token.
type meter struct {
	in    *bufio.Reader
	left  int // bytes of the sitemap
	token int // bytes of this token
}

// ReadByte implements io.ByteReader.
func (m *meter) ReadByte() (byte, error) {
	b, err := m.in.ReadByte()
	if err == nil {
		err = m.spend(1)
	}
	return b, err
}

// Read implements io.Reader.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.in.Read(p)
	if spent := m.spend(n); spent != nil {
		return 0, spent
	}
	return n, err
}

func (m *meter) spend(n int) error {
	m.left -= n
	m.token -= n
	switch {
	case m.left < 0:
		return errSitemapSize
	case m.token < 0:
		return errSitemapToken
	}
	return nil
}

// sitemap reads one in XML, a token at a time.
type sitemap struct {
	meter *meter
	xml   *xml.Decoder
	path  []xml.Name // from the root to where it reads
	loc   strings.Builder
	line  int // of the loc
}

func newSitemap(m *meter) *sitemap {
	d := xml.NewDecoder(m)
	d.CharsetReader = func(charset string, r io.Reader) (io.Reader, error) {
		if strings.EqualFold(charset, "utf8") || strings.EqualFold(charset, "us-ascii") {
			return r, nil
		}
		return nil, fmt.Errorf("it is in %.40q, and a sitemap is in UTF-8", charset)
	}
	return &sitemap{meter: m, xml: d}
}

// entries yields what the sitemap lists until it ends or breaks. nil means that
// there is no more to say.
func (s *sitemap) entries(yield func(entry) bool) error {
	rooted := false
	for {
		s.meter.token = maxToken
		token, err := s.xml.Token()
		switch {
		case errors.Is(err, io.EOF) && !rooted:
			return errNoSitemap
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		switch t := token.(type) {
		case xml.StartElement:
			rooted = true
			if err := s.enter(t.Name); err != nil {
				return err
			}
		case xml.CharData:
			if s.inLoc() && s.loc.Len() <= normal.MaxURLBytes { // no more is needed to know it as too long
				s.loc.Write(t)
			}
		case xml.EndElement:
			if s.inLoc() && !yield(s.entry()) {
				return nil
			}
			s.path = s.path[:len(s.path)-1]
		}
	}
}

func (s *sitemap) enter(name xml.Name) error {
	s.path = append(s.path, name)
	switch {
	case len(s.path) > maxDepth:
		return errSitemapDepth
	case len(s.path) == 1 && name.Local != "urlset" && name.Local != "sitemapindex":
		return fmt.Errorf("the element %.40q is neither urlset nor sitemapindex: this is no sitemap", name.Local)
	}
	if s.inLoc() {
		s.loc.Reset()
		s.line, _ = s.xml.InputPos()
	}
	return nil
}

// inLoc tells whether it reads the loc of a URL or a sitemap, and not one of an
// extension such as image:loc.
func (s *sitemap) inLoc() bool {
	if len(s.path) != 3 {
		return false
	}
	space := s.path[0].Space
	return s.path[1] == xml.Name{Space: space, Local: s.item()} && s.path[2] == xml.Name{Space: space, Local: "loc"}
}

// item is the element that has the loc in this root.
func (s *sitemap) item() string {
	if s.path[0].Local == "sitemapindex" {
		return "sitemap"
	}
	return "url"
}

// entry is the loc that has just ended. A sitemap in an index is nothing to
// fetch as a page, and it is named without its user information.
func (s *sitemap) entry() entry {
	url := strings.TrimSpace(s.loc.String())
	if s.path[0].Local == "urlset" {
		return urlEntry(s.line, url)
	}
	listed, err := normal.NormalizeURL(url)
	if err != nil {
		return entry{line: s.line, err: fmt.Errorf("a sitemap in an index: %w", err)}
	}
	return entry{line: s.line, err: fmt.Errorf("%s is a sitemap in an index: download it, and give the file with --sitemap", listed)}
}
