package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// code is the source of this module, as far as some packages link it, with its types.
type code struct {
	module   string
	packages []*source
	calls    map[string][]*ast.CallExpr // by the full name of the function
	declared map[string]*ast.FuncDecl   // by its full name
	owner    map[ast.Node]*source       // of calls and declarations
	busy     map[ast.Node]bool          // nodes that are being read
	assigned map[types.Object][]ast.Expr
}

// source is one package.
type source struct {
	types.Info
	path    string // without the module's path
	imports []string
	scope   *types.Scope
	files   []*ast.File
}

// load reads the packages that match the patterns, and what they import from this module.
func load(patterns ...string) (*code, error) {
	listed, err := exec.Command("go", append([]string{"list", "-buildvcs=false", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Imports,Export,Module"}, patterns...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	c := &code{calls: make(map[string][]*ast.CallExpr), declared: make(map[string]*ast.FuncDecl), owner: make(map[ast.Node]*source), assigned: make(map[types.Object][]ast.Expr), busy: make(map[ast.Node]bool)}
	exports, files := make(map[string]string), token.NewFileSet()
	imported := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for decoder := json.NewDecoder(bytes.NewReader(listed)); ; {
		var p struct {
			ImportPath, Dir, Export string
			GoFiles, Imports        []string
			Module                  *struct {
				Path string
				Main bool
			}
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return c, nil
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if p.Module == nil || !p.Module.Main {
			continue
		}
		c.module = p.Module.Path
		s := &source{path: strings.TrimPrefix(p.ImportPath, c.module+"/"), imports: p.Imports, Info: types.Info{
			Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object)}}
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				return nil, err
			}
			s.files = append(s.files, file)
		}
		checked, err := (&types.Config{Importer: imported}).Check(p.ImportPath, files, s.files, &s.Info)
		if err != nil {
			return nil, err
		}
		s.scope = checked.Scope()
		c.packages = append(c.packages, s)
		c.index(s)
	}
}

// index notes the functions, the calls and the assignments of a package.
func (c *code) index(s *source) {
	for _, file := range s.files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if f, ok := s.Defs[n.Name].(*types.Func); ok {
					c.declared[f.FullName()], c.owner[n] = n, s
				}
			case *ast.CallExpr:
				if f := s.callee(n); f != nil {
					c.calls[f.FullName()] = append(c.calls[f.FullName()], n)
					c.owner[n] = s
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					name, _ := left.(*ast.Ident)
					if variable, ok := s.ObjectOf(name).(*types.Var); ok && len(n.Rhs) == len(n.Lhs) {
						c.assigned[variable] = append(c.assigned[variable], n.Rhs[i])
					}
				}
			case *ast.KeyValueExpr:
				name, _ := n.Key.(*ast.Ident)
				if field, ok := s.Uses[name].(*types.Var); ok && field.IsField() {
					c.assigned[field] = append(c.assigned[field], n.Value)
				}
			}
			return true
		})
	}
}

// callee returns the function or the method that a call names, or nil.
func (s *source) callee(call *ast.CallExpr) *types.Func {
	name, ok := call.Fun.(*ast.Ident)
	if selector, is := call.Fun.(*ast.SelectorExpr); is {
		name, ok = selector.Sel, true
	}
	if !ok {
		return nil
	}
	f, _ := s.Uses[name].(*types.Func)
	return f
}

// texts returns every text that an expression can have: those of constants, of variables and fields that constants are
// assigned to, and of parameters that callers pass constants for. Any other part of a text is shown as "…".
func (c *code) texts(s *source, e ast.Expr, in *ast.FuncDecl) []string {
	if value := s.Types[e].Value; value != nil && value.Kind() == constant.String {
		return []string{constant.StringVal(value)}
	}
	if c.busy[e] {
		return nil // a function that passes its own parameter to itself
	}
	c.busy[e] = true
	defer delete(c.busy, e)
	var all []string
	switch e := e.(type) {
	case *ast.SelectorExpr:
		for _, value := range c.assigned[s.Uses[e.Sel]] {
			all = append(all, c.texts(s, value, s.around(value))...)
		}
	case *ast.BinaryExpr:
		for _, x := range c.texts(s, e.X, in) {
			for _, y := range c.texts(s, e.Y, in) {
				all = append(all, x+y)
			}
		}
	case *ast.Ident:
		if i := parameter(s, in, e); i >= 0 {
			for _, call := range c.callsOf(s.Defs[in.Name]) {
				if i < len(call.Args) {
					all = append(all, c.texts(c.owner[call], call.Args[i], c.owner[call].around(call))...)
				}
			}
		}
		for _, value := range c.assigned[s.ObjectOf(e)] {
			all = append(all, c.texts(s, value, in)...)
		}
	}
	if len(all) == 0 {
		return []string{"…"}
	}
	return all
}

func (c *code) callsOf(object types.Object) []*ast.CallExpr {
	f, _ := object.(*types.Func)
	if f == nil {
		return nil
	}
	return c.calls[f.FullName()]
}

// parameter returns the position of the parameter of a function that an expression names, or -1.
func parameter(s *source, in *ast.FuncDecl, e ast.Expr) int {
	name, ok := e.(*ast.Ident)
	if in == nil || !ok {
		return -1
	}
	position := 0
	for _, field := range in.Type.Params.List {
		for _, declared := range field.Names {
			if s.Defs[declared] == s.Uses[name] {
				return position
			}
			position++
		}
	}
	return -1
}

// around returns the function in which a node is, or nil.
func (s *source) around(n ast.Node) *ast.FuncDecl {
	for _, file := range s.files {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Pos() <= n.Pos() && n.End() <= f.End() {
				return f
			}
		}
	}
	return nil
}

// messageOf are the functions of log/slog that write a line, with the position of its message.
var messageOf = map[string]int{
	"Debug": 0, "Info": 0, "Warn": 0, "Error": 0, "DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1,
	"Log": 2, "LogAttrs": 2, "NewRecord": 2,
}

// keyed are the functions whose first argument is a key.
var keyed = map[string][]string{
	"log/slog":                           {"Any", "Bool", "Duration", "Float64", "Group", "Int", "Int64", "String", "Time", "Uint64"},
	"go.opentelemetry.io/otel/attribute": {"Bool", "Float64", "Int", "Int64", "String", "StringSlice"},
}

// logLines returns the log messages with their keys. A key whose message is not found stands alone.
func (c *code) logLines() ([]string, error) {
	lines, rest := make(map[string][]string), make(map[string]bool)
	for _, s := range c.packages {
		if strings.HasPrefix(s.path, "conformance/") { // the log of an origin for tests
			continue
		}
		s.functions(func(in *ast.FuncDecl) {
			written := c.messages(s, in)
			loose := c.keys(s, "log/slog", in, written)
			for _, key := range loose {
				rest[key] = true
			}
			for call, texts := range written {
				keys := c.keys(s, "log/slog", call, nil)
				if s.hasAttributes(call) {
					keys = append(keys, loose...)
				}
				for _, text := range texts {
					lines[text] = append(lines[text], keys...)
				}
			}
		})
	}
	var all []string
	for text, keys := range lines {
		keys = sortedUnique(keys)
		for _, key := range keys {
			delete(rest, key)
		}
		all = append(all, fmt.Sprintf("%q: %s", text, strings.Join(keys, " ")))
	}
	for key := range rest {
		all = append(all, "other key: "+key)
	}
	return sortedUnique(all), nil
}

// functions calls f for every function of the package.
func (s *source) functions(f func(*ast.FuncDecl)) {
	for _, file := range s.files {
		for _, d := range file.Decls {
			if in, ok := d.(*ast.FuncDecl); ok && in.Body != nil {
				f(in)
			}
		}
	}
}

// messages returns the calls in a function that write a log line, each with its messages.
func (c *code) messages(s *source, in *ast.FuncDecl) map[*ast.CallExpr][]string {
	found := make(map[*ast.CallExpr][]string)
	ast.Inspect(in, func(n ast.Node) bool {
		call, _ := n.(*ast.CallExpr)
		if call == nil {
			return true
		}
		f := s.callee(call)
		i := message(f)
		if i >= 0 && !(message(s.Defs[in.Name]) >= 0 && parameter(s, in, call.Args[i]) >= 0) {
			found[call] = c.texts(s, call.Args[i], in)
		}
		return true
	})
	return found
}

// message returns the position of the message in the arguments of a function that writes a log line, or -1. Such a
// function is one of log/slog, or has a text and attributes as parameters, one after the other.
func message(object types.Object) int {
	f, _ := object.(*types.Func)
	if f == nil || f.Pkg() == nil {
		return -1
	}
	if i, ok := messageOf[f.Name()]; ok && f.Pkg().Path() == "log/slog" {
		return i
	}
	in := f.Signature().Params()
	for i := range in.Len() - 1 {
		if in.At(i).Type() == types.Typ[types.String] && in.At(i+1).Type().String() == "[]log/slog.Attr" {
			return i
		}
	}
	return -1
}

// keys returns the keys that are given to functions of a package within a node, and in functions of this module that
// are called there for attributes. It leaves out calls.
func (c *code) keys(s *source, path string, n ast.Node, without map[*ast.CallExpr][]string) (keys []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		call, _ := n.(*ast.CallExpr)
		if call == nil {
			return true
		}
		if without[call] != nil {
			return false
		}
		f := s.callee(call)
		switch {
		case f == nil || f.Pkg() == nil:
		case f.Pkg().Path() == path && f.Signature().Recv() == nil && slices.Contains(keyed[path], f.Name()):
			keys = append(keys, c.texts(s, call.Args[0], s.around(call))...)
		case f.Signature().Results().Len() == 1 && isAttributes(f.Signature().Results().At(0).Type()):
			if d := c.declared[f.FullName()]; d != nil && !c.busy[d] {
				c.busy[d] = true
				keys = append(keys, c.keys(c.owner[d], path, d, nil)...)
				delete(c.busy, d)
			}
		}
		return true
	})
	return keys
}

func isAttributes(t types.Type) bool {
	return slices.Contains([]string{"log/slog.Attr", "[]log/slog.Attr", "[]any"}, t.String())
}

// hasAttributes reports whether a call has attributes that are not made in its arguments.
func (s *source) hasAttributes(call *ast.CallExpr) bool {
	return slices.ContainsFunc(call.Args, func(e ast.Expr) bool {
		_, made := e.(*ast.CallExpr)
		return !made && isAttributes(s.TypeOf(e))
	})
}

// spans returns the keys of the attributes of spans.
func (c *code) spans() (all []string, _ error) {
	const path = "go.opentelemetry.io/otel/attribute"
	for _, s := range c.packages {
		for _, file := range s.files {
			all = append(all, c.keys(s, path, file, nil)...)
		}
		for _, value := range s.Types { // such as attribute.Key("a")
			if value.Value != nil && value.Type.String() == path+".Key" {
				all = append(all, constant.StringVal(value.Value))
			}
		}
	}
	return sortedUnique(all), nil
}

func sortedUnique(lines []string) []string {
	slices.Sort(lines)
	return slices.Compact(lines)
}
