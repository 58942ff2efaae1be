package conformance_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mutant is a change in one place of package classify.
type mutant struct {
	id       int
	file     string // name without folder
	line     int
	key      string // file, function and change, which stay the same when lines move
	was, now string
}

// String describes the place and the change.
func (m mutant) String() string {
	return fmt.Sprintf("%s:%d: %s => %s", m.file, m.line, m.was, m.now)
}

// switcher is added to the mutated package. It selects the active mutant of a process; 0 is none.
const switcher = `package classify

import (
	"os"
	"strconv"
	"time"
)

// Not every file that has a duration imports time.
type mutantDuration = time.Duration

var mutant, _ = strconv.Atoi(os.Getenv("` + mutantVariable + `"))

func SetMutant(id int) { mutant = id }

func pick[T any](id int, now, was T) T {
	if mutant == id {
		return now
	}
	return was
}
`

// switchers is added to the tests of the package. It makes active one mutant after the other, whose ids it reads.
const switchers = `package classify_test

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/classify"
	"fetchd/conformance"
	"fetchd/test/must"
)

func TestMutants(t *testing.T) {
	vectors, err := conformance.Vectors()
	must.Succeed(t, err)
	noticed := func() (yes bool) {
		defer func() { yes = yes || recover() != nil }()
		for _, v := range vectors {
			policy, seen := observation(t, &v.Observation)
			if !cmp.Equal(expected(&v.Verdict), told(classify.Decide(policy, seen))) {
				return true
			}
		}
		return false
	}
	for ids := bufio.NewScanner(os.Stdin); ids.Scan(); {
		id, err := strconv.Atoi(ids.Text())
		must.Succeed(t, err)
		classify.SetMutant(id)
		fmt.Println("noticed:", noticed())
	}
}
`

const mutantVariable = "FETCHD_MUTANT"

// mutator writes all mutants of a package into one copy of it, each guarded by a condition, so that
// the package is compiled only once.
type mutator struct {
	fset    *token.FileSet
	info    *types.Info
	pkg     *types.Package
	mutants []mutant
	seen    map[string]int

	// State of the current file.
	file    string
	src     []byte
	within  string // the current declaration
	changes map[span]*change
	insert  map[int]string
}

type span struct{ from, to int }

// change has the alternatives for an expression.
type change struct {
	typ  string // "" for a condition, which must be evaluated lazily
	ids  []int
	text []string
}

// mutate returns the mutated text of the named files of the package in dir, and the mutants.
func mutate(t *testing.T, dir string, names ...string) (map[string][]byte, []mutant) {
	t.Helper()
	m := &mutator{fset: token.NewFileSet(), seen: make(map[string]int)}
	sources, trees := m.load(t, dir)
	texts := make(map[string][]byte)
	for _, name := range names {
		if trees[name] == nil {
			t.Fatalf("%s has no file %s", dir, name)
		}
		m.file, m.src = name, sources[name]
		m.changes, m.insert = make(map[span]*change), make(map[int]string)
		for _, decl := range trees[name].Decls {
			m.declaration(decl)
		}
		texts[name] = m.render(span{0, len(m.src)})
	}
	return texts, m.mutants
}

// load parses and type-checks every non-test file of the package.
func (m *mutator) load(t *testing.T, dir string) (map[string][]byte, map[string]*ast.File) {
	t.Helper()
	sources, trees := make(map[string][]byte), make(map[string]*ast.File)
	var all []*ast.File
	for _, path := range goFiles(t, dir) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		name := filepath.Base(path)
		sources[name] = readFile(t, path)
		tree, err := parser.ParseFile(m.fset, path, sources[name], parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		trees[name] = tree
		all = append(all, tree)
	}
	m.info = &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object)}
	pkg, err := (&types.Config{Importer: importer.Default()}).Check("classify", m.fset, all, m.info)
	if err != nil {
		t.Fatal(err)
	}
	m.pkg = pkg
	return sources, trees
}

func (m *mutator) declaration(decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		m.within = decl.Name.Name
		ast.Inspect(decl.Body, m.node)
	case *ast.GenDecl:
		if !m.values(decl) {
			return
		}
		for _, spec := range decl.Specs {
			if value, ok := spec.(*ast.ValueSpec); ok {
				m.within = value.Names[0].Name
			}
			ast.Inspect(spec, m.node)
		}
	}
}

// node makes the mutants of a node and reports whether to visit its children.
func (m *mutator) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return m.values(n)
	case *ast.ValueSpec:
		for _, value := range n.Values { // not names and types
			ast.Inspect(value, m.node)
		}
		return false
	case *ast.IfStmt:
		m.condition(n.Cond)
	case *ast.SwitchStmt:
		m.cases(n)
	case *ast.BinaryExpr:
		m.operator(n)
	case *ast.BasicLit:
		m.literal(n)
	case *ast.CompositeLit:
		return m.composite(n)
	case *ast.KeyValueExpr:
		ast.Inspect(n.Value, m.node) // keys do not change
		return false
	case *ast.Ident:
		m.identifier(n)
	case *ast.SelectorExpr:
		ast.Inspect(n.X, m.node)
		return false
	}
	return true
}

// values turns constants into variables, so that their values may change. It skips enumerations:
// another test compares them with the contract.
func (m *mutator) values(decl *ast.GenDecl) bool {
	if decl.Tok != token.CONST {
		return decl.Tok == token.VAR // not imports and types
	}
	if bytes.Contains(m.text(decl), []byte("iota")) {
		return false
	}
	from := m.offset(decl.Pos())
	m.changes[span{from, from + len("const")}] = &change{typ: "var"}
	return true
}

func (m *mutator) condition(cond ast.Expr) {
	m.add(cond, "", "!("+string(m.text(cond))+")")
	m.add(cond, "", "false")
}

func (m *mutator) cases(n *ast.SwitchStmt) {
	for _, stmt := range n.Body.List {
		clause, ok := stmt.(*ast.CaseClause)
		if !ok {
			continue
		}
		if n.Tag == nil {
			for _, cond := range clause.List {
				m.add(cond, "", "!("+string(m.text(cond))+")")
			}
		}
		if len(clause.Body) == 0 {
			continue
		}
		head := m.src[m.offset(clause.Pos()):m.offset(clause.Colon)]
		id := m.mutant(clause.Pos(), string(head), "no body")
		m.insert[m.offset(clause.Colon)+1] = fmt.Sprintf(" if mutant == %d { break };", id)
	}
}

// neighbours maps an operator to the one that replaces it.
var neighbours = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
}

func (m *mutator) operator(n *ast.BinaryExpr) {
	other, ok := neighbours[n.Op]
	if !ok || m.info.Types[n].Value != nil { // constant: it could overflow
		return
	}
	typ := m.typeOf(n)
	if typ == "bool" {
		typ = ""
	}
	m.add(n, typ, string(m.text(n.X))+" "+other.String()+" "+string(m.text(n.Y)))
}

func (m *mutator) literal(n *ast.BasicLit) {
	switch n.Kind {
	case token.INT, token.CHAR:
		value := constant.ToInt(m.info.Types[n].Value)
		for _, step := range []int64{-1, 1} {
			next := constant.BinaryOp(value, token.ADD, constant.MakeInt64(step))
			if constant.Sign(next) >= 0 {
				m.add(n, m.typeOf(n), next.ExactString())
			}
		}
	case token.STRING:
		value := constant.StringVal(m.info.Types[n].Value)
		m.add(n, m.typeOf(n), strconv.Quote(value+"~"))
	}
}

// composite swaps neighbours in a list of names.
func (m *mutator) composite(n *ast.CompositeLit) bool {
	for i := range max(len(n.Elts)-1, 0) {
		a, oneOK := n.Elts[i].(*ast.Ident)
		b, twoOK := n.Elts[i+1].(*ast.Ident)
		if !oneOK || !twoOK || m.typeOf(a) != m.typeOf(b) || m.typeOf(n) != "[]"+m.typeOf(a) {
			continue
		}
		id := m.mutant(a.Pos(), a.Name+", "+b.Name, b.Name+", "+a.Name)
		m.alternative(a, m.typeOf(a), id, b.Name)
		m.alternative(b, m.typeOf(b), id, a.Name)
	}
	for _, element := range n.Elts { // not the type
		ast.Inspect(element, m.node)
	}
	return false
}

// identifier negates booleans and replaces a named value of the package by the next one.
func (m *mutator) identifier(n *ast.Ident) {
	switch use := m.info.Uses[n].(type) {
	case *types.Const:
		if n.Name == "true" || n.Name == "false" {
			m.add(n, m.typeOf(n), strconv.FormatBool(n.Name == "false"))
			return
		}
		if use.Pkg() != m.pkg || use.Parent() != m.pkg.Scope() {
			return
		}
		if next := m.next(use); next != "" {
			m.add(n, m.typeOf(n), next)
		}
	}
}

// next returns the constant of the same named type with the next number. The first follows the
// last.
func (m *mutator) next(c *types.Const) string {
	var all []*types.Const
	for _, name := range m.pkg.Scope().Names() {
		other, ok := m.pkg.Scope().Lookup(name).(*types.Const)
		if ok && types.Identical(other.Type(), c.Type()) {
			all = append(all, other)
		}
	}
	if _, named := c.Type().(*types.Named); !named || len(all) < 2 {
		return ""
	}
	slices.SortFunc(all, func(a, b *types.Const) int {
		if constant.Compare(a.Val(), token.LSS, b.Val()) {
			return -1
		}
		return 1
	})
	return all[(slices.Index(all, c)+1)%len(all)].Name()
}
