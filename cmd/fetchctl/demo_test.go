package main

import (
	"context"
	"strings"
	"testing"

	"fetchd/conformance/kit"
	"fetchd/internal/cli"
)

// demoOf are the scenarios of the demo.
func demoOf(t *testing.T) []*kit.Scenario {
	t.Helper()
	all, err := demoScenarios()
	if err != nil || len(all) < 20 {
		t.Fatalf("%d scenarios in the demo, want at least 20; error %v", len(all), err)
	}
	return all
}

func TestDemoHolds(t *testing.T) {
	t.Parallel()
	got := fetchctl(t, "demo")
	if got.code != cli.ExitOK || strings.Contains(got.out, "FAILED") {
		t.Errorf("demo: exit status %d, want 0\n%s%s", got.code, got.out, got.err)
	}
}

// Every rule that the demo shows can be broken, and every scenario about it
// then fails: its checks are not vacuous.
func TestDemoNoticesEveryBrokenRule(t *testing.T) {
	t.Parallel()
	for _, rule := range breakRules(demoOf(t)) {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			got := fetchctl(t, "demo", "--break", rule)
			if got.code != cli.ExitFailed {
				t.Errorf("demo --break %s: exit status %d, want %d\n%s%s", rule, got.code, cli.ExitFailed, got.out, got.err)
			}
			if want := ": 0 ok"; !strings.Contains(got.out, want) {
				t.Errorf("demo --break %s: a scenario about the rule still holds\n%s", rule, got.out)
			}
			for _, want := range []string{"rule " + rule + " is broken", "expected", "got"} {
				if !strings.Contains(got.out, want) {
					t.Errorf("demo --break %s: output lacks %q\n%s", rule, want, got.out)
				}
			}
		})
	}
}

func TestDemoUnknownRule(t *testing.T) {
	t.Parallel()
	got := fetchctl(t, "demo", "--break", "Z9")
	if got.code != cli.ExitUsage || !strings.Contains(got.err, "H1, H2") {
		t.Errorf("demo --break Z9: exit status %d, %q; want %d and the known rules", got.code, got.err, cli.ExitUsage)
	}
}

func TestDemoList(t *testing.T) {
	t.Parallel()
	got := fetchctl(t, "demo", "--list")
	for _, s := range demoOf(t) {
		if !strings.Contains(got.out, s.Story) {
			t.Errorf("demo --list lacks %q", s.Name)
		}
	}
	if got.code != cli.ExitOK {
		t.Errorf("demo --list: exit status %d, want 0", got.code)
	}
}

func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := runWith(ctx, "", nil, "demo"); got.code != cli.ExitInterrupted {
		t.Errorf("demo: exit status %d, want %d\n%s", got.code, cli.ExitInterrupted, got.err)
	}
}
