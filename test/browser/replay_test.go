//go:build linux

package browser

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"fetchd/test/must"
	"fetchd/test/need"
	"fetchd/test/rig"
)

// replayPage embeds a package. replaywebpage answers every request of its frame from the package.
const replayPage = `<!doctype html><style>body { margin: 0 } replay-web-page { display: block; height: 700px }</style><script src="/ui.js"></script>
<replay-web-page source="%s/crawl.wacz" url="%s/" replayBase="/replay/" embed="replayonly"></replay-web-page>`

// TestReplay crawls a page with every way to name what it needs, packs the crawl, and looks at the page in the browser, live
// and as replaywebpage shows it. The package must answer all that the live page asks for but the one URL that only a script
// names, and nothing may come from the live page.
func TestReplay(t *testing.T) {
	for _, row := range []struct {
		name string
		runs int
	}{{"a crawl", 1}, {"two crawls, of which the second has revisits", 2}} {
		t.Run(row.name, func(t *testing.T) {
			needBrowser(t)
			modules := os.Getenv("FETCHD_NODE_MODULES")
			if modules == "" {
				need.Missing(t, "run .ci/run console", "FETCHD_NODE_MODULES is not set")
			}
			g := rig.NewGallery(t)
			pack := crawlAndPack(t, g, row.runs)
			live := loads(t, g.A.URL+"/", regexp.MustCompile(`^(.*)$`), func(s map[string]int64) bool { return s[g.A.URL+"/data.json"] != 0 && s[g.A.URL+"/img/lazy.png"] != 0 })
			replayer := httptest.NewServer(replay(pack, modules, g.A.URL))
			t.Cleanup(replayer.Close)
			g.A.Close()
			g.B.Close()
			// A frame does not load a manifest, and the browser does not report how it loads the object.
			least := len(live) - 2
			replayed := loads(t, replayer.URL, regexp.MustCompile(`/replay/w/[^/]+/(?::[^/]+/)?\d*(?:\w+_)?/(http.*)$`), func(s map[string]int64) bool { return len(s) >= least })
			for u, status := range replayed {
				if answered := status == http.StatusOK || status == http.StatusPartialContent; live[u] == 0 || answered == (u == g.A.URL+"/data.json") {
					t.Errorf("%s: status %d, live %d", u, status, live[u])
				}
			}
			t.Logf("%d answered of %d", len(replayed)-1, len(live))
		})
	}
}

// crawlAndPack crawls a gallery, so many times, and returns the package.
func crawlAndPack(t *testing.T, g *rig.Gallery, runs int) string {
	t.Helper()
	ctx := rig.Long(t, 5*time.Minute)
	dir := t.TempDir()
	program, db, records, pack := filepath.Join(dir, "frontier"), filepath.Join(dir, "c.db"), filepath.Join(dir, "warc"), filepath.Join(dir, "crawl.wacz")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
	}
	run("go", "build", "-o", program, "fetchd/cmd/frontier")
	crawl := []string{"crawl", "--quiet", "--db", db, "--warc", records, "--delay", "1ms", "--egress-allow-cidr", "127.0.0.0/8"}
	for _, s := range []*httptest.Server{g.A, g.B} {
		at, err := url.Parse(s.URL)
		must.Succeed(t, err)
		crawl = append(crawl, "--egress-allow-port", at.Port())
	}
	for n := range runs {
		if n > 0 {
			run(program, "retry", "--db", db, "--fetched-before", "0s")
		}
		run(program, append(crawl, g.A.URL)...)
	}
	run(program, "export", "--db", db, "--warc", records, "--wacz", pack)
	return pack
}

// replay serves replaywebpage with a package of a page.
func replay(pack, modules, page string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, replayPage, "http://"+r.Host, page)
	})
	for path, file := range map[string]string{"/ui.js": modules + "/replaywebpage/ui.js", "/replay/sw.js": modules + "/replaywebpage/sw.js", "/crawl.wacz": pack} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Service-Worker-Allowed", "/")
			http.ServeFile(w, r, file)
		})
	}
	return mux
}

// loads opens a page and waits for responses until enough. It returns the statuses by URL of those that a pattern finds.
func loads(t *testing.T, page string, pattern *regexp.Regexp, enough func(map[string]int64) bool) map[string]int64 {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium.ctx)
	defer cancel()
	ctx, end := context.WithTimeout(ctx, 3*patience)
	defer end()
	var mu sync.Mutex
	statuses := make(map[string]int64)
	must.Succeed(t, chromedp.Listen(ctx, func(event any) {
		if e, ok := event.(*network.EventResponseReceived); ok {
			if m := pattern.FindStringSubmatch(e.Response.URL); m != nil && !strings.HasPrefix(m[1], "data:") {
				mu.Lock()
				statuses[m[1]] = e.Response.Status
				mu.Unlock()
			}
		}
	}))
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	must.Succeed(t, err)
	must.Succeed(t, chromedp.Do(ctx, chromedp.Navigate(page)))
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for done := false; !done; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			mu.Lock()
			defer mu.Unlock()
			t.Errorf("%s: only %q", page, slices.Sorted(maps.Keys(statuses)))
			return statuses
		}
		mu.Lock()
		done = enough(statuses)
		mu.Unlock()
	}
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(statuses)
}
