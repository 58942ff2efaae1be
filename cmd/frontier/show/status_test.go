package show

import (
	"database/sql"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"fetchd/frontier/store"
	"fetchd/test/must"
)

// newFrontier returns a database with URLs, a function that changes it with SQL, and one that reads its status.
func newFrontier(t *testing.T, urls ...string) (s store.Store, exec func(query string), read func() *Status) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "frontier.db")
	s, err := store.Open(t.Context(), file, store.Config{Delay: time.Hour})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = s.Close() }) // nothing is left to lose
	if _, err := s.Put(t.Context(), store.Entries(urls...), store.Limits{}); err != nil {
		t.Fatal(err)
	}
	exec = func(query string) {
		t.Helper()
		db, err := sql.Open("sqlite", file)
		must.Succeed(t, err)
		defer db.Close()
		if _, err := db.ExecContext(t.Context(), query); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	return s, exec, func() *Status {
		t.Helper()
		n, err := ReadStatus(t.Context(), s, false)
		must.Succeed(t, err)
		return &n
	}
}

// TestStatusWaits checks that status says what URLs wait for, and names origins whose robots.txt is unreachable.
func TestStatusWaits(t *testing.T) {
	t.Parallel()
	s, exec, read := newFrontier(t, "http://a.test/", "https://a.test/1", "https://a.test/2", "https://b.test/")
	if got := read().Table(); strings.Contains(got, "unreachable") || !strings.Contains(got, "  turn                4  for a worker, ") {
		t.Errorf("status of URLs that are due:\n%s", got)
	}
	for _, r := range []store.Robots{
		{Origin: "https://a.test", ErrorClass: "connect_refused", ErrorText: "the connection was refused; 127.0.0.1:443\x1b.", Unreachable: true},
		{Origin: "https://b.test", Status: 503, Unreachable: true},
		{Origin: "https://c.test", Status: 404},
	} {
		must.Succeed(t, s.SaveRobots(t.Context(), r))
		if r.Unreachable {
			must.Succeed(t, s.Defer(t.Context(), r.Origin, 100*time.Hour))
		}
	}
	exec(`UPDATE robots SET unreachable_since = unreachable_since - 261000000 WHERE origin = 'https://a.test'`)
	got := read()
	text := got.Table()
	for _, want := range []string{"  robots.txt          3  for the robots.txt of their origin, which is unreachable\n", "  turn                1  for a worker",
		"Origins whose robots.txt is unreachable: 2\n  https://a.test  2 URLs, unreachable for 3d0h, tried again in 4d3h: connect_refused: the connection was refused; 127.0.0.1:443\\x1b\n" +
			"  https://b.test  1 URL, unreachable for "} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
	if w, o := got.Waiting, got.Origins; len(w) != len(waits) || w["robots_unreachable"] != 3 || w["its_turn"] != 1 || o.Deferred != 2 || len(o.First) != 2 || o.First[0].Cause != "connect_refused" || o.First[1].Cause != "status 503" {
		t.Errorf("waiting %v, origins %+v, want 3 URLs of 2 origins and one whose turn it is", w, o)
	}
	for _, w := range waits {
		if _, known := got.Waiting[w.code]; !known {
			t.Errorf("waits has %s, which the store does not count", w.code)
		}
	}
}

// TestStatusWorkers checks that status names workers, and says which have vanished.
func TestStatusWorkers(t *testing.T) {
	t.Parallel()
	s, exec, read := newFrontier(t, "http://a.test/", "http://b.test/", "http://c.test/")
	if got := read().Table(); strings.Contains(got, "Workers") {
		t.Errorf("status of a crawl without workers names some:\n%s", got)
	}
	for _, name := range []string{"idle", "gone\x1b", "gone, and held nothing", ""} {
		must.Succeed(t, s.WorkerSeen(t.Context(), name, "", true))
	}
	for name, n := range map[string]int{"gone\x1b": 2, "old": 1} {
		if _, err := s.Claim(t.Context(), store.ClaimParams{Worker: name, Limit: n, Lease: 100 * time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	exec(`UPDATE workers SET started_at = started_at - 10800000, seen_at = seen_at - CASE WHEN name LIKE 'gone%' THEN 7200000 ELSE 0 END`)
	state := read()
	_, got, _ := strings.Cut(state.Table(), "Workers\n")
	diff(t, "workers", `  (no name)               started 3h ago
  gone\x1b                vanished: last seen 2h ago, holds 2 URLs until the last lease ends in 4d
  gone, and held nothing  vanished: last seen 2h ago
  idle                    started 3h ago
  old                     holds 1 URL
`, regexp.MustCompile(`([0-9]+[dh])[0-9dhms]+`).ReplaceAllString(got, "$1"))
	if w := state.Workers; len(w) != 5 || w[1].Name != "gone\x1b" || !w[1].Vanished || w[1].Claims != 2 || w[4].Vanished || !w[4].SeenAt.IsZero() {
		t.Errorf("workers %+v, want 5, of which gone has vanished with 2 claims, and old was never seen", state.Workers)
	}
}
