package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"fetchd/frontier/sitemap"
	"fetchd/internal/cli"
)

// entry is one URL of a source, or an error in its place.
type entry struct {
	source string
	sitemap.Entry
}

// where returns the place of an entry: "FILE:LINE".
func (e *entry) where() string { return fmt.Sprintf("%s:%d", e.source, e.Line) }

// Source is a source of entries.
type Source struct {
	name string // in reports
	open func() (io.ReadCloser, error)
	read func(io.Reader) iter.Seq[sitemap.Entry]
}

// Sources returns the sources of a command line in order: URLs, lists, sitemaps. It finds unreadable files
// before anything is added.
func Sources(urls, lists, sitemaps []string, stdin io.Reader) ([]Source, error) {
	var all []Source
	if len(urls) > 0 {
		all = append(all, Source{"argument", empty, func(io.Reader) iter.Seq[sitemap.Entry] { return arguments(urls, false) }})
	}
	standard := 0
	files := func(flag string, names []string, read func(io.Reader) iter.Seq[sitemap.Entry]) error {
		for _, name := range names {
			if flag == "--sitemap" && isURL(name) {
				all = append(all, Source{"argument", empty, func(io.Reader) iter.Seq[sitemap.Entry] { return arguments([]string{name}, true) }})
				continue
			}
			s := Source{name, func() (io.ReadCloser, error) { return os.Open(name) }, read}
			if name == "-" {
				standard++
				s = Source{"stdin", func() (io.ReadCloser, error) { return io.NopCloser(stdin), nil }, read}
			} else if err := readable(name); err != nil {
				return cli.UsageError(flag, fmt.Sprint(err))
			}
			all = append(all, s)
		}
		return nil
	}
	readSitemap := func(r io.Reader) iter.Seq[sitemap.Entry] { return sitemap.Read(r, nil) }
	if err := errors.Join(files("--input", lists, sitemap.ReadList), files("--sitemap", sitemaps, readSitemap)); err != nil {
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
func readAll(ctx context.Context, sources []Source, to chan<- entry) {
	for _, s := range sources {
		for e := range s.entries() {
			select {
			case to <- entry{s.name, e}:
			case <-ctx.Done():
				return
			}
		}
	}
}

// entries reads the source to its end, compressed or not. An entry with an error replaces what
// cannot be read.
func (s Source) entries() iter.Seq[sitemap.Entry] {
	return func(yield func(sitemap.Entry) bool) {
		f, err := s.open()
		if err != nil {
			yield(sitemap.Entry{Line: 1, Err: err})
			return
		}
		defer func() { _ = f.Close() }() // reading has no other errors
		s.read(f)(yield)
	}
}

func empty() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("")), nil }

// isURL reports whether the value of --sitemap is a URL and no file.
func isURL(s string) bool {
	return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")
}

func arguments(urls []string, sitemaps bool) iter.Seq[sitemap.Entry] {
	return func(yield func(sitemap.Entry) bool) {
		for i, url := range urls {
			e := sitemap.NewEntry(i+1, url)
			e.Sitemap = sitemaps
			if !yield(e) {
				return
			}
		}
	}
}
