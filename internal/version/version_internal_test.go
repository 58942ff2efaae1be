package version

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"fetchd/test/must"
)

func TestOf(t *testing.T) {
	t.Parallel()
	built := func(v string) *debug.BuildInfo { return &debug.BuildInfo{Main: debug.Module{Version: v}} }
	for _, row := range []struct {
		name, set string
		info      *debug.BuildInfo
		want      string
	}{
		{"set at the build", "v1.2.3", built("v0.0.0-1-a"), "v1.2.3"},
		{"of the repository", "", built("v0.0.0-1-a"), "v0.0.0-1-a"},
		{"without data of a repository", "", built("(devel)"), "devel"},
		{"no version", "", built(""), "devel"},
		{"no modules", "", nil, "devel"},
	} {
		if got := of(row.set, row.info); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

// TestSetAtTheBuild builds a program as the Dockerfile does.
func TestSetAtTheBuild(t *testing.T) {
	t.Parallel()
	recipe, err := os.ReadFile("../../Dockerfile")
	must.Succeed(t, err)
	flag := regexp.MustCompile(`-X \S+=`).FindString(string(recipe))
	if flag == "" {
		t.Fatal("the Dockerfile sets no version")
	}
	program := filepath.Join(t.TempDir(), "fetchd")
	if out, err := exec.Command("go", "build", "-ldflags", "-s -w "+flag+"v1.2.3", "-o", program, "fetchd/cmd/fetchd").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(program, "--version").Output()
	must.Succeed(t, err)
	if got, want := string(out), "fetchd v1.2.3 go1."; !strings.HasPrefix(got, want) {
		t.Errorf("--version prints %q, want it to begin with %q", got, want)
	}
}
