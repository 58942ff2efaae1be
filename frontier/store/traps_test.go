package store

import (
	"fmt"
	"testing"
)

// TestTwins checks which pages count as equal: those of the same host, and of one digest.
func TestTwins(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		const digest = -7
		record := func(url string, parent int64, digest int64) Claim {
			t.Helper()
			_, err := f.Put(t.Context(), []Entry{{URL: url, Parent: parent, Linked: parent != 0}}, Limits{})
			must(t, err)
			f.exec(`UPDATE hosts SET next_at = 0, due_at = 0`) // no delay
			c := f.claim(1)[0]
			if c.URL != url {
				t.Fatalf("claimed %s, want %s", c.URL, url)
			}
			f.mustRecord(Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token, HTTPStatus: 200, Attempts: 1}, Status: Fetched, Digest: digest})
			return c
		}
		check := func(c Claim, digest int64, want Twins) {
			t.Helper()
			got, err := f.Twins(t.Context(), c, digest, 2)
			if err != nil || got != want {
				t.Errorf("twins of %s: %+v, %v; want %+v", c.URL, got, err, want)
			}
		}
		first := record("http://a.test/", 0, digest)
		check(first, digest, Twins{})
		child := record("http://a.test/child", first.ID, digest)
		check(child, digest, Twins{Linked: true, Parent: true, Others: 1})
		check(child, digest+1, Twins{Linked: true})
		other := record("http://b.test/", first.ID, digest)
		check(other, digest, Twins{Linked: true})
		for n := range 3 {
			record(fmt.Sprintf("http://a.test/%d", n), 0, digest)
		}
		check(child, digest, Twins{Linked: true, Parent: true, Others: 2})
		check(other, 0, Twins{Linked: true})
	})
}

// TestPatterns checks that the counts of workers are added up, by host and pattern.
func TestPatterns(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		for _, row := range []struct {
			host, pattern string
			urls, total   int64
		}{{"a.test", "/cal/#", 100, 100}, {"a.test", "/cal/#", 100, 200}, {"b.test", "/cal/#", 100, 100}, {"a.test", "/x/#", 100, 100}} {
			if total, err := f.AddPattern(t.Context(), Pattern{row.host, row.pattern, row.urls}); err != nil || total != row.total {
				t.Errorf("AddPattern(%+v) = %d, %v", row, total, err)
			}
		}
		if n, err := f.Pattern(t.Context(), "c.test", "/cal/#"); err != nil || n != 0 {
			t.Errorf("an unknown pattern has %d URLs, %v", n, err)
		}
		if all, err := f.Patterns(t.Context(), 150, 10); err != nil || len(all) != 1 || all[0] != (Pattern{"a.test", "/cal/#", 200}) {
			t.Errorf("Patterns = %+v, %v", all, err)
		}
	})
}
