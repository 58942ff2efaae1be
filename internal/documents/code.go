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
}

// source is one package.
type source struct {
	types.Info
	module  string
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
	c := new(code)
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
		s := &source{module: c.module, path: strings.TrimPrefix(p.ImportPath, c.module+"/"), imports: p.Imports, Info: types.Info{
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

// text returns the text of a constant. Any other part of a text is shown as "…".
func (s *source) text(e ast.Expr) string {
	if value := s.Types[e].Value; value != nil && value.Kind() == constant.String {
		return constant.StringVal(value)
	}
	if sum, ok := e.(*ast.BinaryExpr); ok {
		return s.text(sum.X) + s.text(sum.Y)
	}
	return "…"
}

// inspect calls f for each node of the packages that have one of the prefixes.
func (c *code) inspect(f func(*source, ast.Node), prefixes ...string) {
	for _, s := range c.packages {
		if !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(s.path+"/", prefix) }) {
			continue
		}
		for _, file := range s.files {
			ast.Inspect(file, func(n ast.Node) bool {
				f(s, n)
				return true
			})
		}
	}
}

// keyed are the functions whose first argument is a key.
var keyed = map[string][]string{
	"log/slog":                           {"Any", "Bool", "Duration", "Float64", "Group", "Int", "Int64", "String", "Time", "Uint64"},
	"go.opentelemetry.io/otel/attribute": {"Bool", "Float64", "Int", "Int64", "String", "StringSlice"},
}

// keys returns the keys that are given to functions of a package within a node.
func (s *source) keys(path string, n ast.Node) (keys []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			f := s.callee(call)
			if f != nil && f.Pkg() != nil && f.Pkg().Path() == path && f.Signature().Recv() == nil && slices.Contains(keyed[path], f.Name()) {
				keys = append(keys, s.text(call.Args[0]))
			}
		}
		return true
	})
	return keys
}

// logLines returns the log messages: the texts of everything that is called msg, as log/slog calls it, or doing, which
// follows "cannot". Each has the keys in its call. Other keys stand alone.
func (c *code) logLines() ([]string, error) {
	lines, all := make(map[string][]string), make(map[string]bool)
	c.inspect(func(s *source, n ast.Node) {
		if file, ok := n.(*ast.File); ok {
			for _, key := range s.keys("log/slog", file) {
				all[key] = true
			}
			return
		}
		if strings.HasPrefix(s.path, "frontier/store") {
			return // it writes no log, and its doing is the start of an error
		}
		for name, prefix := range map[string]string{"msg": "", "doing": "cannot "} {
			for _, value := range s.named(n)[name] {
				if text := s.text(value); text != "…" {
					lines[prefix+text] = append(lines[prefix+text], s.keys("log/slog", n)...)
				}
			}
		}
	}, "cmd/", "fetch/", "frontier/", "internal/", "server/", "stores/")
	var list []string
	for text, keys := range lines {
		keys = sortedUnique(keys)
		for _, key := range keys {
			delete(all, key)
		}
		list = append(list, fmt.Sprintf("%q: %s", text, strings.Join(keys, " ")))
	}
	for key := range all {
		list = append(list, "other key: "+key)
	}
	return sortedUnique(list), nil
}

// spans returns the keys of the attributes of spans.
func (c *code) spans() (all []string, _ error) {
	const path = "go.opentelemetry.io/otel/attribute"
	for _, s := range c.packages {
		for _, file := range s.files {
			all = append(all, s.keys(path, file)...)
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
