package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	"fetchd/internal/cli"
)

// maxList is the longest list of URLs or digests that is read.
const maxList = 64 << 20

// entry is one file to be fetched.
type entry struct {
	url   string
	where string // as the user knows it: an argument or a line
	name  string // of the file; see naming
	fixed bool   // the origin has no say in the name
}

// entries are the URLs of the arguments and the lists, in their order, each
// once. Errors are usageErrors, and that of ctx.
func (c *downloadCmd) entries(ctx context.Context, stdin io.Reader) ([]*entry, error) {
	var all []*entry
	for _, u := range c.URL {
		if u == "-" {
			listed, err := readList(ctx, u, stdin)
			if err != nil {
				return nil, err
			}
			all = append(all, listed...)
			continue
		}
		all = append(all, &entry{url: u, where: "URL"})
	}
	if c.Input != "" {
		listed, err := readList(ctx, c.Input, stdin)
		if err != nil {
			return nil, err
		}
		all = append(all, listed...)
	}
	if len(all) == 0 {
		return nil, cli.UsageError("URL", "is missing: give one, or a list with -i FILE")
	}
	for _, e := range all {
		if err := checkURL(e); err != nil {
			return nil, err
		}
	}
	return distinct(all), nil
}

// checkURL finds what is no URL before anything is fetched. The service looks
// closer.
func checkURL(e *entry) error {
	if err := checkText(map[string]string{e.where: e.url}); err != nil {
		return err
	}
	u, err := url.Parse(e.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return cli.UsageError(e.where, fmt.Sprintf("%.80q is no absolute http or https URL", e.url))
	}
	return nil
}

// distinct leaves out what is named twice: a URL without a file name, where it
// stands elsewhere too.
func distinct(all []*entry) []*entry {
	type key struct{ url, name string }
	seen, named := make(map[key]bool), make(map[string]bool)
	for _, e := range all {
		named[e.url] = named[e.url] || e.fixed
	}
	kept := all[:0]
	for _, e := range all {
		k := key{e.url, e.name}
		if seen[k] || !e.fixed && named[e.url] {
			continue
		}
		seen[k] = true
		kept = append(kept, e)
	}
	return kept
}

// readList reads a list from a file, or from standard input for "-".
func readList(ctx context.Context, file string, stdin io.Reader) ([]*entry, error) {
	text, err := readInput(ctx, file, stdin, maxList)
	if err != nil {
		return nil, inputError("--input", err)
	}
	if len(text) > maxList {
		return nil, cli.UsageError("--input", fmt.Sprintf("has more than %d bytes", maxList))
	}
	return parseList(file, string(text))
}

// parseList reads a URL a line, each with a file name behind it or without.
func parseList(file, text string) ([]*entry, error) {
	var list []*entry
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		e := &entry{url: line, where: fmt.Sprintf("%s:%d", file, n)}
		if i := strings.IndexAny(line, " \t"); i >= 0 {
			e.url, e.name, e.fixed = line[:i], strings.TrimSpace(line[i:]), true
			if clean := cleanName(e.name); clean != e.name {
				return nil, cli.UsageError(e.where, fmt.Sprintf("%.80q cannot be a file's name here; %q could", e.name, clean))
			}
		}
		list = append(list, e)
	}
	return list, nil
}
