package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"fetchd/frontier/normal"
	"fetchd/internal/cli"
)

// maxLine is the maximum length of a line of a list, with its line end.
const maxLine = 64 << 10

var errLongLine = fmt.Errorf("the line is longer than %d KiB", maxLine>>10)

// entry is one URL of a source, or an error in its place.
type entry struct {
	source string
	line   int // from 1
	url    string
	err    error
}

// where returns the place of an entry: "FILE:LINE".
func (e *entry) where() string { return fmt.Sprintf("%s:%d", e.source, e.line) }

// source is a source of entries.
type source struct {
	name string // in reports
	open func() (io.ReadCloser, error)
	read func(io.Reader) iter.Seq[entry]
}

// sources returns the sources on the command line in order: arguments, lists, sitemaps. It finds
// unreadable files before anything is added.
func (c *addCmd) sources(stdin io.Reader) ([]source, error) {
	var all []source
	if len(c.URL) > 0 {
		none := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("")), nil }
		all = append(all, source{"argument", none, func(io.Reader) iter.Seq[entry] { return arguments(c.URL) }})
	}
	standard := 0
	files := func(flag string, names []string, read func(io.Reader) iter.Seq[entry]) error {
		for _, name := range names {
			s := source{name, func() (io.ReadCloser, error) { return os.Open(name) }, read}
			if name == "-" {
				standard++
				s = source{"stdin", func() (io.ReadCloser, error) { return io.NopCloser(stdin), nil }, read}
			} else if err := readable(name); err != nil {
				return cli.UsageError(flag, fmt.Sprint(err))
			}
			all = append(all, s)
		}
		return nil
	}
	if err := errors.Join(files("--input", c.Input, listEntries), files("--sitemap", c.Sitemap, sitemapEntries)); err != nil {
		return nil, err
	}
	switch {
	case standard > 1:
		return nil, cli.UsageError("-", "standard input can be read only once")
	case len(all) == 0:
		return nil, cli.UsageError("add", "nothing to add: give URLs, -i FILE or --sitemap FILE")
	}
	return all, nil
}

// readable returns an error if a file cannot be read. It does not open pipes, because their writer
// would see a reader that goes away.
func readable(name string) error {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory", name)
	case !info.Mode().IsRegular():
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return f.Close()
}

// readAll sends the entries of sources until ctx ends.
func readAll(ctx context.Context, sources []source, to chan<- entry) {
	for _, s := range sources {
		for e := range s.entries() {
			e.source = s.name
			select {
			case to <- e:
			case <-ctx.Done():
				return
			}
		}
	}
}

// entries reads the source to its end, compressed or not. What cannot be read is an entry with an
// error.
func (s source) entries() iter.Seq[entry] {
	return func(yield func(entry) bool) {
		f, err := s.open()
		if err != nil {
			yield(entry{line: 1, err: err})
			return
		}
		defer func() { _ = f.Close() }() // reading has no other errors
		r, err := unzipped(f)
		if err != nil {
			yield(entry{line: 1, err: err})
			return
		}
		s.read(r)(yield)
	}
}

// unzipped decompresses gzip, which it recognises by its magic number.
func unzipped(r io.Reader) (io.Reader, error) {
	in := bufio.NewReaderSize(r, maxLine)
	if magic, _ := in.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) { // the next read returns the error
		return in, nil
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, restUnread(err)
	}
	return z, nil
}

// restUnread adds that the rest of the source was not read.
func restUnread(err error) error {
	return fmt.Errorf("%w; the rest was not read", err)
}

func arguments(urls []string) iter.Seq[entry] {
	return func(yield func(entry) bool) {
		for i, url := range urls {
			if !yield(urlEntry(i+1, url)) {
				return
			}
		}
	}
}

// urlEntry returns an entry. It drops a URL that is too long.
func urlEntry(line int, url string) entry {
	e := entry{line: line, url: url}
	if len(url) > normal.MaxURLBytes {
		_, e.err = normal.NormalizeURL(url)
		e.url = ""
	}
	return e
}

// listEntries reads one URL per line. It skips empty lines and lines that start with #.
func listEntries(r io.Reader) iter.Seq[entry] {
	return func(yield func(entry) bool) {
		in := bufio.NewReaderSize(r, maxLine)
		for n := 1; ; n++ {
			text, err := readLine(in)
			if n == 1 {
				text = strings.TrimPrefix(text, "\ufeff")
			}
			text = strings.TrimSpace(text)
			if text != "" && text[0] != '#' && !yield(urlEntry(n, text)) {
				return
			}
			switch {
			case errors.Is(err, errLongLine):
				if !yield(entry{line: n, err: err}) {
					return
				}
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(entry{line: n, err: restUnread(err)})
				return
			}
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
