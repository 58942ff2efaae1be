package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"fetchd/internal/version"
)

// get asks the HTTP port for a path, by a host.
func (s *service) get(path, host string) (code int, text string) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+s.http+path, nil)
	must(s, err)
	req.Host = host
	client := &http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	must(s, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(s, err)
	return resp.StatusCode, string(body)
}

// TestConsole is off unless it is asked for, and told where the ports are.
func TestConsole(t *testing.T) {
	tokens := newFolder(t).write("tokens.yaml", []byte("- {name: a, sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08}\n"))
	off := start(t)
	on := start(t, "--console", "--console-host", "fetchd.example", "--token-file", tokens)
	for _, row := range []struct {
		name       string
		on         *service
		path, host string
		code       int
		want       string
	}{
		{"off", off, "/console/", "", 404, "GET /console/ if fetchd is started with --console"},
		{"off, at the root", off, "/", "", 404, "GET /console/ if fetchd is started with --console"},
		{"on, another path", on, "/v1/console", "", 404, ", GET /console/\""},
		{"on", on, "/console/", "", 200, "<title>fetchd console</title>"},
		{"the root leads there", on, "/", "", 200, "<title>fetchd console</title>"},
		{"the settings of the page", on, "/console/service.json", "", 200, `{"grpc":"` + on.grpc + `","tls":false,"token":true,"version":"` + version.String() + `"}`},
		{"by a name of --console-host", on, "/console/", "fetchd.example", 200, "<title>"},
		{"by another name", on, "/console/", "evil.example", 403, "--console-host"},
	} {
		if code, text := row.on.get(row.path, row.host); code != row.code || !strings.Contains(text, row.want) {
			t.Errorf("%s: %d %.200q, want %d with %q", row.name, code, text, row.code, row.want)
		}
	}
}

// TestConsoleIsDocumented: each flag has its row.
func TestConsoleIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/operating.md")
	must(t, err)
	for _, flag := range []string{"console", "console-host"} {
		if !strings.Contains(string(page), "\n| `--"+flag+"` | ") {
			t.Errorf("docs/operating.md has no row for --%s", flag)
		}
	}
}
