package main

import (
	"encoding/json"
	"strings"
	"testing"

	"fetchd/conformance/judge"
	"fetchd/conformance/kit"
	"fetchd/internal/cli"
	"fetchd/internal/rules"
)

func TestConformanceOfTheServiceInside(t *testing.T) {
	t.Parallel()
	got := fetchctl(t, "conformance")
	if got.code != cli.ExitOK || !strings.Contains(got.out, " 0 failed\n") || strings.Contains(got.out, "not judged") {
		t.Errorf("conformance: exit status %d, want 0 and nothing that failed or was not judged\n%s%s", got.code, got.out, got.err)
	}
}

func TestConformanceOnly(t *testing.T) {
	t.Parallel()
	got := fetchctl(t, "conformance", "--only", "r2", "--only", "204", "--json")
	var written struct{ Report kit.Report }
	if err := json.Unmarshal([]byte(got.out), &written); err != nil {
		t.Fatalf("report: %v\n%s%s", err, got.out, got.err)
	}
	names := map[string]bool{}
	for _, r := range written.Report.Results {
		names[r.Name] = true
		if r.Verdict != kit.Held {
			t.Errorf("%s: %s %v", r.Name, r.Verdict, r.Wrong)
		}
	}
	if !names["redirect loop"] || !names["204"] || names["404"] {
		t.Errorf("ran %v, want those about R2, and 204", names)
	}
	if got.code != cli.ExitOK {
		t.Errorf("exit status %d, want 0", got.code)
	}
}

func TestConformanceUsage(t *testing.T) {
	t.Parallel()
	if got := fetchctl(t, "conformance", "--only", "Z9"); got.code != cli.ExitUsage || !strings.Contains(got.err, "--only") {
		t.Errorf("no such rule: exit status %d, %q; want %d and %q", got.code, got.err, cli.ExitUsage, "--only")
	}
}

func TestConformanceList(t *testing.T) {
	t.Parallel()
	scenarios, vectors, err := judge.Select(nil)
	must(t, err)
	got := fetchctl(t, "conformance", "--list")
	for _, s := range scenarios {
		if !strings.Contains(got.out, s.Story) {
			t.Errorf("--list lacks %q", s.Name)
		}
		for _, rule := range s.Rules {
			if rules.Sentence(rule) == "" {
				t.Errorf("scenario %q: rule %s has no sentence", s.Name, rule)
			}
		}
	}
	for i := range vectors {
		if rules.Sentence(vectors[i].Rule) == "" {
			t.Errorf("vector %s: rule %s has no sentence", vectors[i].Name, vectors[i].Rule)
		}
	}
	if got.code != cli.ExitOK {
		t.Errorf("exit status %d, want 0", got.code)
	}
}
