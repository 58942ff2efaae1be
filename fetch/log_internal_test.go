package fetch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fetchd/classify"
	"fetchd/fetch/urls"
)

// TestRedacted checks that a URL whose text exists already is logged as urls.Redact would write it.
func TestRedacted(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, url string }{
		{"plain", "http://origin.test/a/b"},
		{"no path", "http://origin.test"},
		{"a port", "https://origin.test:8443/"},
		{"escapes", "http://origin.test/%2F/%C3%A9 é"},
		{"a query", "http://origin.test/?token=secret"},
		{"an empty query", "http://origin.test/?"},
		{"a fragment", "http://origin.test/#secret"},
		{"userinfo", "http://user:secret@origin.test/"},
		{"all of it", "http://user:secret@origin.test/?secret#secret"},
		{"IPv6", "http://[::1]/"},
	} {
		u, err := url.Parse(row.url)
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		r := &run{req: &Request{URL: u}, initialHop: hopRequest{url: u}}
		if want, got := urls.Redact(u), r.redactedURL(); got != want {
			t.Errorf("%s: %q, want %q", row.name, got, want)
		}
	}
	if got := (&run{req: new(Request)}).redactedURL(); got != "" {
		t.Errorf("without a URL: %q, want nothing", got)
	}
}

func TestEveryClassHasAMessage(t *testing.T) {
	t.Parallel()
	for _, class := range classify.Classes() {
		if classMessage(class, "") == "" {
			t.Errorf("class %s has no message", class)
		}
	}
}

// TestCallTree checks the list of calls at the top of run.go: each function is in its file, is
// called by the function above it, and comes later in the file than those listed before.
func TestCallTree(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("run.go")
	must(t, err)
	var (
		file    string
		callers []string                 // the functions above the line, by depth
		last    = map[string]token.Pos{} // of the function listed last, by file
		listed  int
		files   = map[string]map[string]*ast.FuncDecl{}
	)
	for line := range strings.Lines(string(source)) {
		text, ok := strings.CutPrefix(line, "//\t")
		if !ok {
			continue
		}
		words := strings.Fields(text)
		if len(words) > 1 && strings.HasSuffix(words[1], ".go") {
			file = words[1]
		}
		if files[file] == nil {
			files[file] = functions(t, file)
		}
		name := strings.TrimPrefix(words[0], "classify.")
		f := files[file][name]
		if f == nil {
			t.Errorf("%s is not in %s", name, file)
			continue
		}
		if f.Pos() <= last[file] {
			t.Errorf("%s is above the function listed before it in %s: move it down", name, file)
		}
		last[file] = f.Pos()
		depth := (len(text) - len(strings.TrimLeft(text, " "))) / 2
		callers = append(callers[:depth], words[0])
		if depth > 0 && !uses(files, callers[depth-1], name) {
			t.Errorf("%s does not call %s", callers[depth-1], name)
		}
		listed++
	}
	if listed < 30 {
		t.Errorf("%d functions are listed, want the calls of a whole fetch", listed)
	}
}

// functions returns the functions of a file, methods as Type.name.
func functions(t *testing.T, file string) map[string]*ast.FuncDecl {
	t.Helper()
	path := file
	if strings.HasPrefix(file, "classify/") {
		path = filepath.Join("..", file)
	}
	tree, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	must(t, err)
	found := map[string]*ast.FuncDecl{}
	for _, decl := range tree.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			receiver := f.Recv.List[0].Type
			if pointer, ok := receiver.(*ast.StarExpr); ok {
				receiver = pointer.X
			}
			if named, ok := receiver.(*ast.Ident); ok {
				name = named.Name + "." + name
			}
		}
		found[name] = f
	}
	return found
}

// uses reports whether a caller names the function. go-retryablehttp calls three functions for
// run.loop, which newEngine sets up.
func uses(files map[string]map[string]*ast.FuncDecl, caller, name string) bool {
	if caller == "run.loop" {
		caller = "newEngine"
		name = strings.TrimSuffix(name, ".RoundTrip")
	}
	name = name[strings.LastIndex(name, ".")+1:]
	found := false
	for _, functions := range files {
		f := functions[caller]
		if f == nil {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && id.Name == name && id != f.Name {
				found = true
			}
			return !found
		})
	}
	return found
}
