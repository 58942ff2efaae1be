package conformance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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
	if noticed := run(t, binary, mutant{}); len(noticed) == 0 || noticed[0] {
		t.Fatal("without a mutant the vectors must pass")
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

// mutantTime is after which a mutant hangs.
const mutantTime = 20 * time.Second

// compile builds the test of package classify that runs the vectors, with the mutated files and
// without the other tests.
func compile(t *testing.T, texts map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	texts["mutant.go"], texts["mutant_test.go"] = []byte(switcher), []byte(switchers)
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

// survivors runs the vectors against every mutant, many in one process. A mutant that no vector notices there gets its
// own process: a variable of the package may have been computed before the mutant was active.
func survivors(t *testing.T, binary string, mutants []mutant) map[int]bool {
	t.Helper()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		alive = make(map[int]bool)
	)
	for part := range slices.Chunk(mutants, len(mutants)/runtime.NumCPU()+1) {
		wg.Go(func() {
			for len(part) > 0 {
				noticed := run(t, binary, part...)
				for n, m := range part[:len(noticed)] {
					if noticed[n] {
						continue
					}
					if alone := run(t, binary, m); len(alone) > 0 && !alone[0] {
						mu.Lock()
						alive[m.id] = true
						mu.Unlock()
					}
				}
				// The next one has ended the process, or hangs: it is noticed.
				part = part[min(len(noticed)+1, len(part)):]
			}
		})
	}
	wg.Wait()
	return alive
}

// run runs the vectors against mutants in one process. It reports for each whether a vector notices it, up to one that
// ends the process or hangs.
func run(t *testing.T, binary string, mutants ...mutant) (noticed []bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run=^TestMutants$")
	if len(mutants) == 1 { // it is active from the start
		cmd.Env = append(os.Environ(), mutantVariable+"="+strconv.Itoa(mutants[0].id))
	}
	var ids strings.Builder
	for _, m := range mutants {
		fmt.Fprintln(&ids, m.id)
	}
	cmd.Stdin = strings.NewReader(ids.String())
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Error(err)
		return nil
	}
	hangs := time.AfterFunc(mutantTime, cancel)
	defer hangs.Stop()
	for lines := bufio.NewScanner(out); lines.Scan(); hangs.Reset(mutantTime) {
		if yes, ok := strings.CutPrefix(lines.Text(), "noticed: "); ok {
			noticed = append(noticed, yes == "true")
		}
	}
	_ = cmd.Wait() // a mutant may have ended it
	return noticed
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
