package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"fetchd/fetch/auth"
	"fetchd/internal/policies"
	"fetchd/internal/secure"
	"fetchd/stores"
)

// schemas are the JSON Schemas of the files that fetchd reads, by their name in deploy/schema.
func schemas(t *testing.T) map[string]map[string]any {
	t.Helper()
	token := object(map[string]any{
		"name":        map[string]any{"type": "string", "minLength": 1, "maxLength": 64},
		"sha256":      map[string]any{"type": "string", "pattern": "^[0-9a-fA-F]{64}$"},
		"max-fetches": map[string]any{"type": "integer", "minimum": 1},
	})
	token["required"] = []string{"name", "sha256"}
	all := map[string]map[string]any{
		"fetchd":   settingsSchema(t),
		"origins":  schemaOf(reflect.TypeFor[originsFile]()),
		"stores":   schemaOf(reflect.TypeFor[stores.File]()),
		"policies": schemaOf(reflect.TypeFor[policies.File]()),
		"tokens":   {"type": "array", "minItems": 1, "items": token},
	}
	for name, flag := range map[string]string{"fetchd": "--config", "origins": "--origins-file", "stores": "--stores-file", "policies": "--policies-file", "tokens": "--token-file"} {
		all[name]["$schema"] = "https://json-schema.org/draft/2020-12/schema"
		all[name]["title"] = "fetchd " + flag
	}
	return all
}

// settingsSchema returns the schema of the settings file, from the flags.
func settingsSchema(t *testing.T) map[string]any {
	t.Helper()
	parser, err := kong.New(new(commandLine), kong.DefaultEnvars("FETCHD"))
	must(t, err)
	properties := make(map[string]any)
	for _, flag := range parser.Model.Flags {
		if !storable(flag) {
			continue
		}
		schema := schemaOf(flag.Target.Type())
		schema["description"] = flag.Help
		if values := flag.Tag.Get("complete"); values != "" {
			schema["enum"] = strings.Split(values, ",")
		}
		properties[flag.Name] = schema
	}
	return object(properties)
}

func object(properties map[string]any) map[string]any {
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}

// scalars are the schemas of types that YAML writes as one value.
var scalars = map[reflect.Type]map[string]any{
	reflect.TypeFor[string]():               {"type": "string"},
	reflect.TypeFor[auth.Secret]():          {"type": "string"},
	reflect.TypeOf(policies.File{}.Default): {"type": []string{"string", "number"}},
	reflect.TypeFor[bool]():                 {"type": "boolean"},
	reflect.TypeFor[int]():                  {"type": "integer"},
	reflect.TypeFor[int64]():                {"type": "integer"},
	reflect.TypeFor[uint16]():               {"type": "integer", "minimum": 0, "maximum": 65535},
	reflect.TypeFor[float64]():              {"type": "number"},
	reflect.TypeFor[time.Duration]():        {"type": "string", "pattern": `^-?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)([0-9.]+(ns|us|µs|ms|s|m|h))*$`, "examples": []string{"15m"}},
	reflect.TypeFor[netip.Prefix]():         {"type": "string", "pattern": "^[0-9a-fA-F.:]+/[0-9]+$", "examples": []string{"10.1.0.0/16"}},
}

// schemaOf returns the schema of the YAML that is decoded into a type. It panics if it does not know
// the type.
func schemaOf(typ reflect.Type) map[string]any {
	if schema, ok := scalars[typ]; ok {
		return maps.Clone(schema)
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return schemaOf(typ.Elem())
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(typ.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(typ.Elem())}
	case reflect.Struct:
		properties := make(map[string]any)
		for _, field := range reflect.VisibleFields(typ) { // with those of inline structs
			if name, _, _ := strings.Cut(field.Tag.Get("yaml"), ","); name != "" && name != "-" {
				properties[name] = schemaOf(field.Type)
			}
		}
		return object(properties)
	}
	panic("no schema for " + typ.String())
}

const schemaFolder = "../../deploy/schema"

// TestSchemas compares the files in deploy/schema with the code. UPDATE=1 writes them.
func TestSchemas(t *testing.T) {
	t.Parallel()
	var want []string
	for name, schema := range schemas(t) {
		text, err := json.MarshalIndent(schema, "", "  ")
		must(t, err)
		text = append(text, '\n')
		path := filepath.Join(schemaFolder, name+".json")
		want = append(want, path)
		if os.Getenv("UPDATE") != "" {
			must(t, os.WriteFile(path, text, 0o644))
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%s is stale (%v): UPDATE=1 go test -run TestSchemas$ ./cmd/fetchd writes it", path, err)
		}
	}
	slices.Sort(want)
	if got, _ := filepath.Glob(schemaFolder + "/*"); !slices.Equal(got, want) {
		t.Errorf("deploy/schema has %q, want %q", got, want)
	}
}

// validate compares a YAML text with a schema of deploy/schema.
func validate(t *testing.T, name, text string) error {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join(schemaFolder, name+".json"))
	must(t, err)
	var value any
	must(t, yaml.Unmarshal([]byte(text), &value))
	plain, err := json.Marshal(value)
	must(t, err)
	value, err = jsonschema.UnmarshalJSON(bytes.NewReader(plain))
	must(t, err)
	return schema.Validate(value)
}

// TestSchemasAgree compares the verdicts of the schemas with those of the code that reads the files.
func TestSchemasAgree(t *testing.T) {
	t.Parallel()
	const sum = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	dir := t.TempDir()
	read := map[string]func(path string) error{
		"fetchd": func(path string) error {
			_, err := parse([]string{"config", "--config", path}, new(bytes.Buffer), new(bytes.Buffer))
			return err
		},
		"origins":  func(path string) error { _, err := readOrigins(path, new(origins)); return err },
		"stores":   func(path string) error { _, err := stores.ReadFile(path, new(stores.Set)); return err },
		"tokens":   func(path string) error { _, err := secure.ReadTokens(path); return err },
		"policies": func(path string) error { _, err := policies.Read(path, nil); return err },
	}
	for _, row := range []struct {
		name, file, text string
		valid            bool
	}{
		{"a setting of each type", "fetchd", "grpc-addr: '127.0.0.1:0'\nconsole: true\nmax-fetches: 5\ntrace-ratio: 0.5\ndrain-time: 1m30s\negress-allow-port: [8080]\negress-allow-cidr: [10.1.0.0/16]\n", true},
		{"a setting that does not exist", "fetchd", "max-fetchs: 5\n", false},
		{"a number that is text", "fetchd", "max-fetches: many\n", false},
		{"a time without a unit", "fetchd", "drain-time: 30\n", false},
		{"a level that does not exist", "fetchd", "log-level: loud\n", false},
		{"a value where a list is wanted", "fetchd", "egress-allow-port: 8080\n", false},
		{"a port out of range", "fetchd", "egress-allow-port: [65536]\n", false},
		{"a request is no setting", "fetchd", "healthcheck: true\n", false},
		{"a provider", "origins", "providers: {p: {origins: ['https://a.example'], header: X-Key, token: t}}\n", true},
		{"client credentials", "origins", "providers: {p: {origins: ['https://a.example'], client: {token-url: 'https://b.example/t', id: i, secret: s, scopes: [r]}}}\n", true},
		{"a key that a provider does not have", "origins", "providers: {p: {origin: 'https://a.example'}}\n", false},
		{"a key that client credentials do not have", "origins", "providers: {p: {origins: ['https://a.example'], client: {token-uri: 'https://b.example/t'}}}\n", false},
		{"a section that does not exist", "origins", "provider: {}\n", false},
		{"a store", "stores", "stores: {a: {url: 'file://" + dir + "/a', callers: [c], max-object-bytes: 5}}\n", true},
		{"a key that a store does not have", "stores", "stores: {a: {uri: 'file://" + dir + "/a'}}\n", false},
		{"a size that is text", "stores", "stores: {a: {url: 'file://" + dir + "/a', max-object-bytes: large}}\n", false},
		{"a policy", "policies", "policies: {a: {egress: {deny-names: [b.example], ports: [443]}}}\ncallers: [{caller: x, policy: a}]\ndefault: a\n", true},
		{"a key that a policy does not have", "policies", "policies: {a: {egres: {}}}\ndefault: a\n", false},
		{"a name where a list is wanted", "policies", "policies: {a: {egress: {deny-names: b.example}}}\ndefault: a\n", false},
		{"tokens", "tokens", "- {name: a, sha256: " + sum + ", max-fetches: 3}\n", true},
		{"a token without a name", "tokens", "- {sha256: " + sum + "}\n", false},
		{"a digest that is too short", "tokens", "- {name: a, sha256: ab}\n", false},
		{"a key that a token does not have", "tokens", "- {name: a, sha256: " + sum + ", max: 3}\n", false},
		{"no fetches", "tokens", "- {name: a, sha256: " + sum + ", max-fetches: 0}\n", false},
		{"no tokens", "tokens", "[]\n", false},
	} {
		t.Run(row.file+"/"+row.name, func(t *testing.T) {
			t.Parallel()
			if err := validate(t, row.file, row.text); (err == nil) != row.valid {
				t.Errorf("the schema says %v, want valid: %t", err, row.valid)
			}
			path := filepath.Join(t.TempDir(), "file.yaml")
			must(t, os.WriteFile(path, []byte(row.text), 0o600))
			if err := read[row.file](path); (err == nil) != row.valid {
				t.Errorf("the code says %v, want valid: %t", err, row.valid)
			}
		})
	}
}

// TestShippedFiles checks the settings files of this repository and the examples of the documents.
func TestShippedFiles(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ schema, path, block string }{
		{"fetchd", "deploy/kubernetes.yaml", "ConfigMap"},
		{"fetchd", "deploy/package/fetchd.yaml", ""},
		{"origins", "docs/operating.md", "profiles:"},
		{"stores", "docs/stores.md", "stores:"},
		{"policies", "docs/policies.md", "policies:"},
	} {
		raw, err := os.ReadFile(filepath.Join("../..", row.path))
		must(t, err)
		text := string(raw)
		switch row.block {
		case "":
		case "ConfigMap":
			_, rest, found := strings.Cut(text, "\n  fetchd.yaml: |")
			text, _, _ = strings.Cut(rest, "\n---")
			if !found {
				t.Fatalf("%s has no settings", row.path)
			}
		default:
			_, rest, found := strings.Cut(text, "```yaml\n"+row.block)
			block, _, ends := strings.Cut(rest, "\n```")
			if !found || !ends {
				t.Fatalf("%s has no YAML that begins with %s", row.path, row.block)
			}
			text = row.block + block + "\n"
		}
		if err := validate(t, row.schema, text); err != nil {
			t.Errorf("%s: %v", row.path, err)
		}
	}
}
