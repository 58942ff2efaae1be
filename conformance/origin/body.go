package origin

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// content is a body and the fields that describe it.
type content struct {
	status   string // 206 or 416 if a range was selected
	fields   []Field
	reader   io.Reader
	length   int64
	explicit bool // the step asks for a body
}

// content returns the body of the answer.
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

// describe adds Content-Type, and the fields that 401 and ranges need.
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

// codingName returns the HTTP name of a coding. The "deflate" of HTTP is the zlib
// format (RFC 9110 §8.4.1.2); rawdeflate is the mistake that many servers make.
func codingName(coding string) string {
	if coding == "rawdeflate" {
		return "deflate"
	}
	return coding
}

// reason returns the reason phrase of a status, or "" if it has none.
func reason(status string) string {
	h := head{status: status}
	return http.StatusText(h.code())
}

// ifRange reports whether the range applies: If-Range is absent or has the same
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

// selectRange reduces c to the range that the request asks for. It ignores requests
// for several ranges or in other units (RFC 9110 §14.2).
func (c *content) selectRange(a *answer, h http.Header, source *io.SectionReader) {
	spec, ok := strings.CutPrefix(h.Get("Range"), "bytes=")
	if !ok || strings.Contains(spec, ",") || !a.ifRange(h) {
		return
	}
	first, last, ok := parseRange(spec, c.length)
	if !ok {
		return
	}
	total := c.length
	if first >= total || last < first {
		c.status = "416"
		c.fields = append(c.fields, Field{"Content-Range", fmt.Sprintf("bytes */%d", total)})
		c.reader, c.length = strings.NewReader(""), 0
		return
	}
	c.status = "206"
	c.fields = append(c.fields, Field{"Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, total)})
	c.length = last - first + 1
	c.reader = io.NewSectionReader(source, first, c.length)
}

// parseRange parses "first-last", "first-" or "-suffix" for a body of size bytes. It
// reports whether spec is a valid range.
func parseRange(spec string, size int64) (first, last int64, ok bool) {
	from, to, found := strings.Cut(spec, "-")
	if !found {
		return 0, 0, false
	}
	if from == "" {
		n, err := strconv.ParseUint(to, 10, 62)
		return max(size-int64(n), 0), size - 1, err == nil && n > 0
	}
	start, err := strconv.ParseUint(from, 10, 62)
	if err != nil {
		return 0, 0, false
	}
	if to == "" {
		return int64(start), size - 1, true
	}
	end, err := strconv.ParseUint(to, 10, 62)
	if err != nil || end < start {
		return 0, 0, false
	}
	return int64(start), min(int64(end), size-1), true
}

// encode returns all of r in the coding. It returns errGone when ctx ends, because a
// bomb takes long to encode.
func encode(ctx context.Context, coding string, r io.Reader) ([]byte, error) {
	var out bytes.Buffer
	w, err := newEncoder(coding, &out)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(w, contextReader{ctx, r}); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("encode %s: %w", coding, err)
	}
	return out.Bytes(), nil
}

func newEncoder(coding string, w io.Writer) (io.WriteCloser, error) {
	switch coding {
	case "gzip":
		return gzip.NewWriter(w), nil
	case "deflate":
		return zlib.NewWriter(w), nil
	case "rawdeflate":
		return flate.NewWriter(w, flate.DefaultCompression)
	case "br":
		return brotli.NewWriter(w), nil
	case "zstd":
		// With one goroutine the encoder does not outlive the exchange.
		return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	}
	return nil, fmt.Errorf("%w: no coding %q", errGrammar, coding)
}

// contextReader returns errGone once ctx has ended.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, errGone
	}
	return c.r.Read(p)
}

// alphabet has the bytes of a seeded body. They are printable and valid in every
// charset, so that people can read a body.
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// seededReader is an endless seeded body.
type seededReader struct{ seed uint64 }

func (r seededReader) ReadAt(p []byte, offset int64) (int, error) {
	fillSeeded(p, r.seed, offset)
	return len(p), nil
}

// fillSeeded takes twenty times as long with the race detector, and shares nothing but p.
//
//go:norace
func fillSeeded(p []byte, seed uint64, offset int64) {
	// Without mixing, the bodies of neighbouring seeds would be shifts of each other.
	first, word := splitmix64(seed), uint64(0)
	for i := range p {
		at := uint64(offset) + uint64(i)
		if i == 0 || at%8 == 0 {
			word = splitmix64(first + at/8)
		}
		p[i] = alphabet[word>>(at%8*8)&63]
	}
}

// splitmix64 is one step, from state z, of the generator of Steele, Lea and Flood.
func splitmix64(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// zeros is an endless body of zero bytes.
type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}

// echo returns the logged request in JSON.
func (x *exchange) echo() ([]byte, error) {
	request := x.entry.snapshot()
	seen := struct {
		Method   string  `json:"method"`
		URL      string  `json:"url"`
		Host     string  `json:"host"`
		Protocol string  `json:"protocol"`
		Fields   []Field `json:"headers"`
		Bytes    int64   `json:"body_bytes"`
		SHA256   string  `json:"body_sha256"`
	}{
		request.Method, x.req.RequestURI, request.Host, request.Protocol,
		request.Fields, request.BodyBytes, request.BodySHA256,
	}
	b, err := json.MarshalIndent(seen, "", "  ")
	return append(b, '\n'), err
}
