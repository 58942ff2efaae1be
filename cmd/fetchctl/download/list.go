package download

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"strings"

	"fetchd/internal/cli"
)

// maxList is the maximum size of a list of URLs or digests.
const maxList = 64 << 20

// entry is one file to download.
type entry struct {
	url   string
	where string // the argument or the line of the list, for messages
	name  string // of the file; see naming
	fixed bool   // the origin cannot change the name
}

// entries returns the URLs of the arguments and the lists, in their order, each once. Errors
// are usage errors and that of ctx.
func (c *Command) entries(ctx context.Context, stdin io.Reader) ([]*entry, error) {
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
	if err := cli.UsageErrors(func(yield func(error) bool) {
		for _, e := range all {
			yield(checkEntry(e))
		}
	}); err != nil {
		return nil, err
	}
	return distinct(all), nil
}

// checkEntry rejects text that is not a URL, and a name that no file can have, before anything is fetched. The service
// checks more.
func checkEntry(e *entry) error {
	if clean := cleanName(e.name); e.fixed && clean != e.name {
		return cli.UsageError(e.where, fmt.Sprintf("%.80q cannot be the name of a file here; %q can", e.name, clean))
	}
	if err := cli.CheckUTF8(map[string]string{e.where: e.url}); err != nil {
		return err
	}
	if err := cli.CheckScheme(e.where, e.url); err != nil {
		return err
	}
	u, err := url.Parse(e.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return cli.UsageError(e.where, fmt.Sprintf("%.80q is not an absolute http or https URL", e.url))
	}
	return nil
}

// distinct removes duplicates, and URLs without a file name that are also listed with one.
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
	text, err := cli.ReadInput(ctx, file, stdin, maxList)
	if err != nil {
		return nil, cli.InputError("--input", err)
	}
	if len(text) > maxList {
		return nil, cli.UsageError("--input", fmt.Sprintf("has more than %d bytes", maxList))
	}
	return parseList(file, string(text)), nil
}

// parseList parses a list with one URL per line, optionally followed by a file name.
func parseList(file, text string) (list []*entry) {
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
		}
		list = append(list, e)
	}
	return list
}

// readSums reads a list of digests: SHA-256 in hex by file name. It returns nil if there is no
// list.
func readSums(ctx context.Context, file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	if file == "-" {
		return nil, cli.UsageError("--sha256sums", "must be a file")
	}
	text, err := cli.ReadInput(ctx, file, nil, maxList)
	if err != nil {
		return nil, cli.InputError("--sha256sums", err)
	}
	sums, line := parseSums(string(text))
	if line != 0 {
		return nil, cli.UsageError("--sha256sums", fmt.Sprintf("%s:%d is not a line of sha256sum, or contradicts an earlier one", file, line))
	}
	return sums, nil
}

// parseSums parses lines of the form "DIGEST  NAME" or "DIGEST *NAME". Only the last segment
// of a path counts. line is the first line that cannot be parsed, or 0.
func parseSums(text string) (sums map[string]string, line int) {
	sums = make(map[string]string)
	n := 0
	for l := range strings.Lines(text) {
		n++
		l = strings.TrimRight(l, "\r\n")
		if strings.TrimSpace(l) == "" || l[0] == '#' {
			continue
		}
		l, escaped := strings.CutPrefix(l, `\`)
		digest, name, ok := strings.Cut(l, " ")
		raw, err := hex.DecodeString(digest)
		if !ok || err != nil || len(raw) != sha256.Size || len(name) < 2 || name[0] != ' ' && name[0] != '*' {
			return nil, n
		}
		name = name[1:]
		if escaped {
			name = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r").Replace(name)
		}
		name, digest = path.Base(name), strings.ToLower(digest)
		if other, twice := sums[name]; twice && other != digest {
			return nil, n
		}
		sums[name] = digest
	}
	return sums, 0
}

// digestOf returns the SHA-256 of r in hex. It stops when ctx ends.
func digestOf(ctx context.Context, r io.Reader) (string, error) {
	h := sha256.New()
	buf := make([]byte, 256<<10)
	for ctx.Err() == nil {
		n, err := r.Read(buf)
		_, _ = h.Write(buf[:n]) // never fails
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", ctx.Err()
}
