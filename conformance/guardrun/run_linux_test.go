package guardrun_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"fetchd/conformance"
	"fetchd/conformance/guardrun"
	"fetchd/conformance/judge"
	"fetchd/conformance/kit"
	"fetchd/test/need"
)

// folder has the program of conformance/guard/wrong.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "guardrun-"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(folder) // it is temporary
		os.Exit(code)            //nolint:forbidigo // TestMain is a main.
	}))
}

// built builds the program of conformance/guard/wrong.
var built = sync.OnceValues(func() ([]byte, error) {
	build := exec.Command("go", "build", "-o", folder+"/", "../guard/wrong")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	return build.CombinedOutput()
})

// wrongGuard returns the path of that program.
func wrongGuard(t *testing.T) string {
	t.Helper()
	need.Program(t, "go", "golang")
	if out, err := built(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(folder, "wrong")
}

// run runs a program for rows and returns the record.
func run(t *testing.T, rows []conformance.GuardRow, args ...string) *judge.Record {
	t.Helper()
	return judged(t, rows, &guardrun.Guard{Command: kit.NewCommand(strings.Join(args[1:], " "), append(slices.Clone(args), "{url}"))})
}

// judged judges a guard by rows and returns the record.
func judged(t *testing.T, rows []conformance.GuardRow, g *guardrun.Guard) *judge.Record {
	t.Helper()
	g.Env = append(os.Environ(), "https_proxy=http://10.0.0.1:3128") // it is not passed on
	results, err := guardrun.Run(t.Context(), g, rows)
	if errors.Is(err, guardrun.ErrNoNetwork) {
		need.Missing(t, "run it as root", "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	record, err := guardrun.Record("test", g, results)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

// committed compares a record with that of conformance/results/guard.
func committed(t *testing.T, got *judge.Record, name, command string) {
	t.Helper()
	f, err := os.Open(filepath.Join("../results/guard", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	want, err := judge.ReadRecord(f)
	if err != nil {
		t.Fatal(err)
	}
	if want.Subject != name || want.Command != command {
		t.Errorf("the committed record is about %q, command %q; want %q and %q", want.Subject, want.Command, name, command)
	}
	want.Judge, want.Subject, want.Command = got.Judge, got.Subject, got.Command
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the committed record of %s is not what a run gives; run conformance/grade (-want +got):\n%s", name, diff)
	}
}

// TestPublished checks that conformance/results/guard has only fetchd and the wrong guards. A record of another project
// needs what docs/disclosure.md says.
func TestPublished(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../results/guard/*")
	if err != nil || len(files) != 12 {
		t.Errorf("%d records, error %v, want 12", len(files), err)
	}
	for _, file := range files {
		if name := filepath.Base(file); name != "fetchd.json" && name != "fetchctl-mcp.json" && !strings.HasPrefix(name, "wrong-") {
			t.Errorf("%s: is it to be published?", name)
		}
	}
}

// failed returns the names of the rows that failed, in order.
func failed(r *judge.Record) (names []string) {
	for i := range r.Results {
		if r.Results[i].Verdict != kit.Held {
			names = append(names, r.Results[i].Name)
		}
	}
	return names
}

// TestGuards checks that each wrong guard fails exactly the rows about its fault, that a guard without a fault fails
// none, that every forbidden row can fail, and that each run gives the record of an earlier one.
func TestGuards(t *testing.T) {
	t.Parallel()
	rows, err := conformance.GuardRows()
	if err != nil {
		t.Fatal(err)
	}
	wrong := wrongGuard(t)
	run(t, rows[:1], wrong, "none") // skips the test, and not each part, without a network
	for _, fault := range []string{"none", "names", "rebinding", "redirects", "mapped", "ranges", "numbers", "parser", "proxies", "refuses"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			var want []string
			for i := range rows {
				if slices.Contains(rows[i].Faults, fault) {
					want = append(want, rows[i].Name)
				}
			}
			record := run(t, rows, wrong, fault)
			if diff := cmp.Diff(want, failed(record)); diff != "" {
				t.Errorf("rows that the guard fails (-want +got):\n%s", diff)
			}
			if fault != "none" {
				committed(t, record, "wrong-"+fault, "wrong "+fault+" {url}")
			}
		})
	}
	t.Run("no guard", func(t *testing.T) {
		t.Parallel()
		got := failed(run(t, rows, wrong, "everything"))
		for i := range rows {
			r := &rows[i]
			// A client that looks up once gets the first address, and only a guard with the fault gets the second.
			if want := !r.MayConnect && !slices.Equal(r.Faults, []string{"rebinding"}); slices.Contains(got, r.Name) != want {
				t.Errorf("%s: a client without a guard fails: %t", r.Name, !want)
			}
		}
	})
}

// proxyAddress is where proxies listen in their own network.
const proxyAddress = "127.0.0.1:8118"

// TestProxies checks that each wrong proxy fails the rows about its fault. A proxy sees each redirect as another
// request, so it cannot judge only the first, and it can judge only requests in absolute form.
func TestProxies(t *testing.T) {
	t.Parallel()
	rows, err := conformance.GuardRows()
	if err != nil {
		t.Fatal(err)
	}
	wrong := wrongGuard(t)
	run(t, rows[:1], wrong, "none")                                                      // skips the test without a network
	for _, fault := range []string{"none", "names", "redirects", "proxies", "tunnels"} { // the others are as in TestGuards
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			var want []string
			for i := range rows {
				r := &rows[i]
				if fault != "redirects" && slices.Contains(r.Faults, fault) || fault == "tunnels" && !r.MayConnect && r.Env == nil && !slices.Equal(r.Faults, []string{"rebinding"}) {
					want = append(want, r.Name)
				}
			}
			record := judged(t, rows, &guardrun.Guard{Command: kit.NewCommand("", []string{wrong, fault, "proxy", proxyAddress}), Kind: guardrun.Proxy, Address: proxyAddress})
			if diff := cmp.Diff(want, failed(record)); diff != "" {
				t.Errorf("rows that the proxy fails (-want +got):\n%s", diff)
			}
			if fault == "tunnels" {
				committed(t, record, "wrong-tunnels", "wrong tunnels proxy "+proxyAddress)
			}
			if record.Kind != "HTTP proxy" {
				t.Errorf("the kind is %q", record.Kind)
			}
		})
	}
}

// TestProxyEnds checks what ends a run with a proxy.
func TestProxyEnds(t *testing.T) {
	t.Parallel()
	rows, err := conformance.GuardRows()
	if err != nil {
		t.Fatal(err)
	}
	wrong, shell := wrongGuard(t), need.Program(t, "sh", "dash")
	run(t, rows[:1], wrong, "none") // skips the test without a network
	for _, tt := range []struct{ name, script, want string }{
		{"one that ends", "echo why >&2; exit 3", "ended before it accepted a connection on 127.0.0.1:8118: why"},
		{"one that does not listen", "exec sleep 60", "accepts no connection on 127.0.0.1:8118"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := &guardrun.Guard{Command: kit.NewCommand("", []string{shell, "-c", tt.script}), Kind: guardrun.Proxy, Address: proxyAddress}
			if tt.name == "one that does not listen" {
				g.Limit = time.Second
			}
			if _, err := guardrun.Run(t.Context(), g, rows[:1]); err == nil || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
	t.Run("one on a port of the origin", func(t *testing.T) {
		t.Parallel()
		record := judged(t, rows[:1], &guardrun.Guard{Command: kit.NewCommand("", []string{wrong, "none", "proxy", ":8080"}), Kind: guardrun.Proxy, Address: "127.0.0.1:8080"})
		if names := failed(record); names != nil {
			t.Errorf("it fails %q", names)
		}
	})
}

// TestMCP checks that wrong MCP servers fail the rows about their faults, and what ends a run with one.
func TestMCP(t *testing.T) {
	t.Parallel()
	rows, err := conformance.GuardRows()
	if err != nil {
		t.Fatal(err)
	}
	wrong, shell := wrongGuard(t), need.Program(t, "sh", "dash")
	run(t, rows[:1], wrong, "none") // skips the test without a network
	for _, fault := range []string{"none", "names", "redirects", "proxies", "refuses"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			var want []string
			for i := range rows {
				if slices.Contains(rows[i].Faults, fault) {
					want = append(want, rows[i].Name)
				}
			}
			record := judged(t, rows, &guardrun.Guard{Command: kit.NewCommand("", []string{wrong, fault, "mcp"}), Kind: guardrun.MCP})
			if diff := cmp.Diff(want, failed(record)); diff != "" {
				t.Errorf("rows that the server fails (-want +got):\n%s", diff)
			}
			if record.Kind != "MCP server" {
				t.Errorf("the kind is %q", record.Kind)
			}
		})
	}
	endless := func(text string) string {
		return "read -r line; while :; do echo '" + text + "'; done"
	}
	for _, tt := range []struct{ name, script, tool, want string }{
		{"another program", "echo why >&2; echo no; cat >/dev/null", "", "did not initialize"},
		{"one that ends", "echo why >&2; exit 3", "", "why"},
		{"one that is silent", "cat >/dev/null", "", "did not initialize"},
		{"one that writes lines without end", endless("{}"), "", "did not initialize"},
		{"one that writes a line without end", "exec cat /dev/zero", "", "did not initialize"},
		{"another tool", `exec "$0" none mcp`, "get", `no tool "get"; it has: fetch, look_up`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := &guardrun.Guard{Command: kit.NewCommand("", []string{shell, "-c", tt.script, wrong}), Kind: guardrun.MCP, Tool: tt.tool}
			if tt.name == "one that is silent" {
				g.Limit = time.Second
			}
			if _, err := guardrun.Run(t.Context(), g, rows[:1]); err == nil || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
	t.Run("two tools that fit", func(t *testing.T) {
		t.Parallel()
		g := &guardrun.Guard{Command: kit.NewCommand("", []string{wrong, "none", "mcp", "twice"}), Kind: guardrun.MCP}
		if _, err := guardrun.Run(t.Context(), g, rows[:1]); err == nil || !strings.Contains(fmt.Sprint(err), "2 of the MCP server take a text named url: fetch, fetch_again") {
			t.Errorf("got %v, want an error with the two tools", err)
		}
		g.Tool = "fetch_again"
		if names := failed(judged(t, rows[:1], g)); names != nil {
			t.Errorf("it fails %q", names)
		}
	})
}

// TestOtherEnds checks what is counted that is in no row, and what ends a run.
func TestOtherEnds(t *testing.T) {
	t.Parallel()
	rows, err := conformance.GuardRows()
	if err != nil {
		t.Fatal(err)
	}
	wrong := wrongGuard(t)
	row := func(url, target string, may bool) []conformance.GuardRow {
		return []conformance.GuardRow{{Name: "row", Category: "other", URL: url, Target: target, MayConnect: may, Why: "Why."}}
	}
	run(t, rows[:1], wrong, "none") // skips the test without a network
	for _, tt := range []struct {
		name string
		rows []conformance.GuardRow
		args []string
		want []string
	}{
		{"a port that nothing listens on", row("http://10.0.0.1:9999/", "10.0.0.1", false), []string{wrong, "everything"},
			[]string{"For http://10.0.0.1:9999/ no other connection was allowed, and the kernel counted more than arrived. Why."}},
		{"an address of no row", row("http://10.0.0.2/", "10.0.0.1", false), []string{wrong, "everything"},
			[]string{"For http://10.0.0.2/ no connection to 10.0.0.2 was allowed, and one was opened. Why."}},
		{"a page that is not written", row("http://8.8.8.8/", "8.8.8.8", true), []string{need.Program(t, "sh", "dash"), "-c", `"$0" none "$1" >/dev/null`, wrong},
			[]string{"For http://8.8.8.8/ the page of 8.8.8.8 had to arrive, and did not. Why."}},
		{"a connection next to a page", row("http://8.8.8.8/", "8.8.8.8", true), []string{need.Program(t, "sh", "dash"), "-c", `"$0" everything http://10.0.0.1/ >/dev/null; "$0" none "$1"`, wrong},
			[]string{"For http://8.8.8.8/ no connection to 10.0.0.1 was allowed, and one was opened. Why."}},
		{"a page and a failure", row("http://8.8.8.8/", "8.8.8.8", true), []string{need.Program(t, "sh", "dash"), "-c", `"$0" none "$1"; exit 3`, wrong}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			record := run(t, tt.rows, tt.args...)
			if diff := cmp.Diff(tt.want, record.Results[0].Failures); diff != "" {
				t.Errorf("failures (-want +got):\n%s", diff)
			}
		})
	}
	g := &guardrun.Guard{Command: kit.NewCommand("", []string{"/there/is/none"})}
	if _, err := guardrun.Run(t.Context(), g, rows); err == nil || errors.Is(err, guardrun.ErrNoNetwork) {
		t.Errorf("a program that there is not: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.Command = kit.NewCommand("", []string{wrong, "none", "{url}"})
	if _, err := guardrun.Run(ctx, g, rows); err == nil {
		t.Error("a run that is cancelled returns no error")
	}
}

// TestGuardThatFloods checks that a guard cannot stop the judge with more connections than it has descriptors for, or
// with connections to the address that the judge itself uses.
func TestGuardThatFloods(t *testing.T) { // not parallel: the limit is that of the process
	python := need.Program(t, "python3", "python3")
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := syscall.Rlimit{Cur: 100, Max: limit.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}()
	const script = `
import resource, socket, sys
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
opened = [socket.create_connection((sys.argv[1], 80), timeout=1) for i in range(300)]
`
	rows, err := conformance.GuardRows()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"8.8.8.8", "198.19.255.253"} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		g := &guardrun.Guard{Command: kit.NewCommand("", []string{python, "-c", script, address})}
		if _, err := guardrun.Run(ctx, g, rows[:1]); errors.Is(err, guardrun.ErrNoNetwork) {
			need.Missing(t, "run it as root", "%v", err)
		}
		if ctx.Err() != nil { // any result is right, if there is one
			t.Errorf("the judge did not end after connections to %s", address)
		}
		cancel()
	}
}
