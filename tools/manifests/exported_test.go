package manifests

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var sample = regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? `)

// TestExported compares the list of metrics with those that the fetchd of this tree exports.
// A metric with labels appears after its first count, so the test makes a fetch to a
// forbidden target.
func TestExported(t *testing.T) {
	address := serve(t)
	ask(t, http.MethodPost, "http://"+address+"/v1/fetch:unary", `{"url": "http://10.0.0.1/"}`)
	text := ask(t, http.MethodGet, "http://"+address+"/metrics", "")
	list := fetchdVocabulary(t)
	seen := map[string]bool{}
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		seen[m[1]] = true
		if !strings.HasPrefix(m[1], "fetchd_") && !strings.HasPrefix(m[1], "grpc_server_") {
			continue
		}
		has, known := list.labelsOf(m[1])
		if base, cut := strings.CutSuffix(m[1], "_created"); cut && !known {
			has, known = list.labelsOf(base)
		}
		if !known && strings.HasPrefix(m[1], "fetchd_") {
			t.Errorf("fetchd exports %s, which is not in the list: explain it in docs/operating.md", m[1])
		}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if known && strings.HasPrefix(m[1], "fetchd_") && !slices.Contains(has, l[1]) {
				t.Errorf("%s has a label %s, which is not in the list", m[1], l[1])
			}
		}
	}
	for name, has := range metrics {
		if len(has) == 0 && !seen[name] {
			t.Errorf("fetchd does not export %s", name)
		}
	}
	for _, label := range []string{"kind", "reason"} { // all their values are exported from the start
		if got := valuesOf(label, text); !slices.Equal(got, list.Values[label]) {
			t.Errorf("label %s: fetchd exports the values %q, the list has %q", label, got, list.Values[label])
		}
	}
	for _, name := range []string{"fetchd_fetches_total", "fetchd_attempts_total", "fetchd_fetch_seconds_count"} {
		if !seen[name] {
			t.Errorf("fetchd does not export %s after a fetch", name)
		}
	}
}

// valuesOf returns the values that a label has in the metrics, sorted.
func valuesOf(label, metrics string) []string {
	var values []string
	for _, m := range sample.FindAllStringSubmatch(metrics, -1) {
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if l[1] == label {
				values = append(values, l[3])
			}
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// serve starts fetchd and returns the address of its HTTP port.
func serve(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "fetchd")
	build := exec.Command("go", "build", "-o", binary, "./cmd/fetchd")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	command := exec.Command(binary, "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--drain-time", "1s")
	stderr, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	})
	lines := bufio.NewReader(stderr)
	first, err := lines.ReadBytes('\n')
	if err != nil {
		t.Fatalf("fetchd logged nothing: %v", err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // ends with the process
	var line struct {
		Address string `json:"http_addr"`
	}
	if err := json.Unmarshal(first, &line); err != nil || line.Address == "" {
		t.Fatalf("fetchd's first line names no http_addr: %s", first)
	}
	return line.Address
}

// ask returns the body of a response, which must be a 200.
func ask(t *testing.T, method, url, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := new(http.Client).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s %v\n%.300s", method, url, response.Status, err, text)
	}
	return string(text)
}
