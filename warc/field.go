package warc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Field is a named field of a head, or a line of an application/warc-fields block.
type Field struct{ Name, Value string }

// Get returns the value of the first field with that name, without regard to case, or "".
func Get(fields []Field, name string) string {
	for _, f := range fields {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}

// The names of the fields that Header has.
const (
	nameType               = "WARC-Type"
	nameID                 = "WARC-Record-ID"
	nameDate               = "WARC-Date"
	nameTargetURI          = "WARC-Target-URI"
	nameContentType        = "Content-Type"
	nameContentLength      = "Content-Length"
	nameConcurrentTo       = "WARC-Concurrent-To"
	nameRefersTo           = "WARC-Refers-To"
	nameRefersToTargetURI  = "WARC-Refers-To-Target-URI"
	nameRefersToDate       = "WARC-Refers-To-Date"
	nameProfile            = "WARC-Profile"
	nameBlockDigest        = "WARC-Block-Digest"
	namePayloadDigest      = "WARC-Payload-Digest"
	nameTruncated          = "WARC-Truncated"
	nameIPAddress          = "WARC-IP-Address"
	nameProtocol           = "WARC-Protocol"
	nameCipherSuite        = "WARC-Cipher-Suite"
	nameIdentifiedType     = "WARC-Identified-Payload-Type"
	nameWarcinfoID         = "WARC-Warcinfo-ID"
	nameFilename           = "WARC-Filename"
	nameSegmentNumber      = "WARC-Segment-Number"
	nameSegmentOriginID    = "WARC-Segment-Origin-ID"
	nameSegmentTotalLength = "WARC-Segment-Total-Length"
)

// check returns an error if the field cannot be written in one line and read back the same.
func (f Field) check() error {
	if !isToken(f.Name) {
		return fmt.Errorf("%.40q is not a name of a field", f.Name)
	}
	if err := checkValue(f.Value); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return nil
}

func checkValue(v string) error {
	if isPrintable(v) && !strings.HasPrefix(v, " ") && !strings.HasSuffix(v, " ") {
		return nil // nearly all values
	}
	if !utf8.ValidString(v) {
		return errors.New("the value is not UTF-8")
	}
	if strings.Trim(v, " \t") != v {
		return errors.New("the value starts or ends with a space")
	}
	if i := strings.IndexFunc(v, endsLine); i >= 0 {
		return fmt.Errorf("the value has a control character at byte %d", i)
	}
	return nil
}

// isPrintable reports whether s has nothing but printable ASCII.
func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// endsLine reports whether c is a control character, or separates lines for some readers: Python's
// splitlines, for example, also splits at U+0085 and U+2028.
func endsLine(c rune) bool {
	return c < ' ' || c >= 0x7f && c <= 0x9f || c == 0x2028 || c == 0x2029
}

var tokenBytes = func() (set [256]bool) {
	for c := range set {
		set[c] = c > ' ' && c < 0x7f && strings.IndexByte(`()<>@,;:\"/[]?={}`, byte(c)) < 0
	}
	return set
}()

// isToken reports whether s is a token of the standard's grammar.
func isToken(s string) bool {
	for i := range len(s) {
		if !tokenBytes[s[i]] {
			return false
		}
	}
	return s != ""
}

// The levels of precision of W3CDTF, which WARC-Date may have. Parsing also accepts a fraction of
// the second.
var dateLayouts = []string{time.RFC3339, "2006-01-02T15:04Z07:00", time.DateOnly, "2006-01", "2006"}

const dateFormat = "2006-01-02T15:04:05.999999999Z"

var errDate = errors.New("the value is not a date")

func parseDate(s string) (time.Time, error) {
	for _, layout := range dateLayouts {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, errDate
}

func checkDate(t time.Time) error {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return errors.New("the year does not have four digits")
	}
	return nil
}

// FormatFields returns fields as an application/warc-fields block, which warcinfo and metadata
// records have. Names that are usual in a warcinfo record are "software", "operator", "hostname",
// "ip", "robots", "http-header-user-agent", "http-header-from", "format" and "conformsTo".
func FormatFields(fields []Field) ([]byte, error) {
	var e encoder
	for _, f := range fields {
		e.field(f)
	}
	if e.err != nil {
		return nil, fmt.Errorf("warc: %w", e.err)
	}
	return e.b, nil
}

// ParseFields reads an application/warc-fields block until its end or an empty line. Limits that
// are zero have their default.
func ParseFields(block io.Reader, l Limits) ([]Field, error) {
	p := headParser{in: bufio.NewReader(block), limits: l.withDefaults(), lastLine: true}
	if err := p.parse(); err != nil {
		return nil, fmt.Errorf("warc: %w", err)
	}
	if len(p.problems) > 0 {
		return p.fields, fmt.Errorf("warc: %w", errors.Join(p.problems...))
	}
	return p.fields, nil
}

// WriteInfo writes a warcinfo record with these fields. It sets the type, the content type and the
// block digest; set the date and, if the file has a name, the name in h.
func (w *Writer) WriteInfo(h *Header, fields []Field) (Place, error) {
	block, err := FormatFields(fields)
	if err != nil {
		return Place{}, err
	}
	info := *h
	info.Type, info.ContentType = Warcinfo, WarcFields
	d := SHA1.hash()
	d.Write(block)
	info.BlockDigest = NewDigest(SHA1, d.Sum(nil))
	return w.WriteRecord(&info, bytes.NewReader(block), int64(len(block)))
}
