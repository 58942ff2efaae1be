package rig

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
	"time"

	"fetchd/test/wait"
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

// Cgroup is a memory cgroup for one process.
type Cgroup struct {
	files
	dir string
}

// NewCgroup makes a memory cgroup with the limit in bytes. The caller removes it. It needs
// root and a writable memory controller (cgroup v1 or v2).
func NewCgroup(limit int64) (*Cgroup, error) {
	root := "/sys/fs/cgroup"
	g := &Cgroup{files: version2}
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
	g.dir = filepath.Join(root, fmt.Sprintf("fetchd-test-%d-%d", os.Getpid(), cgroupNumber.Add(1)))
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

func (g *Cgroup) write(file, text string) error {
	return os.WriteFile(filepath.Join(g.dir, file), []byte(text), 0o644)
}

// Command returns the command line that runs args inside the cgroup.
func (g *Cgroup) Command(args ...string) []string {
	return append([]string{"/bin/sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, g.dir}, args...)
}

// Used returns the bytes in use without the page cache, which the kernel takes back before
// it kills.
func (g *Cgroup) Used() (int64, error) {
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

// Kills returns how many processes of the cgroup the kernel has killed for memory.
func (g *Cgroup) Kills() (int64, error) { return g.counter(g.events, "oom_kill") }

// counter reads the line "name N" of a file.
func (g *Cgroup) counter(file, name string) (int64, error) {
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

// Remove removes the cgroup. Its process must have ended; the kernel may need a moment to
// notice.
func (g *Cgroup) Remove(ctx context.Context) error {
	var err error
	_ = wait.Until(ctx, 10*time.Millisecond, func() bool { err = os.Remove(g.dir); return err == nil })
	return err
}
