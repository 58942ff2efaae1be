package fetch

import (
	"bytes"
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
)

// sniffBytes is how much of a body its charset is looked for in: what the HTML
// standard has browsers look at.
const sniffBytes = 1024

// errCharset says that a body is not of its charset.
var errCharset = fault.New(classify.Undecodable, classify.PhaseTransfer, "invalid_charset")

// charsetCheck reads a body as it passes and reports whether its charset can
// decode it (spec C3). A body that is no text and names no charset passes.
type charsetCheck struct {
	contentType string
	head        []byte
	out         io.WriteCloser
}

// Write implements io.Writer.
func (c *charsetCheck) Write(p []byte) (int, error) {
	if c.out != nil {
		return c.out.Write(p)
	}
	c.head = append(c.head, p...)
	if len(c.head) < sniffBytes {
		return len(p), nil
	}
	return len(p), c.begin()
}

// begin settles the charset and checks what was kept till now.
func (c *charsetCheck) begin() error {
	out, err := newCharsetWriter(c.contentType, c.head)
	if err != nil {
		return err
	}
	c.out = out
	_, err = out.Write(c.head)
	return err
}

// Close ends the body; an incomplete character at its end is an error.
func (c *charsetCheck) Close() error {
	if c.out == nil {
		if err := c.begin(); err != nil {
			return err
		}
	}
	return c.out.Close()
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
	if label == "" && strings.HasSuffix(media, "json") {
		contentType = "application/json; charset=utf-8" // RFC 8259 §8.1
	}
	e, name, _ := charset.DetermineEncoding(head, contentType)
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

// replacementFinder fails on U+FFFD, which is what a decoder writes for bytes
// that it cannot decode.
type replacementFinder struct{}

// Write implements io.Writer. The decoder writes whole characters.
func (replacementFinder) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("\uFFFD")) {
		return 0, errCharset
	}
	return len(p), nil
}

// byteFinder fails on a byte that is not in a charset of single bytes. 0x80 to
// 0x9F are in all of them, as control characters at the least (Encoding
// standard §9); x/text leaves those out.
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
