// Package sitemap reads sitemaps as sitemaps.org describes them, and lists of URLs. Both may be
// compressed with gzip. It reads them as streams, so their length does not affect memory.
package sitemap

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"fetchd/frontier/normal"
	"fetchd/frontier/work"
)

const (
	// MaxBytes is the maximum size of a sitemap by its protocol, decompressed.
	MaxBytes = 50 << 20
	// MaxEntries is the maximum number of URLs of a sitemap, or of sitemaps of an index, by the
	// protocol.
	MaxEntries = 50_000
	// MaxWork limits the work for a sitemap, with that for its URLs, as package work counts it. One of
	// MaxBytes needs less, unless thousands of its URLs have long hosts outside ASCII.
	MaxWork = 1 << 30
	// maxLine is the maximum length of a line of a list, with its line end.
	maxLine = 64 << 10
)

var (
	errLongLine = fmt.Errorf("the line is longer than %d KiB", maxLine>>10)
	byteOrder   = []byte("\ufeff")
)

// Entry is one URL of a sitemap or a list, or an error in its place.
type Entry struct {
	Line    int // from 1
	URL     string
	Sitemap bool      // the URL is that of a sitemap in an index
	Changed time.Time // lastmod; zero if unknown
	Err     error
	Fatal   bool // after Err the rest is not read
}

func fatal(line int, err error) Entry {
	return Entry{Line: line, Err: fmt.Errorf("%w; the rest was not read", err), Fatal: true}
}

// Read yields the entries of a sitemap, XML or text, up to [MaxBytes]. It adds its work to count, which
// may be nil; an error of count is the error of the last entry.
func Read(r io.Reader, count *work.Meter) iter.Seq[Entry] { return readUpTo(MaxBytes, r, count) }

func readUpTo(limit int, r io.Reader, count *work.Meter) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		in, err := unzipped(r)
		if err != nil {
			yield(fatal(1, err))
			return
		}
		head, _ := in.Peek(512) // the next read returns the error
		if bytes.HasPrefix(head, byteOrder) {
			_, _ = in.Discard(len(byteOrder)) // Peek has read it
		}
		m := &meter{in: in, left: limit, count: count}
		if !bytes.HasPrefix(bytes.TrimSpace(bytes.TrimPrefix(head, byteOrder)), []byte("<")) {
			m.token = limit // lines have their own limit
			m.perByte = perTextByte
			lines(m, yield)
			return
		}
		m.perByte = perXMLByte
		d := newDocument(m)
		if err := d.entries(yield); err != nil {
			line, _ := d.xml.InputPos()
			yield(fatal(line, err))
		}
	}
}

// unzipped decompresses gzip, which it recognises by its magic number.
func unzipped(r io.Reader) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(r, maxLine)
	if magic, _ := in.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) { // the next read returns the error
		return in, nil
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, err
	}
	return bufio.NewReaderSize(z, maxLine), nil
}

// NewEntry returns the entry of a URL. It drops a URL that is too long.
func NewEntry(line int, url string) Entry {
	e := Entry{Line: line, URL: url}
	if len(url) > normal.MaxURLBytes {
		_, e.Err = normal.NormalizeURL(url)
		e.URL = ""
	}
	return e
}

// ReadList yields one URL per line. It skips empty lines and lines that start with #.
func ReadList(r io.Reader) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		in, err := unzipped(r)
		if err != nil {
			yield(fatal(1, err))
			return
		}
		lines(in, yield)
	}
}

func lines(r io.Reader, yield func(Entry) bool) {
	in := bufio.NewReaderSize(r, maxLine)
	for n := 1; ; n++ {
		text, err := readLine(in)
		if n == 1 {
			text = strings.TrimPrefix(text, string(byteOrder))
		}
		text = strings.TrimSpace(text)
		if text != "" && text[0] != '#' && !yield(NewEntry(n, text)) {
			return
		}
		switch {
		case errors.Is(err, errLongLine):
			if !yield(Entry{Line: n, Err: err}) {
				return
			}
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			yield(fatal(n, err))
			return
		}
	}
}

// readLine returns a line, or errLongLine. The last line comes with io.EOF.
func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return string(line), err
	}
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = in.ReadSlice('\n')
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return "", errLongLine // the next call returns io.EOF
}
