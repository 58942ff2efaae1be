package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

const surfaceHead = `# Names that callers, scripts and dashboards may depend on, and that only the code has. .ci/generated writes this
# file: do not edit it. A line that is removed or changed breaks somebody; docs/stability.md says what is promised,
# and where the other names are. A new line is an addition.
`

// surface returns docs/surface.txt. programs is the folder with our programs.
func surface(programs string) (string, error) {
	c, err := load("./cmd/fetchd", "./cmd/frontier", "./cmd/fetchctl", "./client", "./server/fetchdtest", "./warc")
	if err != nil {
		return "", err
	}
	var out strings.Builder
	out.WriteString(surfaceHead)
	for _, part := range []struct {
		title string
		lines func() ([]string, error)
	}{
		{"Reasons of errors", c.reasonLines},
		{"Headers, and paths of the HTTP APIs of both programs, from the code", c.nameLines},
		{"Exit codes", c.exitLines},
		{"Commands, flags, variables and exit codes, from --help", func() ([]string, error) { return programLines(programs) }},
		{"JSON that the programs write", c.outputLines},
		{"Metrics and their labels", metricLines},
		{"Log messages of fetchd and frontier, with the keys in their calls; … is computed", c.logLines},
		{"Attributes of spans", c.spans},
		{"Packages for Go", c.goLines},
	} {
		lines, err := part.lines()
		if err == nil && len(lines) == 0 {
			err = errors.New("nothing was found")
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", part.title, err)
		}
		fmt.Fprintf(&out, "\n## %s\n\n%s\n", part.title, strings.Join(lines, "\n"))
	}
	return out.String(), nil
}

var (
	headerName = regexp.MustCompile(`\bFetchd-[A-Z][A-Za-z0-9-]*`)
	reasonName = regexp.MustCompile(`^(?:[a-z][a-z0-9]*(?:_[a-z0-9…]+)*|[A-Z…]+(?:_[A-Z]+)*)$`)
	pathName   = regexp.MustCompile(`^/(?:v1/)?[a-z][a-z.:-]*[a-z]/?$`)
)

// nameLines returns headers and paths, which are constants.
func (c *code) nameLines() (lines []string, _ error) {
	for _, s := range c.packages {
		web := slices.Contains(append(s.imports, c.module+"/"+s.path), c.module+"/internal/webapi")
		for _, value := range s.Types {
			if value.Value == nil || value.Value.Kind() != constant.String {
				continue
			}
			text := constant.StringVal(value.Value)
			for _, name := range headerName.FindAllString(text, -1) {
				lines = append(lines, "header "+name)
			}
			if web && pathName.MatchString(text) {
				program, _, _ := strings.Cut(s.path, "/")
				lines = append(lines, "path "+text+" of "+strings.NewReplacer("server", "fetchd", "internal", "both").Replace(program))
			}
		}
	}
	return sortedUnique(lines), nil
}

// reasonLines returns the reasons of fetches that fail, in lower case, and those of the gRPC errors of fetchd: the texts of
// everything in the service whose name ends in reason.
func (c *code) reasonLines() (lines []string, _ error) {
	c.inspect(func(s *source, n ast.Node) {
		for name, values := range s.named(n) {
			for _, value := range values {
				if text := s.text(value); strings.HasSuffix(strings.ToLower(name), "reason") && text != "…" && reasonName.MatchString(text) {
					lines = append(lines, text)
				}
			}
		}
	}, "fetch/", "server/", "stores/")
	return sortedUnique(lines), nil
}

// named returns what a node gives to parameters, results, fields and variables, by their names.
func (s *source) named(n ast.Node) map[string][]ast.Expr {
	values := make(map[string][]ast.Expr)
	tuple := func(names *types.Tuple, given []ast.Expr) {
		for i := range min(names.Len(), len(given)) {
			values[names.At(i).Name()] = append(values[names.At(i).Name()], given[i])
		}
	}
	switch n := n.(type) {
	case *ast.CallExpr:
		if f := s.callee(n); f != nil && f.Pkg() != nil && (f.Pkg().Path() == "log/slog" || strings.HasPrefix(f.Pkg().Path(), s.module)) {
			tuple(f.Signature().Params(), n.Args)
		}
	case *ast.FuncDecl:
		f, _ := s.Defs[n.Name].(*types.Func)
		ast.Inspect(n, func(inside ast.Node) bool {
			if r, ok := inside.(*ast.ReturnStmt); ok && f.Signature().Results().Len() == len(r.Results) {
				tuple(f.Signature().Results(), r.Results)
				values[n.Name.Name] = append(values[n.Name.Name], r.Results...)
			}
			_, other := inside.(*ast.FuncLit)
			return !other
		})
	case *ast.CompositeLit:
		object, _ := s.TypeOf(n).Underlying().(*types.Struct)
		for i, e := range n.Elts {
			if pair, ok := e.(*ast.KeyValueExpr); !ok && object != nil {
				values[object.Field(i).Name()] = append(values[object.Field(i).Name()], e)
			} else if name, isName := keyOf(pair).(*ast.Ident); isName {
				values[name.Name] = append(values[name.Name], pair.Value)
			}
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			name, _ := left.(*ast.Ident)
			if field, ok := left.(*ast.SelectorExpr); ok {
				name = field.Sel
			}
			if name != nil && len(n.Lhs) == len(n.Rhs) {
				values[name.Name] = append(values[name.Name], n.Rhs[i])
			}
		}
	}
	return values
}

func keyOf(pair *ast.KeyValueExpr) ast.Expr {
	if pair == nil {
		return nil
	}
	return pair.Key
}

// exitLines returns the constants of package internal/cli.
func (c *code) exitLines() (lines []string, _ error) {
	for _, s := range c.packages {
		for _, name := range s.scope.Names() {
			if exit, ok := s.scope.Lookup(name).(*types.Const); ok && s.path == "internal/cli" && strings.HasPrefix(name, "Exit") {
				lines = append(lines, fmt.Sprintf("%3s %s", exit.Val(), strings.TrimPrefix(name, "Exit")))
			}
		}
	}
	return sortedUnique(lines), nil
}

// unpublished are structs whose JSON a program writes for itself.
var unpublished = []string{"cmd/frontier/crawl.Plan", "cmd/fetchctl/download.sidecar", "cmd/fetchctl/warctool.reference"}

// outputLines returns the JSON names in structs of the commands.
func (c *code) outputLines() (lines []string, _ error) {
	for _, s := range c.packages {
		if !strings.HasPrefix(s.path, "cmd/") {
			continue
		}
		for _, name := range s.scope.Names() {
			named, ok := s.scope.Lookup(name).(*types.TypeName)
			if !ok || slices.Contains(unpublished, s.path+"."+name) {
				continue
			}
			object, _ := named.Type().Underlying().(*types.Struct)
			for i := 0; object != nil && i < object.NumFields(); i++ {
				if tag := regexp.MustCompile(`json:"([^",]+)`).FindStringSubmatch(object.Tag(i)); tag != nil {
					lines = append(lines, fmt.Sprintf("%s.%s: %s", s.path, name, tag[1]))
				}
			}
		}
	}
	return lines, nil
}

// goPackages are the packages that docs/stability.md promises to importers.
var goPackages = []string{"client", "server/fetchdtest", "warc"}

// goLines returns the exported declarations.
func (c *code) goLines() (lines []string, _ error) {
	for _, s := range c.packages {
		if !slices.Contains(goPackages, s.path) {
			continue
		}
		qualify := func(p *types.Package) string { return strings.TrimPrefix(p.Path(), c.module+"/") }
		for _, name := range s.scope.Names() {
			object := s.scope.Lookup(name)
			if !object.Exported() {
				continue
			}
			lines = append(lines, s.path+": "+shape(object, qualify))
			named, ok := object.Type().(*types.Named)
			if !ok || named.Obj() != object {
				continue
			}
			for m := range named.Methods() {
				if m.Exported() {
					lines = append(lines, s.path+": "+types.ObjectString(m, qualify))
				}
			}
			if members, ok := named.Underlying().(*types.Struct); ok {
				for f := range members.Fields() {
					if f.Exported() {
						lines = append(lines, fmt.Sprintf("%s: field %s.%s %s", s.path, name, f.Name(), types.TypeString(f.Type(), qualify)))
					}
				}
			}
		}
	}
	return sortedUnique(lines), nil
}

// shape returns a declaration. The fields of a struct are lines of their own.
func shape(object types.Object, qualify types.Qualifier) string {
	text := types.ObjectString(object, qualify)
	switch object := object.(type) {
	case *types.Const:
		return fmt.Sprintf("%s = %s", text, object.Val())
	case *types.TypeName:
		if before, _, ok := strings.Cut(text, " struct{"); ok {
			return before + " struct"
		}
	}
	return text
}
