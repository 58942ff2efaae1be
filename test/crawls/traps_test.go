//go:build linux

package crawls

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"fetchd/test/rig"
)

// endless is a site of fifty pages with four traps: a calendar, a path that grows, a session id that changes with each
// page, and one page under many names.
type endless struct {
	mu    sync.Mutex
	asked map[string]int // by the first segment
	n     int
}

// realPages are those that look like a trap and are none.
var realPages = []string{"/2026/11/11/x/11/", "/2011/11/11/11", "/en/en/", "/a/b/a/b/"}

func (s *endless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/robots.txt" {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	kind, _, _ := strings.Cut(r.URL.Path[1:], "/")
	s.asked[kind]++
	s.asked[r.URL.Path]++
	s.n++
	session := fmt.Sprintf("%032x", s.n)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/html")
	page := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
	switch kind {
	case "":
		page(`<a href="/cal/1">c</a><a href="/loop/">l</a><a href="/grow/">g</a><a href="/sess">s</a><a href="/same/0">m</a>`)
		for i := range 46 {
			page(`<a href="/real/%d">%d</a>`, i, i)
		}
		for _, p := range realPages {
			page(`<a href=%q>x</a>`, p)
		}
	case "cal":
		var day int
		_, _ = fmt.Sscanf(r.URL.Path, "/cal/%d", &day)
		page(`day %d <a href="/cal/%d">next</a><a href="/cal/%d">later</a>`, day, day+1, day+2)
	case "loop":
		page(`<a href="a/b/">deeper</a> the same`)
	case "grow":
		page(`%s <a href="a/b/">deeper</a>`, r.URL.Path)
	case "sess":
		page(`%s <a href="/sess?PHPSESSID=%s">s</a><a href="/sess;jsessionid=%s?x=1">s</a>`, session, session, session)
	case "same":
		page(`<a href="../same/%s">the next</a>`, "x/")
	default:
		page(`%s <a href="/">home</a>`, r.URL.Path)
	}
}

// TestTraps crawls a site with traps. Its real pages must all be fetched, and little of the traps.
func TestTraps(t *testing.T) {
	for _, postgres := range []bool{false, true} {
		t.Run(fmt.Sprintf("PostgreSQL is %v", postgres), func(t *testing.T) {
			ctx := long(t)
			s := &endless{asked: make(map[string]int)}
			origin := httptest.NewServer(s)
			defer origin.Close()
			db := filepath.Join(t.TempDir(), "frontier.db")
			if postgres {
				db = newPostgres(t).dsn()
			}
			crawl := start(t, "frontier crawl", "frontier", "crawl", "--db", db, "--delay", "0s", "--max-urls", "2000",
				"--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-port", portOf(t, origin.URL), origin.URL)
			crawl.exits(ctx, 0)
			for i := range 46 {
				s.want(t, fmt.Sprintf("/real/%d", i), 1, 1)
			}
			for _, p := range realPages {
				s.want(t, p, 1, 1)
			}
			s.want(t, "loop", 1, 3)
			s.want(t, "grow", 2, 3)
			s.want(t, "sess", 1, 10)
			s.want(t, "same", 2, 3)
			s.want(t, "cal", 1000, 2000)
			if log := crawl.log.String(); !strings.Contains(log, "many URLs differ in numbers only") || !strings.Contains(log, "/cal/#") {
				t.Errorf("the log does not warn of the calendar:\n%s", log)
			}
			s.checkStatus(ctx, t, db)
			checkWhy(ctx, t, db, origin.URL)
		})
	}
}

// want checks how often a path, or the paths of a first segment, were requested.
func (s *endless) want(t *testing.T, name string, least, most int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.asked[name]; n < least || n > most {
		t.Errorf("%s was requested %d times, want %d to %d", name, n, least, most)
	}
}

func (s *endless) checkStatus(ctx context.Context, t *testing.T, db string) {
	t.Helper()
	text, err := exec.CommandContext(ctx, rig.Program("frontier"), "status", "--db", db, "--json").Output()
	must(t, err)
	var got struct {
		Traps struct {
			Repeated     int `json:"repeated"`
			SessionIDs   int `json:"session_ids"`
			SameAsParent int `json:"same_as_parent"`
			Patterns     []struct {
				Pattern string `json:"pattern"`
				URLs    int    `json:"urls"`
			} `json:"patterns"`
		} `json:"traps"`
	}
	must(t, json.Unmarshal(text, &got))
	if g := got.Traps; g.Repeated == 0 || g.SessionIDs == 0 || g.SameAsParent == 0 || len(g.Patterns) != 1 || g.Patterns[0].Pattern != "/cal/#" {
		t.Errorf("the status has %+v", g)
	}
}

// checkWhy checks that frontier why names the rule of each trap.
func checkWhy(ctx context.Context, t *testing.T, db, origin string) {
	t.Helper()
	for _, row := range []struct {
		url  string
		want []string
	}{
		{"/grow/a/b/a/b/a/b/", []string{`"a/b" comes more than 2 times in a row`}},
		{"/sess?PHPSESSID=" + strings.Repeat("0", 32), []string{"It is the same as", "/sess"}},
		{"/loop/a/b/", []string{"the body is that of the page that links to it, sha256:"}},
		{"/cal/7", []string{"URLs of its host that differ in numbers only (/cal/#)"}},
	} {
		said, _ := exec.CommandContext(ctx, rig.Program("frontier"), "why", "--db", db, origin+row.url).CombinedOutput() // it fails if the URL is unknown
		if slices.ContainsFunc(row.want, func(part string) bool { return !strings.Contains(string(said), part) }) {
			t.Errorf("why %s does not say %q:\n%s", row.url, row.want, said)
		}
	}
}
