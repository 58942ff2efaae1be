//go:build linux

package crawls

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/test/rig"
)

// TestRequisites crawls a page with every way to name what it needs, also when a worker is killed in the middle, with two
// workers on PostgreSQL, and a second time. Each response must be recorded, and no other URL requested.
func TestRequisites(t *testing.T) {
	for _, row := range []struct {
		name            string
		postgres, kills bool
		workers, runs   int
	}{
		{"a crawl", false, false, 1, 1},
		{"a worker is killed", false, true, 1, 1},
		{"two workers on PostgreSQL", true, false, 2, 1},
		{"two crawls", false, false, 1, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			ctx := long(t)
			g := rig.NewGallery(t)
			dir := t.TempDir()
			db := filepath.Join(dir, "frontier.db")
			if row.postgres {
				db = newPostgres(t).dsn()
			}
			flags := []string{"crawl", "--db", db, "--warc", filepath.Join(dir, "warc"), "--delay", "10ms", "--total-timeout", "1s",
				"--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-port", portOf(t, g.A.URL), "--egress-allow-port", portOf(t, g.B.URL)}
			crawl := func(more ...string) *process {
				return start(t, "frontier crawl", "frontier", append(flags, more...)...)
			}
			if row.kills {
				reached, release := make(chan struct{}), make(chan struct{})
				g.Break = after(12, func() { close(reached); <-release })
				p := crawl(g.A.URL)
				select {
				case <-reached:
				case <-ctx.Done():
					t.Fatal("the crawl does not get to the page's twelfth URL")
				}
				p.kill()
				close(release)
			}
			for run := range row.runs {
				if run > 0 {
					start(t, "frontier retry", "frontier", "retry", "--db", db, "--fetched-before", "0s").exits(ctx, 0)
				}
				var workers []*process
				for range row.workers {
					workers = append(workers, crawl(g.A.URL))
				}
				for _, w := range workers {
					w.exits(ctx, 0)
				}
			}
			asked, referrers := g.Asked()
			if diff := cmp.Diff(g.Needs(), asked); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(g.Needs(), archivedURLs(ctx, t, db)); diff != "" {
				t.Error(diff)
			}
			for u, want := range map[string]string{g.A.URL + "/css/main.css": g.A.URL + "/", g.A.URL + "/css/sub.css": g.A.URL + "/css/main.css", g.B.URL + "/css/deep.css": g.A.URL + "/", g.A.URL + "/second": ""} {
				if referrers[u] != want {
					t.Errorf("the Referer of %s is %q, want %q", u, referrers[u], want)
				}
			}
		})
	}
}

// after returns a function whose nth call, and only that, calls f.
func after(n int, f func()) func(string) {
	var mu sync.Mutex
	return func(string) {
		mu.Lock()
		n--
		now := n == 0
		mu.Unlock()
		if now {
			f()
		}
	}
}

func portOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	return u.Port()
}

// archivedURLs returns the fetched URLs of a frontier whose last fetch was recorded in a WARC file, sorted.
func archivedURLs(ctx context.Context, t *testing.T, db string) (urls []string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "fetches.jsonl")
	start(t, "frontier export", "frontier", "export", "--db", db, "--what", "fetches", "--output", out).exits(ctx, 0)
	text, err := os.ReadFile(out)
	must(t, err)
	found := make(map[string]struct{})
	for line := range strings.Lines(string(text)) {
		var row struct {
			URL      string `json:"url"`
			Status   string `json:"status"`
			WARCFile string `json:"warc_file"`
		}
		must(t, json.Unmarshal([]byte(line), &row))
		if row.Status == "fetched" && row.WARCFile != "" {
			found[row.URL] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(found))
}
