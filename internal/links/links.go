// Package links finds links in Markdown that lead nowhere. Only links inside
// the repository are looked at: nothing is asked of the network.
package links

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

var (
	inline    = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)`)
	reference = regexp.MustCompile(`^\s{0,3}\[[^\]]+\]:\s*<?([^\s>]+)>?`)
	code      = regexp.MustCompile("`[^`]*`")
	heading   = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*\s*$`)
	target    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// Broken lists the links in the Markdown files under root that name a file or
// a heading that is not there, each as "file:line: link".
func Broken(root string) ([]string, error) {
	var broken []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && skipped(entry.Name()) {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		found, err := inFile(path)
		for _, link := range found {
			rel, relErr := filepath.Rel(root, path)
			if relErr != nil {
				return relErr
			}
			broken = append(broken, fmt.Sprintf("%s:%s", filepath.ToSlash(rel), link))
		}
		return err
	})
	return broken, err
}

func skipped(folder string) bool {
	return folder == "testdata" || folder == "node_modules" || folder == ".git"
}

// inFile lists the broken links of one file as "line: link".
func inFile(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var broken []string
	for n, line := range prose(string(text)) {
		for _, link := range linksOf(line) {
			ok, err := leadsSomewhere(path, link)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, n+1, err)
			}
			if !ok {
				broken = append(broken, fmt.Sprintf("%d: %s", n+1, link))
			}
		}
	}
	return broken, nil
}

// prose returns the lines of text with fenced code blocks emptied, so that
// line numbers stay true.
func prose(text string) []string {
	lines := strings.Split(text, "\n")
	fence := ""
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		switch {
		case fence == "" && (strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~")):
			fence, lines[i] = trimmed[:3], ""
		case fence != "":
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
			lines[i] = ""
		}
	}
	return lines
}

func linksOf(line string) []string {
	line = code.ReplaceAllString(line, "")
	var found []string
	for _, m := range inline.FindAllStringSubmatch(line, -1) {
		found = append(found, m[1])
	}
	if m := reference.FindStringSubmatch(line); m != nil {
		found = append(found, m[1])
	}
	return found
}

// leadsSomewhere reports whether link, found in the file from, names a file
// that is there and, after "#", one of its headings. Links with a scheme or a
// host are taken on trust.
func leadsSomewhere(from, link string) (bool, error) {
	u, err := url.Parse(link)
	if err != nil {
		return false, fmt.Errorf("link %q: %w", link, err)
	}
	if u.Scheme != "" || u.Host != "" {
		return true, nil
	}
	file := from
	if u.Path != "" {
		file = filepath.Join(filepath.Dir(from), filepath.FromSlash(u.Path))
	}
	if _, err := os.Stat(file); err != nil {
		return false, nil //nolint:nilerr // not being there is the answer
	}
	if u.Fragment == "" || filepath.Ext(file) != ".md" {
		return true, nil
	}
	return hasHeading(file, u.Fragment)
}

func hasHeading(file, anchor string) (bool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	for _, line := range prose(string(text)) {
		if m := heading.FindStringSubmatch(line); m != nil && slug(m[1]) == anchor {
			return true, nil
		}
	}
	return false, nil
}

// slug is the anchor that GitHub makes of a heading: lower case, punctuation
// dropped, a hyphen for each space.
func slug(title string) string {
	title = target.ReplaceAllString(title, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}
