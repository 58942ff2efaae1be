package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMutation changes package classify in every place where a rule could be wrong, one place at a
// time, and expects a vector to fail each time. It runs the vectors only: what they do not check is
// not checked for an implementation in another language.
func TestMutation(t *testing.T) {
	start := time.Now()
	texts, mutants := mutate(t, "../classify", "class.go", "decide.go", "policy.go", "retryafter.go")
	if len(mutants) < 500 {
		t.Fatalf("only %d mutants: the mutator does not work", len(mutants))
	}
	binary := compile(t, texts)
	if out, err := vectorsNotice(t.Context(), binary, 0); err != nil {
		t.Fatalf("without a mutant the vectors must pass: %v\n%s", err, out)
	}
	alive := survivors(t, binary, mutants)
	excused := equivalent()
	listed := len(excused)
	for _, m := range mutants {
		_, ok := excused[m.key]
		delete(excused, m.key)
		switch {
		case alive[m.id] && !ok:
			t.Errorf("no vector notices: %s\n\tkey %q", m, m.key)
		case !alive[m.id] && ok:
			t.Errorf("%s: listed as unnoticed, but a vector notices it: %q", m, m.key)
		}
	}
	for key := range excused {
		t.Errorf("listed as unnoticed, but there is no such mutant: %q", key)
	}
	t.Logf("%d mutants, %d noticed, %d listed, in %v",
		len(mutants), len(mutants)-len(alive), listed, time.Since(start).Round(time.Second))
}

// compile builds the test of package classify that runs the vectors, with the mutated files and
// without the other tests.
func compile(t *testing.T, texts map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	texts["mutant.go"] = []byte(switcher)
	for name, text := range texts {
		changed := filepath.Join(dir, name)
		if err := os.WriteFile(changed, text, 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[absolute(t, "../classify/"+name)] = changed
	}
	for _, path := range goFiles(t, "../classify") {
		if strings.HasSuffix(path, "_test.go") && filepath.Base(path) != "vectors_test.go" {
			overlay.Replace[absolute(t, path)] = "" // as if it did not exist
		}
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	listed, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "vectors.test")
	if err := os.WriteFile(listed, list, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", listed, "-o", binary, "./classify")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return binary
}

// survivors runs the vectors against every mutant. Each has its own process, so that one that
// panics or hangs does not affect the others.
func survivors(t *testing.T, binary string, mutants []mutant) map[int]bool {
	t.Helper()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		alive = make(map[int]bool)
		work  = make(chan mutant)
	)
	for range runtime.NumCPU() {
		wg.Go(func() {
			for m := range work {
				out, err := vectorsNotice(t.Context(), binary, m.id)
				if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
					t.Errorf("%s: %v\n%s", m, err, out)
				}
				if err == nil {
					mu.Lock()
					alive[m.id] = true
					mu.Unlock()
				}
			}
		})
	}
	for _, m := range mutants {
		work <- m
	}
	close(work)
	wg.Wait()
	return alive
}

// vectorsNotice runs the vectors against one mutant. It returns a nil error if all of them pass.
func vectorsNotice(ctx context.Context, binary string, id int) ([]byte, error) {
	cmd := exec.CommandContext(ctx, binary, "-test.run=^TestVectors$", "-test.failfast", "-test.timeout=20s")
	cmd.Env = append(os.Environ(), mutantVariable+"="+strconv.Itoa(id))
	out, err := cmd.CombinedOutput()
	if err == nil && strings.Contains(string(out), "no tests to run") {
		return out, os.ErrNotExist
	}
	return out, err
}

func goFiles(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("files of %s: %v, %v", dir, paths, err)
	}
	return paths
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	whole, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return whole
}
