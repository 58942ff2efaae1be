package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"fetchd/internal/jsontext"
	"fetchd/internal/rules"
)

const surfaceHead = `# The public surface of fetchd: the names that callers, scripts and dashboards may depend on. .ci/generated writes
# this file from the code: do not edit it. A line that is removed or changed breaks somebody; docs/stability.md says
# what is promised. A new line is an addition.
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
		{"Contract fetchd.v1: methods, fields and values, with the names of fields in JSON", func() ([]string, error) { return contractLines("server/descriptor.binpb") }},
		{"Contract frontier.v1", func() ([]string, error) { return contractLines("frontier/api/descriptor.binpb") }},
		{"Rules of docs/spec.md", ruleLines},
		{"Reasons of errors", c.reasonLines},
		{"HTTP API of fetchd, from its description openapi.json", httpLines},
		{"Headers, and paths of the HTTP APIs of both programs, from the code", c.nameLines},
		{"Exit codes", c.exitLines},
		{"Commands, flags, variables and exit codes, from --help", func() ([]string, error) { return programLines(programs) }},
		{"JSON that the programs write", c.outputLines},
		{"Metrics and their labels", metricLines},
		{"Alerts", alertLines},
		{"Log messages of fetchd and frontier, with their keys; … is computed", c.logLines},
		{"Attributes of spans", c.spans},
		{"Settings files: deploy/schema", schemaLines},
		{"Database of frontier: migrations and their SHA-256", migrationLines},
		{"Package for Python: what it needs, and fetchd.__all__", pythonLines},
		{"Package for Node", nodeLines},
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

// contractLines returns the methods, fields and values of a contract, in the order of its file.
func contractLines(path string) ([]string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(raw, &set); err != nil {
		return nil, err
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, err
	}
	var lines []string
	files.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if strings.HasPrefix(string(file.Package()), "google.") {
			return true
		}
		for service := range each(file.Services()) {
			for m := range each(service.Methods()) {
				lines = append(lines, fmt.Sprintf("rpc %s(%s%s) returns (%s%s)", m.FullName(), stream(m.IsStreamingClient()), m.Input().Name(), stream(m.IsStreamingServer()), m.Output().Name()))
			}
		}
		for message := range each(file.Messages()) {
			lines = append(lines, "message "+string(message.FullName()))
			for f := range each(message.Fields()) {
				var line string
				if line, err = fieldLine(f); err != nil {
					return false
				}
				lines = append(lines, line)
			}
		}
		for enum := range each(file.Enums()) {
			for v := range each(enum.Values()) {
				lines = append(lines, fmt.Sprintf("%s.%s = %d", enum.FullName(), v.Name(), v.Number()))
			}
		}
		return true
	})
	return lines, err
}

// each iterates over one of the lists of protoreflect.
func each[D any](list interface {
	Len() int
	Get(int) D
}) func(func(D) bool) {
	return func(yield func(D) bool) {
		for i := range list.Len() {
			if !yield(list.Get(i)) {
				return
			}
		}
	}
}

func stream(is bool) string {
	if is {
		return "stream "
	}
	return ""
}

func fieldLine(f protoreflect.FieldDescriptor) (string, error) {
	name, err := jsonName(f)
	line := fmt.Sprintf("%s = %d %s", f.FullName(), f.Number(), typeOf(f))
	if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
		line += fmt.Sprintf(", oneof %s", o.Name())
	}
	line += ", JSON " + name
	if f.JSONName() != name {
		line += ", also read as " + f.JSONName()
	}
	return line, err
}

func typeOf(f protoreflect.FieldDescriptor) string {
	name := f.Kind().String()
	switch {
	case f.IsMap():
		return fmt.Sprintf("map<%s, %s>", typeOf(f.MapKey()), typeOf(f.MapValue()))
	case f.Message() != nil:
		name = string(f.Message().Name())
	case f.Enum() != nil:
		name = string(f.Enum().Name())
	}
	switch {
	case f.IsList():
		return "repeated " + name
	case f.HasOptionalKeyword():
		return "optional " + name
	}
	return name
}

// jsonName returns the name of a field in the JSON that the programs write.
func jsonName(f protoreflect.FieldDescriptor) (string, error) {
	message := dynamicpb.NewMessage(f.ContainingMessage())
	if f.HasPresence() {
		message.Set(f, message.NewField(f))
	}
	text, err := jsontext.MarshalMessage(message)
	var fields map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	for _, name := range []string{string(f.Name()), f.JSONName()} {
		if _, ok := fields[name]; ok {
			return name, nil
		}
	}
	return "", fmt.Errorf("%s is not in the JSON of its message: %w", f.FullName(), err)
}

func ruleLines() (lines []string, _ error) {
	for _, r := range rules.All {
		lines = append(lines, r.ID)
	}
	return lines, nil
}

// httpLines returns the operations of the HTTP API, with their parameters, statuses and headers.
func httpLines() ([]string, error) {
	type parameter struct{ Name, In string }
	var api struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := readJSON("server/internal/web/openapi.json", &api); err != nil {
		return nil, err
	}
	var lines []string
	for path, item := range api.Paths {
		for method, raw := range item {
			var parameters []parameter
			var operation struct {
				Parameters []parameter
				Responses  map[string]struct{ Headers map[string]any }
			}
			name := strings.ToUpper(method) + " " + path
			into := any(&operation)
			if method == "parameters" {
				name, into = path, &parameters
			}
			if err := json.Unmarshal(raw, into); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if method != "parameters" {
				lines = append(lines, name)
			}
			for _, p := range append(parameters, operation.Parameters...) {
				lines = append(lines, fmt.Sprintf("%s: parameter %s in the %s", name, p.Name, p.In))
			}
			for status, response := range operation.Responses {
				lines = append(lines, fmt.Sprintf("%s: status %s", name, status))
				for header := range response.Headers {
					lines = append(lines, fmt.Sprintf("%s: header %s", name, header))
				}
			}
		}
	}
	return sortedUnique(lines), nil
}

func readJSON(path string, into any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// schemaLines returns the keys of settings files.
func schemaLines() (lines []string, _ error) {
	paths, err := filepath.Glob("deploy/schema/*.json")
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		var schema any
		if err := readJSON(path, &schema); err != nil {
			return nil, err
		}
		addKeys(&lines, strings.TrimSuffix(filepath.Base(path), ".json"), schema)
	}
	return lines, nil
}

// addKeys adds the keys that a schema allows.
func addKeys(lines *[]string, name string, schema any) {
	s, _ := schema.(map[string]any)
	if kind, ok := s["type"].(string); ok && kind != "object" && kind != "array" {
		line := name + ": " + kind
		if values, ok := s["enum"].([]any); ok {
			line += fmt.Sprint(" ", values)
		}
		*lines = append(*lines, line)
	}
	properties, _ := s["properties"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		addKeys(lines, name+"."+key, properties[key])
	}
	addKeysOf(lines, name+".*", s["additionalProperties"])
	addKeysOf(lines, name+"[]", s["items"])
}

func addKeysOf(lines *[]string, name string, schema any) {
	if schema != nil {
		addKeys(lines, name, schema)
	}
}

func migrationLines() (lines []string, _ error) {
	paths, err := filepath.Glob("frontier/store/migrations/*/*.sql")
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("%s %x", strings.TrimPrefix(filepath.ToSlash(path), "frontier/store/migrations/"), sha256.Sum256(raw)))
	}
	return lines, nil
}

// find returns what a pattern's group matches in files.
func find(pattern string, globs ...string) (found []string, _ error) {
	expression := regexp.MustCompile(pattern)
	for _, glob := range globs {
		paths, err := filepath.Glob(glob)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			raw, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			for _, m := range expression.FindAllStringSubmatch(string(raw), -1) {
				found = append(found, strings.Join(strings.Fields(m[1]), " "))
			}
		}
	}
	return sortedUnique(found), nil
}

func alertLines() ([]string, error) {
	return find(`(?m)^ *- alert: (\w+)$`, "deploy/prometheus/*.yaml")
}

func pythonLines() ([]string, error) {
	names, err := find(`(?m)^    "(\w+)",$`, "client/python/src/fetchd/__init__.py")
	if err != nil {
		return nil, err
	}
	modules, err := filepath.Glob("client/python/src/fetchd/[a-z]*.py")
	for _, path := range modules {
		names = append(names, "module "+filepath.Base(path))
	}
	needs, errNeeds := find(`(?m)^(requires-python .*|dependencies .*)$`, "client/python/pyproject.toml")
	return append(needs, names...), errors.Join(err, errNeeds)
}

func nodeLines() ([]string, error) {
	needs, err := find(`("node": ".*")`, "client/node/package.json")
	names, errNames := find(`(?m)^(export [^;]+);$`, "client/node/src/index.ts")
	return append(needs, names...), errors.Join(err, errNames)
}

var (
	headerName = regexp.MustCompile(`\bFetchd-[A-Z][A-Za-z0-9-]*`)
	reasonName = regexp.MustCompile(`^(?:[a-z][a-z0-9]*(?:_[a-z0-9…]+)*|[A-Z]+(?:_[A-Z]+)*)$`)
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
// everything in the service that is called reason.
func (c *code) reasonLines() (lines []string, _ error) {
	for _, s := range c.packages {
		if !slices.ContainsFunc([]string{"fetch", "server", "stores"}, func(folder string) bool { return strings.HasPrefix(s.path+"/", folder+"/") }) {
			continue
		}
		for _, file := range s.files {
			ast.Inspect(file, func(n ast.Node) bool {
				for name, values := range s.named(n) {
					if strings.EqualFold(name, "reason") {
						for _, value := range values {
							lines = append(lines, c.texts(s, value, s.around(n))...)
						}
					}
				}
				return true
			})
		}
	}
	lines = slices.DeleteFunc(lines, func(text string) bool { return !reasonName.MatchString(text) })
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
		if f := s.callee(n); f != nil {
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
			if field, ok := left.(*ast.SelectorExpr); ok && len(n.Lhs) == len(n.Rhs) {
				values[field.Sel.Name] = append(values[field.Sel.Name], n.Rhs[i])
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
	needs, err := find(`(?m)^(go .*)$`, "go.mod")
	return append(needs, sortedUnique(lines)...), err
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
