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
	// maxSitemap is the maximum size of a sitemap by its protocol, decompressed.
	maxSitemap = 50 << 20
	// maxToken is the maximum size of one XML token: a tag with its attributes, a text, a comment.
	maxToken = 1 << 20
	// maxDepth is the maximum depth of elements. Sitemaps need 4.
	maxDepth = 64
)

var (
	errSitemapSize  = fmt.Errorf("the sitemap is longer than %d MiB, the limit of its protocol", maxSitemap>>20)
	errSitemapToken = fmt.Errorf("one tag or text is longer than %d MiB", maxToken>>20)
	errSitemapDepth = fmt.Errorf("elements are nested more than %d deep", maxDepth)
	errNoSitemap    = errors.New("it has no element urlset, so it is not a sitemap")
)

// sitemapEntries reads a sitemap as sitemaps.org describes it: XML, or one URL per line.
func sitemapEntries(r io.Reader) iter.Seq[entry] { return sitemapUpTo(maxSitemap, r) }

func sitemapUpTo(limit int, r io.Reader) iter.Seq[entry] {
	in := bufio.NewReader(r)
	head, _ := in.Peek(512) // the next read returns the error
	m := &meter{in: in, left: limit}
	if bytes.HasPrefix(head, []byte("\ufeff")) {
		_, _ = in.Discard(3) // Peek has read it
	}
	if !bytes.HasPrefix(bytes.TrimSpace(bytes.TrimPrefix(head, []byte("\ufeff"))), []byte("<")) {
		m.token = limit // lines have their own limit
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

// meter limits how much is read of the sitemap and of one token. Because it has ReadByte, the
// decoder reads no further than its token.
type meter struct {
	in    *bufio.Reader
	left  int // bytes left of the sitemap
	token int // bytes left of the token
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

// sitemap reads an XML sitemap, a token at a time.
type sitemap struct {
	meter *meter
	xml   *xml.Decoder
	path  []xml.Name // from the root to the current element
	loc   strings.Builder
	line  int // of the current loc
}

func newSitemap(m *meter) *sitemap {
	d := xml.NewDecoder(m)
	d.CharsetReader = func(charset string, r io.Reader) (io.Reader, error) {
		if strings.EqualFold(charset, "utf8") || strings.EqualFold(charset, "us-ascii") {
			return r, nil
		}
		return nil, fmt.Errorf("its encoding is %.40q, but a sitemap must be UTF-8", charset)
	}
	return &sitemap{meter: m, xml: d}
}

// entries yields the URLs in the sitemap until it ends. The error is that of the sitemap.
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
			if s.inLoc() && s.loc.Len() <= normal.MaxURLBytes { // more would not change that it is too long
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
		return fmt.Errorf("the element %.40q is neither urlset nor sitemapindex, so this is not a sitemap", name.Local)
	}
	if s.inLoc() {
		s.loc.Reset()
		s.line, _ = s.xml.InputPos()
	}
	return nil
}

// inLoc reports whether the current element is the loc of a URL or a sitemap, and not one of an
// extension such as image:loc.
func (s *sitemap) inLoc() bool {
	if len(s.path) != 3 {
		return false
	}
	space := s.path[0].Space
	return s.path[1] == xml.Name{Space: space, Local: s.item()} && s.path[2] == xml.Name{Space: space, Local: "loc"}
}

// item returns the name of the elements that have a loc.
func (s *sitemap) item() string {
	if s.path[0].Local == "sitemapindex" {
		return "sitemap"
	}
	return "url"
}

// entry returns the loc that has just ended. A sitemap in an index is not a page to fetch. Its
// error names it without user information.
func (s *sitemap) entry() entry {
	url := strings.TrimSpace(s.loc.String())
	if s.path[0].Local == "urlset" {
		return urlEntry(s.line, url)
	}
	listed, err := normal.NormalizeURL(url)
	if err != nil {
		return entry{line: s.line, err: fmt.Errorf("a sitemap in an index: %w", err)}
	}
	return entry{line: s.line, err: fmt.Errorf("%s is a sitemap in an index: download it and add the file with --sitemap", listed)}
}
