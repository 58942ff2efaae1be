package store

import (
	"testing"
)

func TestSettings(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		check := func(name, want string) {
			t.Helper()
			if got, err := f.Setting(t.Context(), name); err != nil || got != want {
				t.Errorf("Setting(%s) = %q, %v; want %q", name, got, err, want)
			}
		}
		set := func(name, value string) {
			t.Helper()
			must(t, f.SetSetting(t.Context(), name, value))
		}
		check("crawl", "")
		set("crawl", `{"a": "ü"}`)
		set("other", "x")
		check("crawl", `{"a": "ü"}`)
		set("crawl", "")
		check("crawl", "")
		check("other", "x")
		for _, n := range []int64{3, 4} {
			must(t, f.AddToSetting(t.Context(), "sum", n))
		}
		check("sum", "7")
		set("paused", "true") // not the store's own setting
		if n, err := f.Counts(t.Context()); err != nil || n.Paused {
			t.Errorf("Counts = %+v, %v", n, err)
		}
	})
}

// TestUse checks the sums of a host and of all hosts. Every outcome counts, also that of a failure.
func TestUse(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/1", "http://b.test/1")
		for range 2 {
			for _, c := range f.claim(2) {
				fetch := Fetch{ID: c.ID, Status: Fetched, FetchedParams: FetchedParams{Token: c.Token, Bytes: 100}}
				if c.Host == "b.test" {
					fetch = Fetch{ID: c.ID, Status: Failed, ErrorClass: "x", FetchedParams: FetchedParams{Token: c.Token, Bytes: 7}}
				}
				f.mustRecord(fetch)
			}
			f.put("http://a.test/2")
			f.openHosts()
			f.exec(`UPDATE urls SET ready_at = 0`) // the failed one is ready a millisecond later
		}
		for host, want := range map[string]int64{
			"a.test": 200,
			"b.test": 14,
			"c.test": 0,
		} {
			if got, err := f.HostBytes(t.Context(), host); err != nil || got != want {
				t.Errorf("HostBytes(%s) = %d, %v; want %d", host, got, err, want)
			}
		}
		if got, err := f.TotalBytes(t.Context()); err != nil || got != 214 {
			t.Errorf("TotalBytes = %d, %v", got, err)
		}
	})
}
