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
	"fetchd/conformance/kit"
	"fetchd/test/need"
)

// TestGuardRows checks that a fetchd without settings, and the tool of fetchctl mcp, hold every row about guards, and
// that two runs are equal.
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
		{Command: kit.NewCommand("fetchctl mcp", []string{filepath.Join(dir, "fetchctl"), "mcp"}), Kind: guardrun.MCP},
	} {
		g.Env = os.Environ()
		var runs [2][]guardrun.Result
		for i := range runs {
			runs[i], err = guardrun.Run(t.Context(), &g, rows)
			if errors.Is(err, guardrun.ErrNoNetwork) {
				need.Missing(t, "run it as root", "%v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range runs[0] {
			r := &runs[0][i]
			t.Run(g.Name+"/"+r.Row.Name, func(t *testing.T) {
				for _, failure := range r.Failures() {
					t.Error(failure)
				}
				if diff := cmp.Diff(r, &runs[1][i]); diff != "" {
					t.Errorf("two runs differ:\n%s", diff)
				}
			})
		}
	}
}
