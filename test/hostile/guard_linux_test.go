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

// TestGuardRows checks that a fetchd without settings holds every row about guards, and that two runs are equal.
func TestGuardRows(t *testing.T) {
	rows, err := conformance.GuardRows()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "guarded")
	build := exec.CommandContext(t.Context(), need.Program(t, "go", "golang"), "build", "-o", program, "../guarded")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	g := &guardrun.Guard{Command: kit.NewCommand("fetchd", []string{program, "{url}"})}
	g.Env = os.Environ()
	var runs [2][]guardrun.Result
	for i := range runs {
		runs[i], err = guardrun.Run(t.Context(), g, rows)
		if errors.Is(err, guardrun.ErrNoNetwork) {
			need.Missing(t, "run it as root", "%v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range runs[0] {
		r := &runs[0][i]
		t.Run("rows/"+r.Row.Name, func(t *testing.T) {
			for _, failure := range r.Failures() {
				t.Error(failure)
			}
			if diff := cmp.Diff(r, &runs[1][i]); diff != "" {
				t.Errorf("two runs differ:\n%s", diff)
			}
		})
	}
}
