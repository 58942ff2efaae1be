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

// rule states what a package must not link, directly or through others.
type rule struct {
	pkg string // folder from the module's root
	not []string
	// onlyStandard allows only the standard library and the package itself.
	onlyStandard bool
	// only allows only these packages, the standard library and the package itself. Empty
	// allows everything.
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
			"fetchd/server/observe", "fetchd/stores", "fetchd/stores/archive", "fetchd/warc", "github.com/aws", "github.com/prometheus", "go.opentelemetry.io", "modernc.org", "github.com/jackc/pgx"},
		why: "a fetch works without a server, the contract can change without it, and its caller chooses what counts fetches",
	},
	{
		pkg: "fetch/fault", only: []string{"fetchd/classify"},
		why: "every part of fetch uses these errors",
	},
	{
		pkg: "fetch/timers", only: []string{"fetchd/classify"},
		why: "time limits do not know what they limit",
	},
	{
		pkg: "fetch/urls", only: []string{"golang.org/x/net", "golang.org/x/text"},
		why: "parsing URLs is text processing",
	},
	{
		pkg: "fetch/egress", only: []string{"fetchd/classify", "fetchd/fetch/fault", "fetchd/fetch/urls", "code.dny.dev/ssrf", "golang.org/x/net", "golang.org/x/text"},
		why: "the guard must be readable without the code that it guards",
	},
	{
		pkg: "fetch/coding", only: []string{"fetchd/classify", "fetchd/fetch/fault", "fetchd/internal/budget", "fetchd/internal/sniff",
			"github.com/andybalholm/brotli", "github.com/klauspost/compress", "golang.org/x/net", "golang.org/x/text"},
		why: "a decoder does not know where a body comes from",
	},
	{
		pkg: "fetch/markdown", only: []string{"codeberg.org/readeck/go-readability", "github.com/JohannesKaufmann", "github.com/andybalholm/cascadia",
			"github.com/go-shiori/dom", "github.com/gogs/chardet", "github.com/itlightning/dateparse", "golang.org/x/net", "golang.org/x/text"},
		why: "text of a page follows from its bytes",
	},
	{
		pkg: "internal/budget", onlyStandard: true,
		why: "a budget adds up what its users report and does not know them",
	},
	{
		pkg: "internal/sniff", only: []string{"golang.org/x/net", "golang.org/x/text"},
		why: "what a body is follows from its bytes and their label",
	},
	{
		pkg: "internal/door", not: append([]string{"fetchd/server", "fetchd/frontier", "fetchd/gen", "fetchd/fetch", "fetchd/internal", "fetchd/server/observe"}, testLibraries...),
		why: "both programs use it, and it knows neither the calls nor who may make them",
	},
	{
		pkg: "stores/archive", only: []string{"fetchd/internal/budget", "fetchd/stores/flock", "fetchd/warc", "github.com/klauspost/compress"},
		why: "an archive does not know who records, and where files are uploaded to",
	},
	{
		pkg: "stores", only: []string{"fetchd/stores/archive", "fetchd/internal/budget", "fetchd/stores/flock", "fetchd/internal/secure",
			"fetchd/internal/typo", "fetchd/internal/version", "fetchd/warc", "github.com/aws", "github.com/klauspost/compress", "go.yaml.in/yaml", "golang.org/x/sys"},
		why: "a store does not know who writes to it, and nothing of the SDK reads the environment",
	},
	{
		pkg: "stores", not: append([]string{"fetchd/fetch", "fetchd/server", "fetchd/gen", "fetchd/frontier", "gocloud.dev",
			"github.com/aws/aws-sdk-go-v2/config", "github.com/aws/aws-sdk-go-v2/feature", "github.com/aws/aws-sdk-go-v2/service/sts",
			"github.com/aws/aws-sdk-go-v2/service/sso"}, testLibraries...),
		why: "the service and the scheduler use it, and credentials come from the stores file alone, never from the SDK's own chain",
	},
	{
		pkg: "cmd/fetchctl/mcp/tools", not: append([]string{"fetchd/server", "fetchd/classify", "fetchd/frontier/store", "fetchd/conformance"}, testLibraries...),
		why: "the tools of a model know the service only through its API",
	},
	{
		pkg: "test/wait", onlyStandard: true,
		why: "tests of any package, and benchmarks, use it",
	},
	{
		pkg: "frontier/links", only: []string{"fetchd/frontier/normal", "fetchd/frontier/percent", "fetchd/frontier/robots", "fetchd/frontier/work", "fetchd/internal/sniff", "github.com/nlnwa/whatwg-url", "github.com/tdewolff/parse", "github.com/bits-and-blooms/bitset", "golang.org/x/net", "golang.org/x/text"},
		why: "finding links is text processing",
	},
	{
		pkg: "frontier/scope", only: []string{"fetchd/frontier/normal", "fetchd/frontier/percent", "github.com/nlnwa/whatwg-url", "github.com/bits-and-blooms/bitset", "golang.org/x/net", "golang.org/x/text"},
		why: "a scope decides by the URL alone",
	},
	{
		pkg: "frontier/sitemap", only: []string{"fetchd/frontier/normal", "fetchd/frontier/percent", "fetchd/frontier/work", "github.com/nlnwa/whatwg-url", "github.com/bits-and-blooms/bitset", "golang.org/x/net", "golang.org/x/text"},
		why: "a sitemap is read from any place, and put by its caller",
	},
	{
		pkg: "frontier/traps", onlyStandard: true,
		why: "a trap shows in the text of a URL",
	},
	{
		pkg: "frontier/work", onlyStandard: true,
		why: "counting is arithmetic",
	},
	{
		pkg: "frontier/percent", onlyStandard: true,
		why: "percent escapes are text processing",
	},
	{
		pkg: "fetch/workers", onlyStandard: true,
		why: "workers do not know what they run",
	},
	{
		pkg: "server/observe", not: append([]string{"fetchd/server", "fetchd/gen", "fetchd/cmd", "fetchd/fetch/auth", "fetchd/frontier", "fetchd/internal/secure", "fetchd/internal/daemon", "fetchd/stores", "fetchd/conformance/origin"}, testLibraries...),
		why: "an observer receives events of fetches and knows neither the contract nor the server",
	},
	{
		pkg: "server", not: []string{"fetchd/cmd", "fetchd/frontier", "fetchd/conformance",
			"modernc.org", "github.com/jackc/pgx"},
		why: "a server can be embedded, and the scheduler calls it, never the other way round",
	},
	{
		pkg: "server/internal/conversion", not: append([]string{"fetchd/server", "fetchd/internal/door", "fetchd/frontier"}, testLibraries...),
		why: "a conversion knows neither callers nor connections",
	},
	{
		pkg: "server/internal/admission", not: append([]string{"fetchd/server", "fetchd/gen", "fetchd/fetch", "fetchd/stores"}, testLibraries...),
		why: "admission decides who may call, not what a call does",
	},
	{
		pkg: "server/internal/calls", not: append([]string{"fetchd/server/internal/conversion", "fetchd/server/internal/wire", "fetchd/gen", "fetchd/fetch"}, testLibraries...),
		why: "calls over gRPC and HTTP share it, whatever they fetch",
	},
	{
		pkg: "server/internal/wire", not: append([]string{"fetchd/server/internal/calls", "fetchd/server/internal/web", "fetchd/server/observe"}, testLibraries...),
		why: "wire carries messages, and does not know which calls send them",
	},
	{
		pkg: "server/console", only: []string{"fetchd/internal/webpage"},
		why: "the console is a page: it calls the service as any caller does",
	},
	{
		pkg: "frontier/api/page", only: []string{"fetchd/internal/webpage"},
		why: "the page calls the API of the frontier as any caller does",
	},
	{
		pkg: "internal/webpage", onlyStandard: true,
		why: "it serves files and does not know what the pages call",
	},
	{
		pkg: "gen/fetchd/v1", not: []string{"fetchd"},
		why: "callers use the contract without the implementation",
	},
	{
		pkg: "internal/address", onlyStandard: true,
		why: "every client links it",
	},
	{
		// The entries after gRPC are what gRPC itself links. The encoder of the contract is
		// part of its generated code.
		pkg: "client", only: []string{"fetchd/gen", "fetchd/internal/address", "github.com/planetscale/vtprotobuf", "google.golang.org/grpc", "google.golang.org/protobuf",
			"google.golang.org/genproto/googleapis/rpc", "golang.org/x/net", "golang.org/x/sys", "golang.org/x/text"},
		why: "a client needs the contract and gRPC, and no part of the service",
	},
	{
		pkg: "fetch/signing", onlyStandard: true,
		why: "signers and fetches share it",
	},
	{
		pkg: "fetch/auth", only: []string{"fetchd/fetch/signing", "fetchd/fetch/auth/httpsig", "github.com/dunglas/httpsfv", "golang.org/x/net", "golang.org/x/oauth2", "golang.org/x/sync", "golang.org/x/text",
			"github.com/aws/aws-sdk-go-v2/aws", "github.com/aws/aws-sdk-go-v2/internal", "github.com/aws/smithy-go"},
		why: "auth provides credentials and knows nothing about fetches, and nothing of the SDK looks for credentials",
	},
	{
		pkg: "fetch/auth/httpsig", only: []string{"fetchd/fetch/signing", "github.com/dunglas/httpsfv", "golang.org/x/net", "golang.org/x/text"},
		why: "a signature is arithmetic: it reads no file and asks no one",
	},
	{
		pkg: "test/signatures", onlyStandard: true,
		why: "the verifier of the tests shares no code with the signer",
	},
	{
		pkg: "internal/secure", not: []string{"fetchd/classify", "fetchd/client", "fetchd/cmd", "fetchd/conformance", "fetchd/fetch", "fetchd/frontier", "fetchd/gen", "fetchd/server", "fetchd/stores", "fetchd/warc"},
		why: "the operator decides who may call, not the engine",
	},
	{
		pkg: "conformance/origin", not: []string{"fetchd/classify", "fetchd/fetch", "fetchd/server", "fetchd/gen"},
		why: "an origin that shared code with what it tests would share its mistakes",
	},
	{
		pkg: "conformance", not: []string{"fetchd/classify", "fetchd/fetch", "fetchd/server", "fetchd/gen"},
		why: "expectations come from the specification, never from an implementation",
	},
	{
		pkg: "conformance/judge", not: append([]string{"fetchd/classify", "fetchd/fetch", "fetchd/server"}, testLibraries...),
		why: "a judge that shares code with what it judges shares its mistakes",
	}, {
		pkg: "conformance/guardrun", not: append([]string{"fetchd/classify", "fetchd/fetch", "fetchd/server"}, testLibraries...),
		why: "a judge that shares code with what it judges shares its mistakes",
	}, {
		pkg: "conformance/space", not: append([]string{"fetchd"}, testLibraries...),
		why: "a network does not know who is run in it, and tests of the guard use it",
	}, {
		pkg: "conformance/kit", not: append([]string{"fetchd/classify", "fetchd/fetch", "fetchd/server"}, testLibraries...),
		why: "the judge of an implementation shares no code with it",
	},
	{
		pkg: "frontier/normal", not: []string{"fetchd/classify", "fetchd/fetch", "fetchd/server", "fetchd/gen", "fetchd/internal"},
		why: "normalizing URLs is text processing",
	},
	{
		pkg: "frontier/robots", not: []string{"fetchd/classify", "fetchd/fetch", "fetchd/server", "fetchd/gen", "fetchd/internal"},
		why: "evaluating robots.txt is text processing",
	},
	{
		pkg: "frontier/store/database", not: append([]string{"fetchd"}, testLibraries...),
		why: "it opens databases and runs statements, and does not know what is in the tables",
	},
	{
		pkg: "frontier/store", not: []string{"fetchd/classify", "fetchd/fetch", "fetchd/server", "fetchd/gen", "fetchd/internal"},
		why: "the store keeps the state of the scheduler and calls nothing",
	},
	{
		pkg: "frontier/rulebook", not: append([]string{"fetchd/classify", "fetchd/fetch", "fetchd/server", "fetchd/client", "fetchd/gen", "fetchd/internal"}, testLibraries...),
		why: "commands and the API read robots.txt from the store without a worker, and nothing here fetches",
	},
	{
		pkg: "frontier/api", not: append([]string{"fetchd/client", "fetchd/gen/fetchd", "fetchd/classify", "fetchd/fetch", "fetchd/server", "fetchd/conformance"}, testLibraries...),
		why: "callers of the API fetch: it needs no fetchd",
	},
	{
		pkg: "frontier", not: []string{"fetchd/classify", "fetchd/fetch", "fetchd/server", "fetchd/conformance/origin"},
		why: "the scheduler knows the service only through its API",
	},
	{
		pkg: "warc", only: []string{"github.com/klauspost/compress"},
		why: "a file format; the package is of use without the rest of the module",
	},
	{
		pkg: "test/bench/relay", only: []string{"fetchd/gen", "github.com/planetscale/vtprotobuf", "google.golang.org/grpc", "google.golang.org/protobuf",
			"google.golang.org/genproto/googleapis/rpc", "golang.org/x/net", "golang.org/x/sys", "golang.org/x/text"},
		why: "the floor has nothing of what is measured above it",
	},
	{
		pkg: "test/bench/origin", only: []string{"fetchd/test/selfsigned"},
		why: "what is fetched from costs as little as it can",
	},
	{
		pkg: "test/bench", not: testLibraries,
		why: "what is measured has no test flags",
	},
	{
		pkg: "cmd/fetchd", not: append([]string{
			"fetchd/conformance", "fetchd/frontier", "fetchd/test/bench",
			"modernc.org", "github.com/jackc/pgx",
		}, testLibraries...),
		why: "the service ships without faults on request, without the scheduler's databases and without test flags",
	},
	{
		pkg: "cmd/fetchctl", not: append([]string{"fetchd/frontier/store", "modernc.org", "github.com/jackc/pgx"}, testLibraries...),
		why: "the client ships without the scheduler's databases and without test flags",
	},
	{
		pkg: "cmd/fetchctl/service", not: []string{"fetchd/cmd"},
		why: "every command uses it, and it knows none of them",
	},
	{
		pkg: "cmd/fetchctl/get", not: []string{"fetchd/cmd/fetchctl/explain", "fetchd/cmd/fetchctl/demo", "fetchd/cmd/fetchctl/mcp", "fetchd/cmd/fetchctl/warctool"},
		why: "commands do not know each other; only the names of files are those of download",
	},
	{
		pkg: "cmd/fetchctl/download", not: []string{"fetchd/cmd/fetchctl/get", "fetchd/cmd/fetchctl/explain", "fetchd/cmd/fetchctl/demo", "fetchd/cmd/fetchctl/mcp", "fetchd/cmd/fetchctl/warctool"},
		why: "commands do not know each other",
	},
	{
		pkg: "cmd/fetchctl/explain", not: []string{"fetchd/cmd/fetchctl/get", "fetchd/cmd/fetchctl/download", "fetchd/cmd/fetchctl/demo", "fetchd/cmd/fetchctl/mcp", "fetchd/cmd/fetchctl/warctool"},
		why: "commands do not know each other",
	},
	{
		pkg: "cmd/fetchctl/mcp", not: []string{"fetchd/cmd/fetchctl/get", "fetchd/cmd/fetchctl/download", "fetchd/cmd/fetchctl/explain", "fetchd/cmd/fetchctl/demo", "fetchd/cmd/fetchctl/warctool"},
		why: "commands do not know each other",
	},
	{
		pkg: "cmd/fetch-conformance", not: append([]string{"fetchd/classify", "fetchd/fetch", "fetchd/server", "fetchd/stores", "github.com/aws"}, testLibraries...),
		why: "a judge that shares code with what it judges shares its mistakes",
	},
	{
		pkg: "cmd/origin", not: append([]string{"fetchd/classify", "fetchd/fetch", "fetchd/server"}, testLibraries...),
		why: "an origin that shared code with what it tests would share its mistakes",
	},
	{
		pkg: "cmd/frontier", not: testLibraries,
		why: "a shipped program has no test flags",
	},
}

func TestImportOrder(t *testing.T) {
	root := moduleRoot(t)
	for _, r := range rules {
		t.Run(r.pkg, func(t *testing.T) {
			if !hasGo(t, filepath.Join(root, filepath.FromSlash(r.pkg))) {
				t.Fatalf("package %s is missing: it was moved or deleted, but its rule was not", r.pkg)
			}
			for _, fault := range r.faults(linked(t, root, r.pkg)) {
				t.Errorf("%s: %s", fault, r.why)
			}
		})
	}
}

// dep is a package in the output of go list.
type dep struct {
	ImportPath string
	Standard   bool
	Imports    []string
}

// faults returns the deps that the rule forbids, each with the package that imports it.
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

// within reports whether path is one of folders, or in one of them.
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

// linked returns everything that the package links in the shipped build, including itself.
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
