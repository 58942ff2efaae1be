package links_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/internal/links"
)

func TestRepositoryHasNoBrokenLinks(t *testing.T) {
	broken, err := links.Broken(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range broken {
		t.Errorf("broken link: %s", link)
	}
}

func TestBroken(t *testing.T) {
	tests := []struct {
		name string
		text string
		want []string
	}{
		{"a file that is there", "[x](there.md)", nil},
		{"a file in a folder above", "[x](../README.md)", nil},
		{"a folder", "[x](../docs/)", nil},
		{"a file that is missing", "one\n[x](gone.md)", []string{"docs/page.md:2: gone.md"}},
		{"two on a line", "[x](gone.md) and ![y](lost.png)", []string{"docs/page.md:1: gone.md", "docs/page.md:1: lost.png"}},
		{"a reference", "[x]: gone.md", []string{"docs/page.md:1: gone.md"}},
		{"with a title", `[x](gone.md "Title")`, []string{"docs/page.md:1: gone.md"}},
		{"a heading that is there", "[x](there.md#two-words-and-1)", nil},
		{"a heading that is missing", "[x](there.md#three)", []string{"docs/page.md:1: there.md#three"}},
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
			got, err := links.Broken(root)
			if err != nil {
				t.Fatalf("Broken with page %q: %v", tt.text, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Broken with page %q (-want +got):\n%s", tt.text, diff)
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
