// Subtests is an analyzer of tests, for go vet -vettool. It reports
//
//   - a call of Skip, Skipf or SkipNow outside package test/need: only need skips tests, because
//     each of its functions says what to install or to set;
//   - a subtest that uses the test around it, which it would skip or fail instead of itself. Go then
//     reports "subtest may have called FailNow on a parent test", and the other subtests do not run.
//
// A subtest reaches the test around it by a variable of type [testing.TB], or by a struct that has one in a field or in
// a struct that it embeds. Closures that use one of these are not checked.
package main

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/analysis/unitchecker"
	"golang.org/x/tools/go/ast/inspector"
)

func main() { unitchecker.Main(analyzer) }

// skipper is the package that may skip tests.
const skipper = "fetchd/test/need"

var analyzer = &analysis.Analyzer{
	Name:     "subtests",
	Doc:      "reports skips outside of package need, and subtests that use the test around them",
	Requires: []*analysis.Analyzer{inspect.Analyzer},
	Run:      run,
}

// harmless are the methods of a test that neither skip nor fail it.
var harmless = map[string]bool{"Attr": true, "Cleanup": true, "Context": true, "Deadline": true, "Failed": true,
	"Helper": true, "Log": true, "Logf": true, "Name": true, "Output": true, "Skipped": true}

func run(pass *analysis.Pass) (any, error) {
	tree := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
	tree.Preorder([]ast.Node{(*ast.CallExpr)(nil)}, func(n ast.Node) {
		call := n.(*ast.CallExpr)
		name := testMethod(pass, call)
		switch {
		case (name == "Skip" || name == "Skipf" || name == "SkipNow") && pass.Pkg.Path() != skipper:
			pass.Reportf(call.Pos(), "%s: use a function of %s, which says what to install or to set", name, skipper)
		case name == "Run" || name == "Fuzz":
			switch subtest := call.Args[len(call.Args)-1].(type) {
			case *ast.FuncLit:
				checkSubtest(pass, subtest)
			case *ast.SelectorExpr:
				if t := pass.TypesInfo.TypeOf(subtest.X); t != nil && holdsTest(t) {
					pass.Reportf(subtest.Pos(), "the subtest is a method of %s, which holds the test around it", types.ExprString(subtest.X))
				}
			}
		}
	})
	return nil, nil
}

// testMethod returns the name of the method of a test that call calls, or "".
func testMethod(pass *analysis.Pass, call *ast.CallExpr) string {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	method, ok := pass.TypesInfo.Uses[selector.Sel].(*types.Func)
	if !ok || method.Pkg() == nil || method.Pkg().Path() != "testing" || !isTest(pass.TypesInfo.TypeOf(selector.X)) {
		return ""
	}
	return method.Name()
}

// isTest reports whether t is *testing.T, *testing.B, *testing.F or testing.TB.
func isTest(t types.Type) bool {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	named, ok := t.(*types.Named)
	if !ok || named.Obj().Pkg() == nil || named.Obj().Pkg().Path() != "testing" {
		return false
	}
	switch named.Obj().Name() {
	case "T", "B", "F", "TB":
		return true
	}
	return false
}

// holdsTest reports whether t is a struct, or a pointer to one, with a test in a field or in a struct that
// it embeds.
func holdsTest(t types.Type) bool {
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	fields, ok := t.Underlying().(*types.Struct)
	if !ok {
		return false
	}
	for field := range fields.Fields() {
		if isTest(field.Type()) || field.Embedded() && holdsTest(field.Type()) {
			return true
		}
	}
	return false
}

// checkSubtest reports where a subtest uses the test around it.
func checkSubtest(pass *analysis.Pass, subtest *ast.FuncLit) {
	allowed := map[*ast.Ident]bool{}
	ast.Inspect(subtest.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			allow(pass, n, allowed)
		case *ast.Ident:
			v, ok := pass.TypesInfo.Uses[n].(*types.Var)
			if !ok || v.IsField() || allowed[n] || within(v, subtest) || v.Parent() == pass.Pkg.Scope() {
				return true
			}
			switch {
			case isTest(v.Type()):
				pass.Reportf(n.Pos(), "the subtest uses %s of the test around it: give it its own", n.Name)
			case holdsTest(v.Type()):
				pass.Reportf(n.Pos(), "the subtest uses %s, a %s, which holds the test around it: make one for the subtest", n.Name, types.TypeString(v.Type(), types.RelativeTo(pass.Pkg)))
			}
		}
		return true
	})
}

// allow records the uses of an outer test that do no harm: a harmless method, and a method that is given
// the subtest's own test.
func allow(pass *analysis.Pass, call *ast.CallExpr, allowed map[*ast.Ident]bool) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	x, ok := selector.X.(*ast.Ident)
	if !ok {
		return
	}
	if isTest(pass.TypesInfo.TypeOf(x)) {
		allowed[x] = allowed[x] || harmless[selector.Sel.Name]
		return
	}
	for _, arg := range call.Args {
		if isTest(pass.TypesInfo.TypeOf(arg)) {
			allowed[x] = true
		}
	}
}

// within reports whether v is declared in f.
func within(v *types.Var, f ast.Node) bool { return f.Pos() <= v.Pos() && v.Pos() < f.End() }
