package mcp

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"fetchd/cmd/fetchctl/mcp/tools"
	"fetchd/server/fetchdtest"
	"fetchd/test/need"
	"fetchd/test/rig"
)

func TestMain(m *testing.M) { rig.Main(m, "fetchctl") }

// node returns a command that runs a program of a package with Node 22.
func node(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	modules := os.Getenv("FETCHD_NODE_MODULES")
	found, err := filepath.Glob(filepath.Join(modules, "node-linux-*", "bin", "node"))
	if err != nil || len(found) == 0 {
		need.Missing(t, "run .ci/run mcp", "FETCHD_NODE_MODULES is %q, which has no Node", modules)
	}
	return exec.CommandContext(t.Context(), found[0], append([]string{filepath.Join(modules, "@modelcontextprotocol", program)}, args...)...)
}

// inspect calls the program with flags through the inspector, and returns the result as the inspector prints it.
func inspect(t *testing.T, flags []string, method string, args ...string) (result struct {
	Content           []struct{ Type, Text string }
	StructuredContent *struct {
		AttemptCount int `json:"attempt_count"`
	}
	IsError bool
	Tools   []struct{ Name string }
}) {
	t.Helper()
	cmd := node(t, "inspector/clients/launcher/build/index.js", slices.Concat([]string{"--cli", rig.Program("fetchctl"), "mcp"}, flags, []string{"--method", method}, args)...)
	out, err := cmd.Output()
	if err != nil && len(out) == 0 {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	if err := json.Unmarshal(out, &result); err != nil {
		t.Fatalf("%v printed %.1000q", cmd.Args, out)
	}
	return result
}

// TestInspector lists and calls the tools.
func TestInspector(t *testing.T) {
	rig.Long(t, time.Minute)
	o := rig.Origin(t)
	_, port, _ := strings.Cut(o.Addr("http"), ":")
	flags := []string{"--egress-allow-cidr=127.0.0.0/8", "--egress-allow-port=" + port}
	if got := inspect(t, flags, "tools/list"); len(got.Tools) != 1 {
		t.Errorf("tools %+v", got.Tools)
	}
	fetch := func(args ...string) []string {
		call := []string{"--tool-name", "fetch"}
		for _, a := range args {
			call = append(call, "--tool-arg", a)
		}
		return call
	}
	got := inspect(t, flags, "tools/call", fetch("url="+o.URL("http", "/s/k/503/503/200:body=hello"))...)
	if got.IsError || len(got.Content) != 4 || got.Content[2].Text != "hello" || !strings.Contains(got.Content[0].Text, "after 3 attempts") || got.StructuredContent != nil || len(o.Requests("k")) != 3 {
		t.Errorf("503, 503, 200: %+v after %d requests, want one result after 3", got, len(o.Requests("k")))
	}
	got = inspect(t, append(flags, "--structured"), "tools/call", fetch("url="+o.URL("http", "/s/n/503/200:body=hello"))...)
	if got.IsError || len(got.Content) != 4 || got.StructuredContent == nil || got.StructuredContent.AttemptCount != 2 {
		t.Errorf("with structured content: %+v", got)
	}
	got = inspect(t, flags, "tools/call", fetch("url="+o.URL("http", "/s/l/200:body=hello"), "start_index=1", "max_length=3", "raw=true", "timeout=5")...)
	if got.IsError || len(got.Content) != 4 || got.Content[2].Text != "ell" {
		t.Errorf("a window: %+v", got)
	}
	if got := inspect(t, flags, "tools/call", fetch("url="+o.URL("http", "/s/m/404"))...); !got.IsError {
		t.Errorf("404: %+v", got)
	}
	if got := inspect(t, flags, "tools/call", fetch("url=http://127.0.0.2:22/")...); !got.IsError || !strings.Contains(got.Content[0].Text, "target_blocked") {
		t.Errorf("a forbidden address: %+v", got)
	}
}

// TestConformance runs the conformance suite. Each scenario passes or is in expected-failures.yml,
// and each scenario in that file fails.
func TestConformance(t *testing.T) {
	rig.Long(t, time.Minute)
	service := fetchdtest.Start(t, fetchdtest.Options{})
	tools := tools.New(tools.Config{Service: service.Client})
	front := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return tools }, nil))
	t.Cleanup(front.Close)
	cmd := node(t, "conformance/dist/index.js", "server", "--url", front.URL, "--output-dir", t.TempDir(), "--expected-failures", "expected-failures.yml")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", regexp.MustCompile(`Total: .*`).Find(out))
}
