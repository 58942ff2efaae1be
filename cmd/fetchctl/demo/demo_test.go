package demo

import (
	"context"
	"strings"
	"testing"

	"fetchd/conformance/kit"
	"fetchd/internal/cli"
	"fetchd/test/clitest"
)

var fetchctl = clitest.Command("fetchctl", func() any {
	return new(struct {
		Demo Command `cmd:""`
	})
})

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
	got := fetchctl.Run(t, "demo")
	if got.Code != cli.ExitOK || strings.Contains(got.Out, "FAILED") {
		t.Errorf("demo: exit status %d, want 0\n%s%s", got.Code, got.Out, got.Err)
	}
}

// Every rule that the demo shows can be broken, and every scenario about it
// then fails: its checks are not vacuous.
func TestDemoNoticesEveryBrokenRule(t *testing.T) {
	t.Parallel()
	for _, rule := range breakRules(demoOf(t)) {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			got := fetchctl.Run(t, "demo", "--break", rule)
			if got.Code != cli.ExitFailed {
				t.Errorf("demo --break %s: exit status %d, want %d\n%s%s", rule, got.Code, cli.ExitFailed, got.Out, got.Err)
			}
			if want := ": 0 ok"; !strings.Contains(got.Out, want) {
				t.Errorf("demo --break %s: a scenario about the rule still holds\n%s", rule, got.Out)
			}
			for _, want := range []string{"rule " + rule + " is broken", "expected", "got"} {
				if !strings.Contains(got.Out, want) {
					t.Errorf("demo --break %s: output lacks %q\n%s", rule, want, got.Out)
				}
			}
		})
	}
}

func TestDemoUnknownRule(t *testing.T) {
	t.Parallel()
	got := fetchctl.Run(t, "demo", "--break", "Z9")
	if got.Code != cli.ExitUsage || !strings.Contains(got.Err, "H1, H2") {
		t.Errorf("demo --break Z9: exit status %d, %q; want %d and the known rules", got.Code, got.Err, cli.ExitUsage)
	}
}

func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := fetchctl.With(ctx, "", nil, "demo"); got.Code != cli.ExitInterrupted {
		t.Errorf("demo: exit status %d, want %d\n%s", got.Code, cli.ExitInterrupted, got.Err)
	}
}
