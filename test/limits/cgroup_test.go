//go:build linux

package limits

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fetchd/internal/wait"
)

// cgroupNumber makes the names of this process's cgroups unique.
var cgroupNumber atomic.Int64

// files are the file names of one cgroup version that are used here.
type files struct {
	limit, swap, usage string
	cache              string // the line of memory.stat for the page cache
	events             string // the file with a line "oom_kill N"
}

var (
	version1 = files{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.usage_in_bytes", "total_cache", "memory.oom_control"}
	version2 = files{"memory.max", "memory.swap.max", "memory.current", "file", "memory.events"}
)

// cgroup is a memory cgroup for one process.
type cgroup struct {
	files
	dir string
}

// newCgroup makes a memory cgroup with the limit in bytes. The caller removes it.
func newCgroup(root string, limit int64) (*cgroup, error) {
	g := &cgroup{files: version2}
	controllers, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	swap := "0" // version 2 counts swap separately
	switch {
	case errors.Is(err, os.ErrNotExist):
		g.files, root = version1, filepath.Join(root, "memory")
		swap = strconv.FormatInt(limit, 10) // version 1 counts it with the memory
	case err != nil:
		return nil, err
	case !bytes.Contains(controllers, []byte("memory")):
		return nil, fmt.Errorf("%s has no memory controller", root)
	default:
		if err := delegate(root); err != nil {
			return nil, err
		}
	}
	g.dir = filepath.Join(root, fmt.Sprintf("fetchd-limits-%d-%d", os.Getpid(), cgroupNumber.Add(1)))
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, err
	}
	if err := g.write(g.limit, strconv.FormatInt(limit, 10)); err != nil {
		return nil, errors.Join(err, os.Remove(g.dir))
	}
	if err := g.write(g.swap, swap); err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel may not count swap
		return nil, errors.Join(err, os.Remove(g.dir))
	}
	return g, nil
}

// delegate enables the memory controller for the children of a cgroup v2. The kernel
// refuses if the cgroup is not its root and has processes.
func delegate(root string) error {
	const file = "cgroup.subtree_control"
	enabled, err := os.ReadFile(filepath.Join(root, file))
	if err != nil || bytes.Contains(enabled, []byte("memory")) {
		return err
	}
	return os.WriteFile(filepath.Join(root, file), []byte("+memory"), 0o644)
}

func (g *cgroup) write(file, text string) error {
	return os.WriteFile(filepath.Join(g.dir, file), []byte(text), 0o644)
}

// command returns the command line that runs args inside the cgroup.
func (g *cgroup) command(args ...string) []string {
	return append([]string{"/bin/sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, g.dir}, args...)
}

// used returns the bytes in use without the page cache, which the kernel takes back before
// it kills.
func (g *cgroup) used() (int64, error) {
	text, err := os.ReadFile(filepath.Join(g.dir, g.usage))
	if err != nil {
		return 0, err
	}
	usage, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, err
	}
	cache, err := g.counter("memory.stat", g.cache)
	return max(usage-cache, 0), err
}

// kills returns how many processes of the cgroup the kernel has killed for memory.
func (g *cgroup) kills() (int64, error) { return g.counter(g.events, "oom_kill") }

// counter reads the line "name N" of a file.
func (g *cgroup) counter(file, name string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == name {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no line %q", file, name)
}

// remove removes the cgroup. Its process must have ended; the kernel may need a moment to
// notice.
func (g *cgroup) remove(ctx context.Context) error {
	var err error
	_ = wait.Until(ctx, 10*time.Millisecond, func() bool { err = os.Remove(g.dir); return err == nil })
	return err
}

// TestCgroupFiles reads both versions' files as kernels write them.
func TestCgroupFiles(t *testing.T) {
	for _, row := range []struct {
		name  string
		names files
		texts map[string]string
	}{
		{"version 1", version1, map[string]string{
			"memory.usage_in_bytes": "7000\n", "memory.stat": "cache 1\nrss 2\ntotal_cache 3000\ntotal_rss 2\n",
			"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
		}},
		{"version 2", version2, map[string]string{
			"memory.current": "7000\n", "memory.stat": "anon 4000\nfile 3000\nfile_mapped 1\n",
			"memory.events": "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n",
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := &cgroup{files: row.names, dir: t.TempDir()}
			for name, text := range row.texts {
				if err := g.write(name, text); err != nil {
					t.Fatal(err)
				}
			}
			if used, err := g.used(); used != 4000 || err != nil {
				t.Errorf("used = %d, %v, want 4000", used, err)
			}
			if kills, err := g.kills(); kills != 2 || err != nil {
				t.Errorf("kills = %d, %v, want 2", kills, err)
			}
		})
	}
}
