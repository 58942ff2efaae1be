package links

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// imports lists the imports of each package of the module, both as folders.
func imports(t *testing.T, root string) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Module.Path}} {{.ImportPath}} {{join .Imports \" \"}}", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	found := make(map[string][]string)
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		module := words[0] + "/"
		folder := strings.TrimPrefix(words[1], module)
		found[folder] = nil
		for _, imported := range words[2:] {
			if strings.HasPrefix(imported, module) {
				found[folder] = append(found[folder], strings.TrimPrefix(imported, module))
			}
		}
	}
	return found
}

// TestPictureOfImports checks that every arrow in docs/design.md is an import, and that every
// import between the packages in the picture follows the arrows.
func TestPictureOfImports(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "design.md"))
	if err != nil {
		t.Fatal(err)
	}
	arrows := make(map[string][]string)
	for _, m := range regexp.MustCompile(`(?m)^ +(\S+) --> (\S+)$`).FindAllSubmatch(page, -1) {
		from, to := string(m[1]), string(m[2])
		arrows[from] = append(arrows[from], to)
		if arrows[to] == nil {
			arrows[to] = []string{}
		}
	}
	if len(arrows) < 10 {
		t.Fatalf("the picture has %d packages, want at least 10", len(arrows))
	}
	// node returns the package of the picture that folder belongs to.
	node := func(folder string) string {
		for ; folder != "."; folder = filepath.Dir(folder) {
			if arrows[folder] != nil {
				return folder
			}
		}
		return ""
	}
	drawn := make(map[string]bool)
	for folder, imported := range imports(t, root) {
		for _, to := range imported {
			from, to := node(folder), node(to)
			if from == "" || to == "" || from == to {
				continue
			}
			drawn[from+" "+to] = true
			if !leads(arrows, from, to) {
				t.Errorf("%s imports %s, but no arrows lead there", from, to)
			}
		}
	}
	for from, targets := range arrows {
		if leads(arrows, from, from) {
			t.Errorf("the arrows lead from %s back to it", from)
		}
		for _, to := range targets {
			if !drawn[from+" "+to] {
				t.Errorf("there is an arrow from %s to %s, but no import", from, to)
			}
		}
	}
}

// leads reports whether one or more arrows lead from one package to another.
func leads(arrows map[string][]string, from, to string) bool {
	next, seen := slices.Clone(arrows[from]), make(map[string]bool)
	for len(next) > 0 {
		p := next[0]
		next = next[1:]
		if p == to {
			return true
		}
		if !seen[p] {
			seen[p] = true
			next = append(next, arrows[p]...)
		}
	}
	return false
}

// TestFolders checks that the table of docs/design.md names each package of the product, below the row of its folder.
func TestFolders(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "design.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `.*$").FindAllString(string(page), -1)
	for folder := range imports(t, root) {
		switch top, _, _ := strings.Cut(folder, "/"); top {
		case "gen", "test", "tools", "deploy", "docs", "conformance", ".ci":
			continue // their rows say what is in them, or name it by what it does
		}
		named := regexp.MustCompile("`([a-z/]*/)?" + regexp.QuoteMeta(filepath.Base(folder)) + "/?`")
		if !slices.ContainsFunc(rows, named.MatchString) {
			t.Errorf("no row of the table names the package %s", folder)
		}
	}
}
