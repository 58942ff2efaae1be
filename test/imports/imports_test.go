package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "fetchd"

// rule says what one package must not link, directly or through others.
type rule struct {
	pkg string // folder from the module's root
	not []string
	// onlyStandard: nothing but the standard library and the package itself.
	onlyStandard bool
	// only: nothing but these, the standard library and the package itself. Empty
	// means anything.
	only []string
	why  string
}

// testLibraries are import paths that belong to tests.
var testLibraries = []string{"testing", "net/http/httptest", "github.com/google/go-cmp", "go.uber.org/goleak",
	"github.com/prometheus/client_golang/prometheus/testutil", "go.opentelemetry.io/otel/sdk/trace/tracetest", "github.com/Shopify",
	"github.com/chromedp", "github.com/mccutchen"}

var rules = []rule{
	{
		pkg: "classify", onlyStandard: true,
		why: "decisions are pure, so that the vectors can state them for any language",
	},
	{
		pkg: "fetch", not: []string{"fetchd/server", "fetchd/gen", "fetchd/cmd", "fetchd/frontier", "google.golang.org",
			"fetchd/observe", "github.com/prometheus", "go.opentelemetry.io", "modernc.org", "github.com/jackc/pgx"},
		why: "one fetch works without a server around it, and the contract can change without it; who counts is its caller's choice",
	},
	{
		pkg: "internal/budget", onlyStandard: true,
		why: "a budget adds up what its users report, and knows none of them",
	},
	{
		pkg: "internal/wait", onlyStandard: true,
		why: "tests of any package, and benchmarks, wait with it",
	},
	{
		pkg: "fetch/workers", onlyStandard: true,
		why: "goroutines know nothing of what they carry out",
	},
	{
		pkg: "observe", not: append([]string{"fetchd/server", "fetchd/gen", "fetchd/cmd", "fetchd/fetch/auth", "fetchd/frontier", "fetchd/internal/secure", "fetchd/internal/heap", "fetchd/conformance/origin"}, testLibraries...),
		why: "what counts is told of fetches, and knows neither their contract nor who serves them",
	},
	{
		pkg: "server", not: []string{"fetchd/cmd", "fetchd/frontier", "fetchd/conformance",
			"modernc.org", "github.com/jackc/pgx"},
		why: "a server can be embedded, and is called by the scheduler, never the other way round",
	},
	{
		pkg: "server/console", onlyStandard: true,
		why: "the console is a page: it calls the service as any caller does",
	},
	{
		pkg: "gen/fetchd/v1", not: []string{"fetchd"},
		why: "callers take the contract without the implementation",
	},
	{
		// What follows gRPC is what gRPC itself links; the contract's encoder is part of its
		// generated code.
		pkg: "client", only: []string{"fetchd/gen", "github.com/planetscale/vtprotobuf", "google.golang.org/grpc", "google.golang.org/protobuf",
			"google.golang.org/genproto/googleapis/rpc", "golang.org/x/net", "golang.org/x/sys", "golang.org/x/text"},
		why: "a caller takes the contract and gRPC, and nothing of the service",
	},
	{
		pkg: "fetch/auth", not: []string{"fetchd"},
		why: "auth hands out credentials and knows nothing of fetches",
	},
	{
		pkg: "internal/secure", not: []string{"fetchd"},
		why: "who may call is the operator's matter and not the engine's",
	},
	{
		pkg: "conformance/origin", not: []string{"fetchd/classify", "fetchd/fetch", "fetchd/server", "fetchd/gen"},
		why: "an origin that shares code with what it tests shares its mistakes",
	},
	{
		pkg: "conformance", not: []string{"fetchd/classify", "fetchd/fetch", "fetchd/server"},
		why: "what is expected comes from the vectors, never from an implementation",
	},
	{
		pkg: "conformance/judge", not: append([]string{"fetchd/classify", "fetchd/fetch", "fetchd/server"}, testLibraries...),
		why: "a judge that shares code with what it judges shares its mistakes",
	}, {
		pkg: "conformance/kit", not: append([]string{"fetchd/classify", "fetchd/fetch", "fetchd/server"}, testLibraries...),
		why: "what judges an implementation has nothing of it",
	},
	{
		pkg: "frontier/normal", not: []string{"fetchd/classify", "fetchd/fetch", "fetchd/server", "fetchd/gen", "fetchd/internal"},
		why: "what one URL is, is a question of text",
	},
	{
		pkg: "frontier/robots", not: []string{"fetchd/classify", "fetchd/fetch", "fetchd/server", "fetchd/gen", "fetchd/internal"},
		why: "what a robots.txt allows is a question of text",
	},
	{
		pkg: "frontier/store", not: []string{"fetchd/classify", "fetchd/fetch", "fetchd/server", "fetchd/gen", "fetchd/internal"},
		why: "the store keeps what the scheduler knows, and asks nobody",
	},
	{
		pkg: "frontier", not: []string{"fetchd/classify", "fetchd/fetch", "fetchd/server", "fetchd/conformance/origin"},
		why: "the scheduler knows the service only through its API",
	},
	{
		pkg: "bench/relay", only: []string{"fetchd/gen", "github.com/planetscale/vtprotobuf", "google.golang.org/grpc", "google.golang.org/protobuf",
			"google.golang.org/genproto/googleapis/rpc", "golang.org/x/net", "golang.org/x/sys", "golang.org/x/text"},
		why: "the floor has nothing of what is measured above it",
	},
	{
		pkg: "bench/origin", onlyStandard: true,
		why: "what is fetched from costs as little as it can",
	},
	{
		pkg: "bench", not: testLibraries,
		why: "what is measured has no test flags",
	},
	{
		pkg: "cmd/fetchd", not: append([]string{
			"fetchd/conformance", "fetchd/frontier", "fetchd/bench",
			"modernc.org", "github.com/jackc/pgx",
		}, testLibraries...),
		why: "the service ships without faults on request, without the scheduler's databases and without test flags",
	},
	{
		pkg: "cmd/fetchctl", not: append([]string{"fetchd/frontier", "modernc.org", "github.com/jackc/pgx"}, testLibraries...),
		why: "the client ships without the scheduler's databases and without test flags",
	},
	{
		pkg: "cmd/origin", not: append([]string{"fetchd/classify", "fetchd/fetch", "fetchd/server"}, testLibraries...),
		why: "an origin that shares code with what it tests shares its mistakes",
	},
	{
		pkg: "cmd/frontier", not: testLibraries,
		why: "a shipped program has no test flags",
	},
}

// later names packages of the design that are not in the tree yet. One that
// has come must leave this list, so that its row above is held from then on.
var later = map[string]bool{}

func TestImportOrder(t *testing.T) {
	root := moduleRoot(t)
	for _, r := range rules {
		t.Run(r.pkg, func(t *testing.T) {
			there := hasGo(t, filepath.Join(root, filepath.FromSlash(r.pkg)))
			switch {
			case !there && later[r.pkg]:
				t.Skipf("package %s is not there yet", r.pkg)
			case !there:
				t.Fatalf("package %s is missing: it was moved or deleted, and its row here was not", r.pkg)
			case later[r.pkg]:
				t.Errorf("package %s has come: take it off the list `later`", r.pkg)
			}
			for _, fault := range r.faults(linked(t, root, r.pkg)) {
				t.Errorf("%s: %s", fault, r.why)
			}
		})
	}
}

// dep is one package that the go command lists.
type dep struct {
	ImportPath string
	Standard   bool
	Imports    []string
}

// faults says which of deps the rule forbids, and who imports each.
func (r rule) faults(deps []dep) []string {
	var found []string
	for _, d := range deps {
		if d.ImportPath == module+"/"+r.pkg || !r.forbids(d) {
			continue
		}
		found = append(found, fmt.Sprintf("%s links %s, imported by %s", r.pkg, d.ImportPath, importer(d.ImportPath, deps)))
	}
	return found
}

func (r rule) forbids(d dep) bool {
	if r.onlyStandard && !d.Standard {
		return true
	}
	if len(r.only) > 0 && !d.Standard && !within(d.ImportPath, r.only) {
		return true
	}
	return within(d.ImportPath, r.not)
}

// within tells whether path is one of folders, or in one.
func within(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return path == folder || strings.HasPrefix(path, folder+"/")
	})
}

func importer(path string, deps []dep) string {
	for _, d := range deps {
		for _, imported := range d.Imports {
			if imported == path {
				return d.ImportPath
			}
		}
	}
	return "nothing listed"
}

// linked lists what the package links in the build that ships, itself included.
func linked(t *testing.T, root, pkg string) []dep {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Standard,Imports", "./"+pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out := run(t, cmd)
	var deps []dep
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var d dep
		if err := dec.Decode(&d); errors.Is(err, io.EOF) {
			return deps
		} else if err != nil {
			t.Fatalf("read the output of go list: %v", err)
		}
		deps = append(deps, d)
	}
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(string(run(t, exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}"))))
}

func run(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, stderr.Bytes())
	}
	return out
}

func hasGo(t *testing.T, dir string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return len(files) > 0
}

func TestFaults(t *testing.T) {
	deps := []dep{
		{ImportPath: "strings", Standard: true},
		{ImportPath: "testing", Standard: true},
		{ImportPath: "example.com/testing"},
		{ImportPath: "fetchd/frontierless"},
		{ImportPath: "fetchd/a", Imports: []string{"testing", "example.com/testing", "fetchd/frontierless"}},
	}
	tests := []struct {
		name string
		rule rule
		want []string
	}{
		{"nothing forbidden", rule{pkg: "a"}, nil},
		{"a whole path", rule{pkg: "a", not: []string{"testing"}}, []string{"a links testing, imported by fetchd/a"}},
		{"a folder of paths", rule{pkg: "a", not: []string{"example.com"}}, []string{"a links example.com/testing, imported by fetchd/a"}},
		{"a name that only begins alike", rule{pkg: "a", not: []string{"fetchd/frontier"}}, nil},
		{"its own module, but not itself", rule{pkg: "a", not: []string{"fetchd"}}, []string{"a links fetchd/frontierless, imported by fetchd/a"}},
		{"a list, and the standard library", rule{pkg: "a", only: []string{"example.com/testing", "fetchd/frontier"}}, []string{
			"a links fetchd/frontierless, imported by fetchd/a",
		}},
		{"a list and an exception", rule{pkg: "a", only: []string{"example.com", "fetchd/frontierless"}, not: []string{"testing"}}, []string{
			"a links testing, imported by fetchd/a",
		}},
		{"standard library only", rule{pkg: "a", onlyStandard: true}, []string{
			"a links example.com/testing, imported by fetchd/a",
			"a links fetchd/frontierless, imported by fetchd/a",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.rule.faults(deps)); diff != "" {
				t.Errorf("faults of %+v (-want +got):\n%s", tt.rule, diff)
			}
		})
	}
}
