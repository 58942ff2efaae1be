package hostile

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/conformance"
	"fetchd/conformance/guardrun"
	"fetchd/conformance/judge"
	"fetchd/conformance/kit"
	"fetchd/test/need"
)

// TestGuardRows checks that a fetchd without settings, and the tool of fetchctl mcp, hold every row about guards, and
// that the committed records are what a run gives.
func TestGuardRows(t *testing.T) {
	rows, err := conformance.GuardRows()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), need.Program(t, "go", "golang"), "build", "-o", dir, "../guarded", "../../cmd/fetchctl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, g := range []guardrun.Guard{
		{Command: kit.NewCommand("fetchd", []string{filepath.Join(dir, "guarded"), "{url}"})},
		{Command: kit.NewCommand("fetchctl-mcp", []string{filepath.Join(dir, "fetchctl"), "mcp"}), Kind: guardrun.MCP},
	} {
		g.Env = os.Environ()
		results, err := guardrun.Run(t.Context(), &g, rows)
		if errors.Is(err, guardrun.ErrNoNetwork) {
			need.Missing(t, "run it as root", "%v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range results {
			t.Run(g.Name+"/"+results[i].Row.Name, func(t *testing.T) {
				for _, failure := range results[i].Failures() {
					t.Error(failure)
				}
			})
		}
		record, err := guardrun.Record("", &g, results)
		if err != nil {
			t.Fatal(err)
		}
		want := readRecord(t, "../../conformance/results/guard/"+g.Name+".json")
		want.Judge, want.Command = record.Judge, record.Command
		if diff := cmp.Diff(want, record); diff != "" {
			t.Errorf("the committed record of %s is not what a run gives; run conformance/grade (-want +got):\n%s", g.Name, diff)
		}
	}
}

func readRecord(t *testing.T, path string) *judge.Record {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	r, err := judge.ReadRecord(f)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
