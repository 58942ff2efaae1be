package store

import (
	"testing"
	"time"
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
				fetch := Fetch{ID: c.ID, Status: Fetched, FetchedParams: FetchedParams{Token: c.Token, Bytes: 100, Duration: time.Second}}
				if c.Host == "b.test" {
					fetch = Fetch{ID: c.ID, Status: Failed, ErrorClass: "x", FetchedParams: FetchedParams{Token: c.Token, Bytes: 7, Duration: time.Minute}}
				}
				f.mustRecord(fetch)
			}
			f.put("http://a.test/2")
			f.openHosts()
			f.exec(`UPDATE urls SET ready_at = 0`) // the failed one is ready a millisecond later
		}
		for host, want := range map[string]Use{
			"a.test": {Bytes: 200, Duration: 2 * time.Second},
			"b.test": {Bytes: 14, Duration: 2 * time.Minute},
			"c.test": {},
		} {
			if got, err := f.HostUse(t.Context(), host); err != nil || got != want {
				t.Errorf("HostUse(%s) = %+v, %v; want %+v", host, got, err, want)
			}
		}
		if got, err := f.TotalUse(t.Context()); err != nil || got.Bytes != 214 || got.Duration != 122*time.Second {
			t.Errorf("TotalUse = %+v, %v", got, err)
		}
	})
}
