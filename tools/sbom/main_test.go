package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestPURL(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, module, version, want string }{
		{"a module", "golang.org/x/net", "v0.50.0", "pkg:golang/golang.org/x/net@v0.50.0"},
		{"capitals", "github.com/BurntSushi/toml", "v1.0.0", "pkg:golang/github.com/burntsushi/toml@v1.0.0"},
		{"build metadata", "a.example/b", "v2.0.0+incompatible", "pkg:golang/a.example/b@v2.0.0%2Bincompatible"},
		{"without a version", "fetchd", "", "pkg:golang/fetchd"},
		{"the standard library", "std", "1.26.8", "pkg:golang/std@1.26.8"},
	} {
		if got := purl(row.module, row.version); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}

// TestDocument compares the document of a real program with what the go command says about it.
func TestDocument(t *testing.T) {
	t.Parallel()
	program, file := filepath.Join(t.TempDir(), "fetchd"), filepath.Join(t.TempDir(), "sbom.json")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, "./cmd/fetchd")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := run([]string{program, file}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	want := append([]string{"std " + strings.TrimPrefix(runtime.Version(), "go")}, modulesOf(t, program)...)
	var got, refs []string
	for _, c := range d.Components {
		got, refs = append(got, c.Name+" "+c.Version), append(refs, c.Ref)
	}
	if len(want) < 10 || !slices.Equal(got, want) {
		t.Errorf("components %q, want %q", got, want)
	}
	if c := d.Metadata.Component; c.Name != "fetchd" || c.Version != "" || !strings.HasSuffix(c.PURL, "#cmd/fetchd") || len(c.Hashes) != 1 || len(c.Hashes[0].Content) != 64 {
		t.Errorf("the program is %+v", c)
	}
	if len(d.Dependencies) != 1 || d.Dependencies[0].Ref != d.Metadata.Component.Ref || !slices.Equal(d.Dependencies[0].DependsOn, refs) {
		t.Errorf("dependencies %+v", d.Dependencies)
	}
	slices.Sort(refs)
	if len(slices.Compact(refs)) != len(d.Components) {
		t.Error("two components have one bom-ref")
	}
}

// modulesOf returns the modules that the go command finds in a program, with their versions.
func modulesOf(t *testing.T, program string) (found []string) {
	t.Helper()
	listed, err := exec.Command("go", "version", "-m", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(listed)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[0] == "dep" {
			found = append(found, fields[1]+" "+fields[2])
		}
	}
	return found
}

func TestNoProgram(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {file}, {file, file + ".json"}, {file + "x", file + ".json"}} {
		if err := run(args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
