package version

import (
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
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

// TestPrograms: every program that prints a version prints the same, with and without
// one set at the build.
func TestPrograms(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		flags []string
		want  string
	}{
		{"set at the build", []string{"-ldflags", "-X fetchd/internal/version.version=v1.2.3"}, "v1.2.3"},
		{"without data of a repository", []string{"-buildvcs=false"}, "devel"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			args := append([]string{"build", "-o", folder}, row.flags...)
			if out, err := exec.Command("go", append(args, "fetchd/cmd/...")...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, program := range []string{"fetchd", "fetchctl", "frontier"} {
				out, err := exec.Command(filepath.Join(folder, program), "--version").Output()
				if err != nil {
					t.Fatalf("%s: %v", program, err)
				}
				if want := program + " " + row.want + " go1."; !strings.HasPrefix(string(out), want) {
					t.Errorf("%s --version prints %q, want it to begin with %q", program, out, want)
				}
			}
		})
	}
}
