package sources

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Tree knows the names that the Go sources of one module declare.
type Tree struct {
	packages map[string]*names
}

// names are those of one package, or of several that go by the same name.
type names struct {
	symbols  map[string]bool // "Decide", "Client.Fetch" and, with a pointer receiver, "(*Client).Fetch"
	tests    map[string]bool // "TestDecide"
	literals map[string]bool // string literals of the test files
}

// Load parses every Go file of the module whose root is given. A package is
// known by its folder's last name ("origin"), by its folder
// ("conformance/origin") and by its own name; packages that share a name are
// looked up as one.
func Load(root string) (*Tree, error) {
	tree := &Tree{packages: map[string]*names{}}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path != root && outside(path, entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		return tree.add(root, path)
	})
	return tree, err
}

// outside reports whether a folder holds nothing of this module.
func outside(path, name string) bool {
	if name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return true
	}
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil
}

func (t *Tree) add(root, path string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse %s: %w", path, err)
	}
	dir, err := filepath.Rel(root, filepath.Dir(path))
	if err != nil {
		return err
	}
	dir = filepath.ToSlash(dir)
	known := map[string]bool{
		dir:                true,
		filepath.Base(dir): true,
		strings.TrimSuffix(file.Name.Name, "_test"): true,
	}
	for name := range known {
		t.named(name).add(file, strings.HasSuffix(path, "_test.go"))
	}
	return nil
}

func (t *Tree) named(name string) *names {
	if t.packages[name] == nil {
		t.packages[name] = &names{symbols: map[string]bool{}, tests: map[string]bool{}, literals: map[string]bool{}}
	}
	return t.packages[name]
}

func (n *names) add(file *ast.File, test bool) {
	if test {
		n.addTests(file)
		return
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			n.addFunc(decl)
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				n.addSpec(spec)
			}
		}
	}
}

func (n *names) addFunc(decl *ast.FuncDecl) {
	if decl.Recv == nil {
		n.symbols[decl.Name.Name] = true
		return
	}
	receiver := decl.Recv.List[0].Type
	pointer, isPointer := receiver.(*ast.StarExpr)
	if isPointer {
		receiver = pointer.X
		n.symbols["(*"+typeName(receiver)+")."+decl.Name.Name] = true
	}
	n.symbols[typeName(receiver)+"."+decl.Name.Name] = true
}

func typeName(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.Ident:
		return expr.Name
	case *ast.IndexExpr: // a receiver with a type parameter
		return typeName(expr.X)
	case *ast.IndexListExpr:
		return typeName(expr.X)
	}
	return ""
}

func (n *names) addSpec(spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			n.symbols[name.Name] = true
		}
	case *ast.TypeSpec:
		n.symbols[spec.Name.Name] = true
		for _, member := range members(spec.Type) {
			n.symbols[spec.Name.Name+"."+member] = true
		}
	}
}

// members returns the fields of a struct and the methods of an interface.
func members(expr ast.Expr) []string {
	var list *ast.FieldList
	switch expr := expr.(type) {
	case *ast.StructType:
		list = expr.Fields
	case *ast.InterfaceType:
		list = expr.Methods
	default:
		return nil
	}
	var found []string
	for _, field := range list.List {
		for _, name := range field.Names {
			found = append(found, name.Name)
		}
	}
	return found
}

var testName = regexp.MustCompile(`^(Test|Fuzz|Example|Benchmark)`)

func (n *names) addTests(file *ast.File) {
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && testName.MatchString(f.Name.Name) {
			n.tests[f.Name.Name] = true
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		if lit, ok := node.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				n.literals[text] = true
			}
		}
		return true
	})
}

// A package path holds no dot and no parenthesis, so the first dot ends it.
var qualified = regexp.MustCompile(`^([^.()]+)\.(.+)$`)

// HasSymbol reports whether the sources, tests aside, declare symbol:
// "package.Name" for a function, type, variable or constant,
// "package.Type.Member" for a field or method, "package.(*Type).Method" for a
// method with a pointer receiver.
func (t *Tree) HasSymbol(symbol string) bool {
	m := qualified.FindStringSubmatch(symbol)
	if m == nil {
		return false
	}
	pkg, ok := t.packages[m[1]]
	return ok && pkg.symbols[m[2]]
}

// HasTest reports whether the tests declare test: "package.TestName", or
// "package.TestName/row name", where the row's name is a string literal of that
// package's test files.
func (t *Tree) HasTest(test string) bool {
	m := qualified.FindStringSubmatch(test)
	if m == nil {
		return false
	}
	pkg, ok := t.packages[m[1]]
	name, row, hasRow := strings.Cut(m[2], "/")
	return ok && pkg.tests[name] && (!hasRow || pkg.literals[row])
}
