package frontier

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// TestLife checks the list at the top of run.go: each function is in its file, and the one above it calls it.
func TestLife(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("run.go")
	must(t, err)
	var callers []map[string]bool // what the functions above a line name, by depth
	listed := 0
	for line := range strings.Lines(string(source)) {
		text, ok := strings.CutPrefix(line, "//\t")
		if !ok {
			continue
		}
		words := strings.Fields(text)
		_, name, _ := strings.Cut(words[0], ".")
		depth := (len(text) - len(strings.TrimLeft(text, " "))) / 2
		names := namesIn(t, words[1], words[0])
		if names == nil {
			t.Errorf("%s is not in %s", words[0], words[1])
		}
		if depth > 0 && !callers[depth-1][name] {
			t.Errorf("%s is not called by the function above it", words[0])
		}
		callers = append(callers[:depth], names)
		listed++
	}
	if listed < 20 {
		t.Errorf("%d functions are listed, want the life of a URL", listed)
	}
}

// namesIn returns the names that a method, Type.name, of a file uses. It returns nil if there is no such method.
func namesIn(t *testing.T, file, method string) map[string]bool {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	must(t, err)
	for _, decl := range tree.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv == nil {
			continue
		}
		star, ok := f.Recv.List[0].Type.(*ast.StarExpr)
		if !ok {
			continue
		}
		if named, ok := star.X.(*ast.Ident); !ok || named.Name+"."+f.Name.Name != method {
			continue
		}
		names := make(map[string]bool)
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				names[id.Name] = true
			}
			return true
		})
		return names
	}
	return nil
}
