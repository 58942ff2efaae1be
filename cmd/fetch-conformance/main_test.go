package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"fetchd/conformance"
	"fetchd/conformance/guardrun"
	"fetchd/conformance/judge"
	"fetchd/conformance/kit"
	"fetchd/internal/cli"
	"fetchd/internal/version"
	"fetchd/test/must"
	"fetchd/test/need"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call runs the program and returns its exit code, its output and its errors.
func call(t *testing.T, args ...string) (code int, out, err string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr})
	return code, stdout.String(), stderr.String()
}

// right returns a program that decides right about the vectors of a rule.
func right(t *testing.T, rule string) []string {
	t.Helper()
	vectors, err := conformance.Vectors()
	must.Succeed(t, err)
	return answering(t, slices.DeleteFunc(vectors, func(v conformance.Vector) bool { return v.Rule != rule }))
}

// answering returns a program that answers with the verdicts of the vectors.
func answering(t *testing.T, vectors []conformance.Vector) []string {
	t.Helper()
	var lines strings.Builder
	for i := range vectors {
		line, err := json.Marshal(map[string]any{"name": vectors[i].Name, "verdict": &vectors[i].Verdict})
		must.Succeed(t, err)
		lines.Write(append(line, '\n'))
	}
	return []string{need.Program(t, "sh", "dash"), "-c", "cat >/dev/null\ncat <<'END'\n" + lines.String() + "END"}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	shell := need.Program(t, "sh", "dash")
	f, twice := filepath.Join(t.TempDir(), "record.json"), filepath.Join(t.TempDir(), "twice.json")
	for path, text := range map[string]string{
		f:     `{"format": "another"}`,
		twice: `{"format": "fetch-conformance-record/2", "results": {"names": {"held": {"scenario": ["503 then 200"]}, "failed": {"scenario": ["503 then 200"]}}}}`,
	} {
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	}
	for _, row := range []struct {
		name     string
		args     []string
		code     int
		out, err string
	}{
		{"help", []string{"--help"}, cli.ExitOK, "fetch-conformance diff", ""},
		{"version", []string{"--version"}, cli.ExitOK, "fetch-conformance " + version.String() + " ", ""},
		{"no command", nil, cli.ExitUsage, "", "expected one of"},
		{"list", []string{"list", "--level", "resumption"}, cli.ExitOK, "resume point", ""},
		{"list a rule", []string{"list", "--only", "W2"}, cli.ExitOK, "waiting W2", ""},
		{"no level", []string{"list", "--level", "all"}, cli.ExitUsage, "", "core, waiting"},
		{"no rule", []string{"list", "--only", "Q1"}, cli.ExitUsage, "", `"Q1" is neither`},
		{"a decider that is right", append([]string{"decide", "--only", "H6"}, right(t, "H6")...), cli.ExitOK, "0 failed", ""},
		{"a decider that is wrong", []string{"decide", "--only", "H6", shell, "-c", `sed 's/"observation":.*/"verdict":{}}/'`}, cli.ExitFailed, "outcome: expected failed", ""},
		{"a decider that fails", []string{"decide", shell, "-c", "exit 3"}, cli.ExitUsage, "", "CMD: run"},
		{"a seed without a reference", []string{"decide", "--seed", "1", shell}, cli.ExitUsage, "", "--seed: and --reference belong together"},
		{"a reference without a seed", []string{"decide", "--reference", "127.0.0.1:1", shell}, cli.ExitUsage, "", "--seed: and --reference belong together"},
		{"a seed and a rule", []string{"decide", "--seed", "1", "--reference", "127.0.0.1:1", "--only", "H6", shell}, cli.ExitUsage, "", "leave out --level and --only"},
		{"no observations", []string{"decide", "--seed", "1", "--reference", "127.0.0.1:1", "--count", "0", shell}, cli.ExitUsage, "", "give 1 to"},
		{"a reference that does not answer", []string{"decide", "--seed", "1", "--reference", "127.0.0.1:1", shell}, cli.ExitService, "", "127.0.0.1:1: "},
		{"no decider", []string{"decide", "/there/is/none"}, cli.ExitUsage, "", "/there/is/none"},
		{"a client that fails", []string{"client", "--only", "404", shell, "-c", "exit 1"}, cli.ExitFailed, "requests: expected 1, got 0", ""},
		{"no client", []string{"client", "--only", "404", "/there/is/none"}, cli.ExitUsage, "", "CMD: "},
		{"no rows", []string{"guard", "--only", "200", shell}, cli.ExitUsage, "", "neither a category nor a row"},
		{"no guard", []string{"guard"}, cli.ExitUsage, "", "CMD: is missing"},
		{"a proxy that runs already", []string{"guard", "--proxy", "127.0.0.1:3128"}, cli.ExitUsage, "", "must be in the network of the judge"},
		{"a proxy at a name", []string{"guard", "--proxy", "localhost:3128", shell}, cli.ExitUsage, "", "--proxy: must be an IP address"},
		{"a proxy on the port of origins", []string{"guard", "--proxy", "127.0.0.1:443", shell}, cli.ExitUsage, "", "--proxy: must have another port"},
		{"a proxy that checks strings", []string{"guard", "--string-check", "--proxy", "127.0.0.1:3128", shell}, cli.ExitUsage, "", "exclude each other"},
		{"a tool without a server", []string{"guard", "--mcp-tool", "fetch", shell}, cli.ExitUsage, "", "needs --mcp"},
		{"no service", []string{"service", "--origin-addr", "127.0.0.1:0", "127.0.0.1:1"}, cli.ExitUsage, "", "--origin-addr"},
		{"no record", []string{"diff", "/there/is/none", f}, cli.ExitUsage, "", "BEFORE"},
		{"another format", []string{"diff", f, f}, cli.ExitUsage, "", "the format is"},
		{"a result twice", []string{"summary", twice}, cli.ExitUsage, "", `scenario "503 then 200" has two results`},
	} {
		t.Run(row.name, func(t *testing.T) {
			code, out, err := call(t, row.args...)
			if code != row.code || !strings.Contains(out, row.out) || !strings.Contains(err, row.err) {
				t.Errorf("exit code %d, want %d; %q in\n%s\n%q in\n%s", code, row.code, row.out, out, row.err, err)
			}
		})
	}
}

// TestRecords checks that the same results give the same bytes, and what differs is found.
func TestRecords(t *testing.T) {
	t.Parallel()
	shell, dir := need.Program(t, "sh", "dash"), t.TempDir()
	record := func(name string, args ...string) (path string, data []byte) {
		path = filepath.Join(dir, name)
		call(t, append([]string{args[0], "--record", path, "--name", "it"}, args[1:]...)...)
		data, err := os.ReadFile(path)
		must.Succeed(t, err)
		return path, data
	}
	// What it does wrong does not depend on time.
	careless := []string{"client", "--only", "404", "--only", "closed before the head", need.Program(t, "curl", "curl"), "-s"}
	for name, args := range map[string][]string{"decide": append([]string{"decide", "--only", "H6"}, right(t, "H6")...), "client": careless} {
		_, first := record(name+"1", args...)
		_, second := record(name+"2", args...)
		if diff := cmp.Diff(strings.Split(string(first), "\n"), strings.Split(string(second), "\n")); diff != "" {
			t.Errorf("%s: the records differ:\n%s", name, diff)
		}
		if name == "client" && !strings.Contains(string(first), "H6: with the origin at http doing /s/KEY/404") {
			t.Errorf("no sentence says that the client does not fail: %s", first)
		}
	}
	measured, err := judge.NewRecord("client", &kit.Report{Results: []kit.Result{{Name: "503 then 200", Rules: []string{"H1", "W1"}, Verdict: kit.Failed,
		Wrong: []kit.Mismatch{{What: "gap 1", Want: "at least 200ms", Got: "3ms"}, {What: "final URL", Want: "http://127.0.0.1:4711/a", Got: "http://127.0.0.1:4712/b"}}}}})
	must.Succeed(t, err)
	const sent = "H1, W1: with the origin at http doing /s/KEY/503/200:size=2000, "
	if diff := cmp.Diff([]string{sent + "gap 1 must be at least 200ms and is shorter.", sent + "final URL must be http://ORIGIN/a and is http://ORIGIN/b."}, measured.Results[0].Failures); diff != "" {
		t.Error(diff)
	}
	good, _ := record("good", append([]string{"decide", "--only", "H6"}, right(t, "H6")...)...)
	bad, text := record("bad", "decide", "--only", "H6", shell, "-c", `sed 's/"observation":.*/"verdict":{}}/'`)
	var r judge.Record
	if err := json.Unmarshal(text, &r); err != nil || len(r.Levels) != 5 || r.Levels[0].Whole || r.Levels[0].Failed == 0 || r.Subject != "it" || r.Way != "decide" {
		t.Errorf("%v, %+v", err, r.Levels)
	}
	if len(r.Results) == 0 || len(r.Results[0].Failures) == 0 || !strings.HasPrefix(r.Results[0].Failures[0], `H6: for the observation {"`) {
		t.Errorf("%+v", r.Results)
	}
	for _, row := range []struct {
		before, after string
		code          int
		out           string
	}{
		{good, good, cli.ExitOK, "0 changes, 0 worse"},
		{good, bad, cli.ExitFailed, ": failed, was held"},
		{bad, good, cli.ExitOK, ": held, was failed"},
	} {
		if code, out, err := call(t, "diff", row.before, row.after); code != row.code || !strings.Contains(out, row.out) {
			t.Errorf("exit code %d, want %d and %q:\n%s%s", code, row.code, row.out, out, err)
		}
	}
}

// TestDiffOfForeignRecords checks that a record cannot send escape sequences to the terminal.
func TestDiffOfForeignRecords(t *testing.T) {
	t.Parallel()
	write := func(results string) string {
		path := filepath.Join(t.TempDir(), "record.json")
		if err := os.WriteFile(path, []byte(`{"format": "fetch-conformance-record/2", "results": {"names": {`+results+`}}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	evil := write(`"held\u001b[31m": {"vector\u001b[2J": ["\u001b]0;name\u0007"]}`)
	for _, paths := range [][]string{{evil, write("")}, {write(""), evil}} {
		if _, out, _ := call(t, "diff", paths[0], paths[1]); strings.Contains(out, "\x1b") || !strings.Contains(out, `vector\x1b[2J`) || !strings.Contains(out, `held\x1b[31m`) {
			t.Errorf("the difference is %q", out)
		}
	}
}

// TestReproduce checks that a record says how to make it again, and what was judged.
func TestReproduce(t *testing.T) {
	t.Parallel()
	shell, path := need.Program(t, "sh", "dash"), filepath.Join(t.TempDir(), "record.json")
	const script = `test "$0" = --version && echo fails 1; exit 7`
	code, out, err := call(t, "client", "--name", "mine", "--only", "404", "--only", "expired certificate", "--only", "wrong digest", "--limit", "5s", "--record", path, shell, "-c", script)
	if code != cli.ExitFailed || !strings.Contains(out, "mine  fails 1\n") || !strings.Contains(out, "2 wire scenarios: 1 held, 1 failed (1 more not judged)") {
		t.Errorf("exit code %d\n%s%s", code, out, err)
	}
	f, failed := os.Open(path)
	if failed != nil {
		t.Fatal(failed)
	}
	defer func() { _ = f.Close() }() // it was only read
	r, failed := judge.ReadRecord(f)
	if failed != nil {
		t.Fatal(failed)
	}
	if want := `fetch-conformance client --only "404" --only "expired certificate" --only "wrong digest" --name "mine" --limit 5s ` + shell + " -c " + script; r.Reproduce != want {
		t.Errorf("reproduce with %s, want %s", r.Reproduce, want)
	}
	if r.Judge != "fetch-conformance "+version.String() || r.Subject != "mine" || r.Version != "fails 1" {
		t.Errorf("judge %q, subject %q, version %q", r.Judge, r.Subject, r.Version)
	}
}

// TestGuard checks the report about a guard that refuses everything.
func TestGuard(t *testing.T) {
	t.Parallel()
	shell := need.Program(t, "sh", "dash")
	if _, err := guardrun.Run(t.Context(), &guardrun.Guard{}, nil); errors.Is(err, guardrun.ErrNoNetwork) {
		need.Missing(t, "run it as root", "%v", err)
	}
	record := filepath.Join(t.TempDir(), "record.json")
	code, out, err := call(t, "guard", "--only", "public", "--only", "confusion", "--record", record, shell, "-c", "exit 1")
	if code != cli.ExitFailed || !strings.Contains(out, "FAILED public\n") || !strings.Contains(out, "the page of 8.8.8.8 had to arrive") {
		t.Errorf("exit code %d, output:\n%s%s", code, out, err)
	}
	r, e := readRecord("", record)
	if e != nil {
		t.Fatal(e)
	}
	if l := r.Levels[0]; l.Held != 8 || l.Failed != 0 || !l.Whole {
		t.Errorf("a level without a failure is %+v", l)
	}
	if l := r.Levels[1]; l.Held != 0 || l.Failed != 1 || l.Whole {
		t.Errorf("a level with a failure is %+v", l)
	}
	if code, out, err := call(t, "diff", record, record); code != cli.ExitOK {
		t.Errorf("diff: exit code %d, output:\n%s%s", code, out, err)
	}
}
