package links

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

func TestRepositoryHasNoBrokenLinks(t *testing.T) {
	broken, err := brokenLinks(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range broken {
		t.Errorf("broken link: %s", link)
	}
}

func TestBrokenLinks(t *testing.T) {
	tests := []struct {
		name string
		text string
		want []string
	}{
		{"an existing file", "[x](there.md)", nil},
		{"a file in a folder above", "[x](../README.md)", nil},
		{"a folder", "[x](../docs/)", nil},
		{"a missing file", "one\n[x](gone.md)", []string{"docs/page.md:2: gone.md"}},
		{"two on a line", "[x](gone.md) and ![y](lost.png)", []string{"docs/page.md:1: gone.md", "docs/page.md:1: lost.png"}},
		{"a reference", "[x]: gone.md", []string{"docs/page.md:1: gone.md"}},
		{"with a title", `[x](gone.md "Title")`, []string{"docs/page.md:1: gone.md"}},
		{"an existing heading", "[x](there.md#two-words-and-1)", nil},
		{"a missing heading", "[x](there.md#three)", []string{"docs/page.md:1: there.md#three"}},
		{"a heading in a code block", "[x](there.md#not-a-heading)", []string{"docs/page.md:1: there.md#not-a-heading"}},
		{"a heading of the same page", "# Here\n[x](#here) [y](#hence)", []string{"docs/page.md:2: #hence"}},
		{"another host", "[x](https://example.com/gone.md) <https://example.com> [m](mailto:a@example.com)", nil},
		{"in a code span", "`[x](gone.md)`", nil},
		{"in a code block", "```\n[x](gone.md)\n```\n[y](lost.md)", []string{"docs/page.md:4: lost.md"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, filepath.Join(root, "README.md"), "# Top\n")
			write(t, filepath.Join(root, "docs", "there.md"), "## Two *words*, and 1\n```\n# Not a heading\n```\n")
			write(t, filepath.Join(root, "docs", "page.md"), tt.text)
			write(t, filepath.Join(root, "docs", "testdata", "page.md"), "[x](gone.md)")
			got, err := brokenLinks(root)
			if err != nil {
				t.Fatalf("brokenLinks with page %q: %v", tt.text, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("brokenLinks with page %q (-want +got):\n%s", tt.text, diff)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

var (
	inline    = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)`)
	reference = regexp.MustCompile(`^\s{0,3}\[[^\]]+\]:\s*<?([^\s>]+)>?`)
	code      = regexp.MustCompile("`[^`]*`")
	heading   = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*\s*$`)
	target    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// brokenLinks lists the links in the Markdown files under root that name a missing file or
// heading, each as "file:line: link".
func brokenLinks(root string) ([]string, error) {
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

// prose returns the lines of text. Lines of fenced code blocks are empty, so that line numbers
// stay correct.
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

// leadsSomewhere reports whether link, found in the file from, names an existing file and, after
// "#", one of its headings or anchors. Links with a scheme or a host are not checked.
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
		return false, nil //nolint:nilerr // a missing file is the answer
	}
	if u.Fragment == "" || filepath.Ext(file) != ".md" {
		return true, nil
	}
	return hasAnchor(file, u.Fragment)
}

func hasAnchor(file, anchor string) (bool, error) {
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

// slug returns the anchor that GitHub gives a heading: in lower case, without punctuation, and
// with a hyphen for each space.
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

// TestForeignSentences checks that a README has each sentence for which a test of another project may fail.
func TestForeignSentences(t *testing.T) {
	root := filepath.Join("..", "..")
	for list, client := range map[string]string{"requests": "python", "httpx": "python", "undici": "node"} {
		readme, err := os.ReadFile(filepath.Join(root, "client", client, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		lines, err := os.ReadFile(filepath.Join(root, "test", "foreign", list+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(lines)) {
			sentence, is := strings.CutPrefix(strings.TrimSpace(line), "> ")
			if is && !strings.Contains(string(readme), sentence) {
				t.Errorf("test/foreign/%s.txt: the README of client/%s does not say: %s", list, client, sentence)
			}
		}
	}
}
