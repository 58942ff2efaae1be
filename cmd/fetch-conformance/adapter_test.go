package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fetchd/conformance/judge"
	"fetchd/internal/cli"
	"fetchd/test/must"
	"fetchd/test/need"
	"fetchd/test/rig"
)

// pythonBlock matches the adapter in the document.
var pythonBlock = regexp.MustCompile("(?s)<!-- file: adapter.py -->\n```python\n(.*?)\n```\n")

// TestAdapterOfTheDocument runs the adapter of docs/conformance.md, and checks that its client gets the same
// record by a command line.
func TestAdapterOfTheDocument(t *testing.T) {
	t.Parallel()
	python, dir := need.Program(t, "python3", "python3"), t.TempDir()
	page, err := os.ReadFile("../../docs/conformance.md")
	must.Succeed(t, err)
	block := pythonBlock.FindStringSubmatch(string(page))
	if block == nil {
		t.Fatal("docs/conformance.md has no adapter in Python")
	}
	at := rig.FreeAddress(t, "127.0.0.1")
	_, port, _ := strings.Cut(at, ":")
	source := strings.Replace(block[1], "8000", port, 1)
	for name, text := range map[string]string{"adapter.py": source, "client.py": `import adapter, os, sys
if sys.argv[1] == "--version":
    sys.exit(print("urllib.request of Python " + sys.version.split()[0]))
sys.stdout.buffer.write(adapter.fetch(sys.argv[1], open(os.environ["ORIGIN_CA"]).read()))
`} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	adapter := exec.CommandContext(t.Context(), python, filepath.Join(dir, "adapter.py"))
	adapter.Env = judge.WithoutProxies(os.Environ())
	must.Succeed(t, adapter.Start())
	defer func() { _, _ = adapter.Process.Kill(), adapter.Wait() }()
	rig.Until(t.Context(), t, "the adapter listens", func() bool {
		conn, err := net.Dial("tcp", at)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})

	record := func(name string, args ...string) string {
		path := filepath.Join(dir, name)
		what := []string{"client", "--name", "urllib", "--record", path, "--only", "H0", "--only", "H6", "--only", "R2", "--only", "D1", "--only", "N6", "--only", "B1"}
		if code, out, err := call(t, append(what, args...)...); code != cli.ExitFailed {
			t.Fatalf("exit code %d\n%s%s", code, out, err)
		}
		data, err := os.ReadFile(path)
		must.Succeed(t, err)
		return string(data)
	}
	byAdapter := record("adapter.json", "--adapter", "http://"+at+"/")
	byCommand := record("command.json", python, filepath.Join(dir, "client.py"))
	neutral := regexp.MustCompile(`\n  "(command|reproduce)": .*`)
	if byAdapter, byCommand = neutral.ReplaceAllString(byAdapter, ""), neutral.ReplaceAllString(byCommand, ""); byAdapter != byCommand {
		t.Errorf("the records differ. By the adapter:\n%s\nBy the command:\n%s", byAdapter, byCommand)
	}
	if !strings.Contains(byAdapter, `"version": "urllib.request of Python 3.`) || !strings.Contains(byAdapter, `"held": {`) {
		t.Errorf("the client was not judged: %s", byAdapter)
	}
}

// TestAdapters checks the error about an adapter that cannot be used.
func TestAdapters(t *testing.T) {
	t.Parallel()
	half := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = w.Write([]byte("half of an adapter\n"))
	}))
	t.Cleanup(half.Close)
	for _, row := range []struct {
		name string
		args []string
		err  string
	}{
		{"neither", nil, "the command of a client, or --adapter"},
		{"both", []string{"--adapter", "http://127.0.0.1:1/", "curl"}, "the command of a client, or --adapter"},
		{"no URL", []string{"--adapter", "127.0.0.1:8000"}, "--adapter: must be the URL"},
		{"nothing listens", []string{"--adapter", "http://" + rig.FreeAddress(t, "127.0.0.1")}, "--adapter: the adapter does not answer"},
		{"no answer to POST", []string{"--adapter", half.URL}, "not with 418 and"},
	} {
		code, out, err := call(t, append([]string{"client", "--only", "404"}, row.args...)...)
		if code != cli.ExitUsage || !strings.Contains(err, row.err) {
			t.Errorf("%s: exit code %d, want %d and %q\n%s%s", row.name, code, cli.ExitUsage, row.err, out, err)
		}
	}
}
