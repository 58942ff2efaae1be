package coding

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/transform"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/internal/sniff"
)

// errCharset is the error of a body that is not valid in its charset.
var errCharset = fault.New(classify.Undecodable, classify.PhaseTransfer, "invalid_charset")

// Charset checks that a body is valid in its charset (spec C3). The body is written to it. A
// body that is not text and has no charset is valid. Its errors are a *[fault.Error].
type Charset struct {
	contentType string
	head        []byte         // the start of the body, until the charset is known
	out         io.WriteCloser // nil: the charset is not known yet
}

// NewCharset returns a check of a body with a Content-Type.
func NewCharset(contentType string) *Charset { return &Charset{contentType: contentType} }

// Write implements io.Writer.
func (c *Charset) Write(p []byte) (int, error) {
	if c.out != nil {
		n, err := c.out.Write(p)
		return n, asFault(err)
	}
	c.head = append(c.head, p...)
	if len(c.head) < sniff.HeadBytes {
		return len(p), nil
	}
	return len(p), asFault(c.start())
}

// start determines the charset and checks the bytes that were kept until now.
func (c *Charset) start() error {
	out, err := newCharsetWriter(c.contentType, c.head)
	if err != nil {
		return err
	}
	c.out = out
	_, err = out.Write(c.head)
	return err
}

// Close ends the body. An incomplete character at its end is an error.
func (c *Charset) Close() error {
	if c.out == nil {
		if err := c.start(); err != nil {
			return asFault(err)
		}
	}
	return asFault(c.out.Close())
}

// asFault returns err with a class. A decoder of a charset has errors without one.
func asFault(err error) error {
	if own, ok := errors.AsType[*fault.Error](err); ok {
		return own
	}
	if err != nil {
		return errCharset
	}
	return nil
}

func newCharsetWriter(contentType string, head []byte) (io.WriteCloser, error) {
	media, params, _ := mime.ParseMediaType(contentType)
	label := params["charset"]
	if label == "" && media != "" && !isTextType(media) {
		return nopCloser{io.Discard}, nil
	}
	if label != "" {
		if e, _ := charset.Lookup(label); e == nil {
			return nil, fault.New(classify.Undecodable, classify.PhaseTransfer, "unknown_charset")
		}
	}
	e, name, _ := sniff.Declared(contentType, head)
	if name == "utf-8" {
		return transform.NewWriter(io.Discard, encoding.UTF8Validator), nil
	}
	if table, err := htmlindex.Get(name); err == nil {
		if bytewise, ok := table.(*charmap.Charmap); ok {
			return nopCloser{byteFinder{bytewise}}, nil
		}
	}
	return transform.NewWriter(replacementFinder{}, e.NewDecoder()), nil
}

func isTextType(media string) bool {
	return strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "xml") ||
		strings.HasSuffix(media, "json") || media == "application/javascript"
}

// replacementFinder fails on U+FFFD, which a decoder writes for bytes that it cannot decode.
type replacementFinder struct{}

// Write implements io.Writer. The decoder writes whole characters.
func (replacementFinder) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("\uFFFD")) {
		return 0, errCharset
	}
	return len(p), nil
}

// byteFinder fails on a byte that is not in a single-byte charset. All of them have 0x80 to
// 0x9F, at least as control characters (Encoding standard §9), which x/text omits.
type byteFinder struct{ *charmap.Charmap }

// Write implements io.Writer.
func (f byteFinder) Write(p []byte) (int, error) {
	for _, b := range p {
		if b > 0x9f && f.DecodeByte(b) == utf8.RuneError {
			return 0, errCharset
		}
	}
	return len(p), nil
}

type nopCloser struct{ io.Writer }

// Close implements io.Closer.
func (nopCloser) Close() error { return nil }
