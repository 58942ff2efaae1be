package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fetchd/cmd/frontier/worker"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
	"fetchd/internal/wacz"
)

// check checks the flags of a package.
func (c *exportCmd) check(a *app) error {
	given := func(flag string) bool { return slices.Contains(a.given, flag) }
	switch {
	case c.WACZ == "" && given("wacz"):
		return cli.UsageError("--wacz", "is empty: give the name of a file")
	case c.WACZ == "" && given("warc"):
		return cli.UsageError("--warc", "is for a package: give its name with --wacz")
	case c.WACZ != "" && len(c.WARC) == 0:
		return cli.UsageError("--wacz", "needs the WARC files: give their directory with --warc, as for \"frontier crawl\"")
	case c.WACZ != "" && given("what"):
		return cli.UsageError("--what", "has no effect with --wacz: remove one of them")
	case c.WACZ != "" && given("output"):
		return cli.UsageError("--output", "has no effect with --wacz, which names the file: remove it")
	}
	return nil
}

// pack writes the package.
func (c *exportCmd) pack(ctx context.Context, a *app, s store.Store) error {
	files, err := warcFiles(c.WARC)
	if err != nil {
		return err
	}
	out, err := cli.OpenOutput(c.WACZ, a.Out)
	if err != nil {
		return err
	}
	defer out.Discard()
	p := &wacz.Package{Files: files, Title: c.name(), Software: worker.Agent(), Created: time.Now(), Pages: pagesOf(s.URLs(ctx))}
	err = p.Write(ctx, out)
	if wrong, ok := errors.AsType[*wacz.InputError](err); ok && ctx.Err() == nil {
		return cli.InputError("--warc", wrong)
	}
	if err != nil {
		return err
	}
	return out.Keep()
}

// warcFiles returns the WARC files in directories in the order of their names, which begin with their time.
func warcFiles(dirs []string) ([]string, error) {
	var files []string
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, cli.InputError("--warc", err)
		}
		for _, e := range entries {
			name, path := e.Name(), filepath.Join(dir, e.Name())
			switch {
			case e.IsDir():
			case strings.HasSuffix(name, ".warc.gz.open"):
				return nil, cli.UsageError("--warc", fmt.Sprintf("%s is not complete: end the crawl that writes it. If that has crashed, the next \"frontier crawl\" with this --warc completes it", path))
			case strings.HasSuffix(name, ".warc"), strings.HasSuffix(name, ".warc.zst"):
				return nil, cli.UsageError("--warc", fmt.Sprintf("%s is not a .warc.gz: compress each of its records with gzip, with warcio recompress for example, or move it away", path))
			case strings.HasSuffix(name, ".warc.gz"):
				if i := slices.IndexFunc(files, func(other string) bool { return strings.EqualFold(filepath.Base(other), name) }); i >= 0 {
					return nil, cli.UsageError("--warc", fmt.Sprintf("%s and %s have one name: rename one of them", files[i], path))
				}
				files = append(files, path)
			}
		}
	}
	if files == nil {
		return nil, cli.UsageError("--warc", fmt.Sprintf("there is no .warc.gz file in %s: give the directory of \"frontier crawl --warc\"", strings.Join(dirs, ", ")))
	}
	slices.SortFunc(files, func(x, y string) int { return strings.Compare(filepath.Base(x), filepath.Base(y)) })
	return files, nil
}

// pagesOf returns what a package says about URLs.
func pagesOf(urls iter.Seq2[store.URL, error]) iter.Seq2[wacz.Page, error] {
	return func(yield func(wacz.Page, error) bool) {
		for u, err := range urls {
			p := wacz.Page{ID: u.ID, URL: u.URL, Title: u.Title, Depth: u.Depth, Seed: u.Depth == 0 && u.ParentURL == "", Requisite: u.Kind < store.Page}
			if !yield(p, err) {
				return
			}
		}
	}
}
