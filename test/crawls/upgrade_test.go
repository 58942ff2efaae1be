//go:build linux

package crawls

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fetchd/test/need"
	"fetchd/test/rig"
)

// earlier are commits with an earlier version of the schema: the last one with 5, one with 7, and the last one with 8.
var earlier = map[string]int64{"97cd7d5": 5, "1fbccf7607fe": 7, "6c05ce53": 8}

// TestUpgrade starts a new worker in the middle of a crawl of two older ones. It migrates the database,
// and the older workers continue until nothing is left.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	if !all() {
		need.Request(t, "run .ci/run crawls-all", "the long form builds an earlier version")
	}
	for commit, schema := range earlier {
		t.Run(fmt.Sprintf("version %d", schema), func(t *testing.T) { upgrade(t, commit, schema) })
	}
}

// upgrade upgrades the database of a commit, which has a version of the schema.
func upgrade(t *testing.T, commit string, schema int64) {
	older := filepath.Join(t.TempDir(), "frontier")
	buildOlder(rig.Long(t, limit), t, commit, older)
	for name, dsn := range databases {
		if schema == 8 && name == "sqlite" {
			continue // its schema has not changed since
		}
		t.Run(name, func(t *testing.T) {
			ctx := long(t)
			c := newCrawl(ctx, t, dsn(t), 2)
			c.program = older
			c.put(60, 3000, 1000)
			w1, w2 := c.worker(), c.worker()
			c.requests(1500)
			version := `SELECT max(version_id) FROM goose_db_version`
			if got := c.count(version); int64(got) != schema {
				t.Fatalf("the older workers use version %d of the schema, want %d", got, schema)
			}
			c.program = "frontier"
			w3 := c.worker()
			rig.Until(ctx, t, "the database is migrated", func() bool { return int64(c.count(version)) > schema })
			left := c.count(`SELECT count(*) FROM urls WHERE status <> 'fetched'`)
			c.finished(w1, w2, w3)
			c.complete()
			c.polite()
			c.outcomes()
			later := make(map[string]int)
			for _, w := range []string{"w1", "w2", "w3"} {
				text, err := os.ReadFile(filepath.Join(c.dir, w+".jsonl"))
				must(t, err)
				later[w] = strings.Count(string(text), "\n")
			}
			t.Logf("%d URLs, %d of them left at the migration; outcomes by worker: %v", c.urls, left, later)
			for w, n := range later {
				if n == 0 {
					t.Errorf("%s has recorded no outcome", w)
				}
			}
			for _, w := range []*process{w1, w2} {
				if strings.Contains(w.log.String(), "level=ERROR") {
					t.Errorf("%s logged errors:\n%s", w.name, last(w.log.String(), 5))
				}
			}
		})
	}
}

// buildOlder builds cmd/frontier of a commit.
func buildOlder(ctx context.Context, t *testing.T, commit, to string) {
	t.Helper()
	if out, err := exec.CommandContext(ctx, "git", "cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
		need.Missing(t, "run git fetch --unshallow", "the repository does not have commit %s: %s", commit, out)
	}
	root, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	must(t, err)
	dir := t.TempDir()
	text := fmt.Sprintf("git -C '%s' archive %s | tar -x && CGO_ENABLED=0 go build -o '%s' ./cmd/frontier", strings.TrimSpace(string(root)), commit, to)
	build := exec.CommandContext(ctx, "sh", "-c", text)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", commit, err, out)
	}
}

// addWith puts URLs with another program.
func (c *crawl) addWith(program string, urls []string) {
	c.Helper()
	add := exec.CommandContext(c.ctx, program, "add", "--db", c.dsn, "-i", "-")
	add.Stdin = strings.NewReader(strings.Join(urls, "\n"))
	out, err := add.CombinedOutput()
	if want := fmt.Sprintf("%d added, 0 known, 0 bad\n", len(urls)); err != nil || string(out) != want {
		c.Fatalf("%s add: %v, %q, want %q", program, err, out, want)
	}
	c.urls += len(urls)
}
