package sitemap

import (
	"bufio"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"fetchd/frontier/normal"
	"fetchd/frontier/work"
)

const (
	// maxToken is the maximum size of one XML token: a tag with its attributes, a text, a comment.
	maxToken = 1 << 20
	// maxDepth is the maximum depth of elements. Sitemaps need 4.
	maxDepth = 64
	// maxAttributes is the maximum number of attributes of an element. Those that declare namespaces
	// use memory until it ends.
	maxAttributes = 100
	// maxChanged is the maximum length of a lastmod.
	maxChanged = 64
)

var (
	errSize  = fmt.Errorf("the sitemap is longer than %d MiB, the limit of its protocol", MaxBytes>>20)
	errToken = fmt.Errorf("one tag or text is longer than %d MiB", maxToken>>20)
	errDepth = fmt.Errorf("elements are nested more than %d deep", maxDepth)
	errAttrs = fmt.Errorf("an element has more than %d attributes", maxAttributes)
	errRoot  = errors.New("it has no element urlset, so it is not a sitemap")
)

// meter limits how much is read of the sitemap and of one token. Because it has ReadByte, the
// decoder reads no further than its token.
type meter struct {
	in      *bufio.Reader
	left    int // bytes left of the sitemap
	token   int // bytes left of the token
	count   *work.Meter
	perByte int // what a byte costs
}

// Costs of a byte in the unit of package work.
const (
	perTextByte = 2
	perXMLByte  = 16
)

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
		return errSize
	case m.token < 0:
		return errToken
	}
	return m.count.Spend(n * m.perByte)
}

// document reads an XML sitemap, a token at a time.
type document struct {
	meter   *meter
	xml     *xml.Decoder
	path    []xml.Name // from the root to the current element
	text    strings.Builder
	line    int    // of the current loc
	last    *Entry // whose element has not ended
	changed time.Time
}

func newDocument(m *meter) *document {
	decoder := xml.NewDecoder(m)
	decoder.CharsetReader = func(charset string, r io.Reader) (io.Reader, error) {
		if strings.EqualFold(charset, "utf8") || strings.EqualFold(charset, "us-ascii") {
			return r, nil
		}
		return nil, fmt.Errorf("its encoding is %.40q, but a sitemap must be UTF-8", charset)
	}
	return &document{meter: m, xml: decoder}
}

// entries yields the entries of the sitemap until it ends. The error is that of the sitemap.
func (d *document) entries(yield func(Entry) bool) error {
	rooted := false
	for {
		d.meter.token = maxToken
		token, err := d.xml.Token()
		switch {
		case errors.Is(err, io.EOF) && !rooted:
			return errRoot
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return d.endWith(err, yield)
		}
		switch t := token.(type) {
		case xml.StartElement:
			rooted = true
			if err := d.enter(t); err != nil {
				return d.endWith(err, yield)
			}
		case xml.CharData:
			if d.limit() > d.text.Len() { // more would not change that it is too long
				d.text.Write(t)
			}
		case xml.EndElement:
			if !d.leave(yield) {
				return nil
			}
		}
	}
}

func (d *document) enter(element xml.StartElement) error {
	name := element.Name
	d.path = append(d.path, name)
	switch {
	case len(element.Attr) > maxAttributes:
		return errAttrs
	case len(d.path) > maxDepth:
		return errDepth
	case len(d.path) == 1 && name.Local != "urlset" && name.Local != "sitemapindex":
		return fmt.Errorf("the element %.40q is neither urlset nor sitemapindex, so this is not a sitemap", name.Local)
	}
	if len(d.path) <= 3 {
		d.text.Reset()
	}
	if d.in("loc") {
		d.line, _ = d.xml.InputPos()
	}
	return nil
}

// leave ends the current element. It returns false if no more entries are wanted.
func (d *document) leave(yield func(Entry) bool) bool {
	more := true
	switch {
	case d.in("loc"):
		more = d.yieldLast(yield) // an element with two
		e := d.entry()
		d.last = &e
	case d.in("lastmod"):
		d.changed = parseTime(strings.TrimSpace(d.text.String()))
	case len(d.path) == 2:
		more = d.yieldLast(yield)
		d.changed = time.Time{}
	}
	d.path = d.path[:len(d.path)-1]
	return more
}

// yieldLast yields the entry whose element is ending.
func (d *document) yieldLast(yield func(Entry) bool) bool {
	e := d.last
	if d.last = nil; e == nil {
		return true
	}
	e.Changed = d.changed
	return yield(*e)
}

// endWith yields the entry before an error. It returns no error if no more entries are wanted.
func (d *document) endWith(err error, yield func(Entry) bool) error {
	if !d.yieldLast(yield) {
		return nil
	}
	return err
}

// limit is how much of the current element's text matters, in bytes.
func (d *document) limit() int {
	switch {
	case d.in("loc"):
		return normal.MaxURLBytes + 1
	case d.in("lastmod"):
		return maxChanged
	}
	return 0
}

// in reports whether the current element has a name and belongs to a URL or a sitemap, and not to an
// extension, as image:loc does.
func (d *document) in(name string) bool {
	if len(d.path) != 3 {
		return false
	}
	space := d.path[0].Space
	return d.path[1] == xml.Name{Space: space, Local: d.item()} && d.path[2] == xml.Name{Space: space, Local: name}
}

// item returns the name of the elements that have a loc.
func (d *document) item() string {
	if d.isIndex() {
		return "sitemap"
	}
	return "url"
}

func (d *document) isIndex() bool { return d.path[0].Local == "sitemapindex" }

// entry returns the loc that has just ended.
func (d *document) entry() Entry {
	e := NewEntry(d.line, strings.TrimSpace(d.text.String()))
	e.Sitemap = d.isIndex()
	return e
}

// parseTime returns the time of a lastmod, or zero if it has none. W3C's profile of ISO 8601 allows
// to leave out everything but the year.
func parseTime(s string) time.Time {
	for _, layout := range []string{"2006-01-02", time.RFC3339Nano, "2006-01-02T15:04Z07:00", "2006-01", "2006"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t
		}
	}
	return time.Time{}
}
