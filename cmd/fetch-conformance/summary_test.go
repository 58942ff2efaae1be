package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fetchd/conformance/judge"
	"fetchd/conformance/kit"
	"fetchd/internal/cli"
	"fetchd/internal/version"
	"fetchd/test/must"
)

// TestResults checks that the records in conformance/results, which conformance/compare writes, are about the vectors
// and scenarios that there are, that nothing of one machine is in them, and that docs/conformance.md has their table.
func TestResults(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("../../conformance/results/*.json")
	if err != nil || len(paths) < 13 {
		t.Fatalf("%d records, %v; want fetchd and at least twelve clients", len(paths), err)
	}
	now, err := judge.NewRecord("", new(kit.Report))
	must.Succeed(t, err)
	const service = "../../conformance/results/fetchd.json"
	for _, path := range paths {
		r, err := readRecord("RECORD", path)
		must.Succeed(t, err)
		if r.Data != now.Data {
			t.Errorf("%s is not about the vectors and scenarios that there are: run conformance/compare", path)
		}
		if r.Judge != "fetch-conformance "+version.String() || r.Version == "" || !strings.HasPrefix(r.Reproduce, "fetch-conformance "+r.Way) {
			t.Errorf("%s: judge %q, version %q, reproduce with %q: run conformance/compare", path, r.Judge, r.Version, r.Reproduce)
		}
		text, err := os.ReadFile(path)
		must.Succeed(t, err)
		for _, local := range []string{"/tmp/", "/home/", "/root/", "127.0.0.1:", "localhost:"} {
			// An address of a scenario is the same on each machine.
			if strings.Contains(strings.ReplaceAll(string(text), "127.0.0.1:1%2F", ""), local) {
				t.Errorf("%s contains %s", path, local)
			}
		}
	}
	paths = slices.DeleteFunc(paths, func(path string) bool { return path == service })
	code, table, told := call(t, append([]string{"summary", service}, paths...)...)
	page, err := os.ReadFile("../../docs/conformance.md")
	must.Succeed(t, err)
	if code != cli.ExitOK || !strings.HasSuffix(string(page), "\n\n"+table) {
		t.Errorf("docs/conformance.md does not end with the table of the records (exit code %d, %s): run conformance/compare\n%s", code, told, table)
	}
}

// TestSummary checks the table.
func TestSummary(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "record.json")
	const record = `{"format": "fetch-conformance-record/2", "subject": "a|b", "way": "client", "version": "1", "levels": [
		{"level": "core", "held": 3, "whole": true}, {"level": "waiting", "held": 3, "failed": 1, "other": 9}, {"level": "bodies", "other": 2}]}`
	must.Succeed(t, os.WriteFile(path, []byte(record), 0o600))
	const want = "| name | judged as | version | core | waiting | bodies |\n|---|---|---|---|---|---|\n| a\\|b | client | 1 | **3/3** | 3/4 | – |\n"
	if code, out, told := call(t, "summary", path); code != cli.ExitOK || out != want {
		t.Errorf("exit code %d, %s\n%s, want\n%s", code, told, out, want)
	}
	if code, _, told := call(t, "summary", path, "/there/is/none"); code != cli.ExitUsage || !strings.Contains(told, "RECORD") {
		t.Errorf("no record: exit code %d, %s", code, told)
	}
}
