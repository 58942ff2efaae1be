package origin

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"time"
)

// content is a body and the fields that speak of it.
type content struct {
	status   string // may differ from the step's: ranges
	fields   []Field
	reader   io.Reader
	length   int64
	explicit bool // the step asked for a body
}

// content makes the body of the answer.
func (x *exchange) content(status string, a *answer) (*content, error) {
	c := &content{status: status, explicit: a.asksForBody() && !a.notModified(x.req.Header)}
	source, kind, err := x.source(status, a)
	if err != nil {
		return nil, err
	}
	c.length = source.Size()
	c.reader = source
	c.describe(a, kind, status)
	if a.ranges && status == "200" {
		c.selectRange(a, x.req.Header, source)
	}
	return c, x.encode(c, a)
}

func (a *answer) asksForBody() bool {
	return a.size != unset || a.text != nil || a.charset != "" || a.bomb > 0 || a.echo
}

// source returns the plain body and its media type.
func (x *exchange) source(status string, a *answer) (*io.SectionReader, string, error) {
	switch {
	case status == "401" && a.require != "":
		return fixed("needs " + a.require + "\n"), textPlain, nil
	case a.echo:
		b, err := x.echo()
		return fixed(string(b)), "application/json", err
	case a.text != nil:
		return fixed(*a.text), textPlain, nil
	case a.charset == "latin1":
		return fixed("d\xe9j\xe0 vu, na\xefve caf\xe9\n"), "text/plain; charset=iso-8859-1", nil
	case a.charset == "badutf8":
		return fixed("good, then \xc3\x28 and \xf0\x28\x8c\xbc\n"), textPlain, nil
	case a.bomb > 0:
		return io.NewSectionReader(zeros{}, 0, a.bomb), "application/octet-stream", nil
	case a.size != unset:
		seeded := seededReader{seed: x.origin.seed}
		return io.NewSectionReader(seeded, a.offset, a.size), "application/octet-stream", nil
	}
	return fixed(strings.TrimSpace(status+" "+reason(status)) + "\n"), textPlain, nil
}

const textPlain = "text/plain; charset=utf-8"

func fixed(s string) *io.SectionReader {
	return io.NewSectionReader(strings.NewReader(s), 0, int64(len(s)))
}

// describe adds Content-Type, and what 401 and range requests need.
func (c *content) describe(a *answer, kind, status string) {
	if a.contentType != nil {
		kind = *a.contentType
	}
	if kind != "none" && status != "304" {
		c.fields = append(c.fields, Field{"Content-Type", kind})
	}
	if status == "401" && a.require != "" {
		c.fields = append(c.fields, Field{"WWW-Authenticate", `Bearer realm="origin"`})
	}
	if a.ranges {
		c.fields = append(c.fields, Field{"Accept-Ranges", "bytes"})
	}
}

// encode applies the content coding.
func (x *exchange) encode(c *content, a *answer) error {
	if a.codingLie != "" {
		c.fields = append(c.fields, Field{"Content-Encoding", a.codingLie})
	}
	if a.coding == "" {
		return nil
	}
	coded, err := encode(x.ctx, a.coding, c.reader)
	if err != nil {
		return err
	}
	if a.codingCut != unset {
		coded = coded[:min(int64(len(coded)), a.codingCut)]
	}
	if a.codingLie == "" {
		c.fields = append(c.fields, Field{"Content-Encoding", codingName(a.coding)})
	}
	c.reader, c.length = bytes.NewReader(coded), int64(len(coded))
	return nil
}

// codingName is the coding as HTTP names it. Its "deflate" is the zlib format
// (RFC 9110 §8.4.1.2); rawdeflate is the mistake many servers make.
func codingName(coding string) string {
	if coding == "rawdeflate" {
		return "deflate"
	}
	return coding
}

// reason is the reason phrase of a status, "" for odd ones.
func reason(status string) string {
	h := head{status: status}
	return http.StatusText(h.code())
}

// ifRange reports whether If-Range lets the range stand: absent, or the same
// strong validator (RFC 9110 §13.1.5).
func (a *answer) ifRange(h http.Header) bool {
	value := h.Get("If-Range")
	switch {
	case value == "":
		return true
	case strings.HasPrefix(value, `"`):
		return value == a.etag
	}
	then, err := http.ParseTime(value)
	if err != nil {
		return false
	}
	modified, err := http.ParseTime(a.lastModified)
	return err == nil && modified.Equal(then.Truncate(time.Second))
}
