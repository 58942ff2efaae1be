package store

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// needed returns an entry of http://a.test/x that a page needs.
func needed(kind Kind, depth int) Entry {
	return Entry{URL: "http://a.test/x", Kind: kind, Depth: depth, Need: Need{PageID: 7, Hops: 2}}
}

// TestRequisiteRows checks what a Put changes of a URL that is known: its kind, its depth, the page that needs it, and
// whether it is fetched again, at once if it is needed.
func TestRequisiteRows(t *testing.T) {
	x := Entry{URL: "http://a.test/x"}
	at := func(e Entry, depth int) Entry {
		e.Depth = depth
		return e
	}
	for _, row := range []struct {
		name         string
		first, again Entry
		between      string // what is true of the row when it is put again
		want         string // kind, depth, page, hops, status, sign of ready_at
	}{
		{"a requisite", needed(Asset, 3), needed(Asset, 1), "", "-2 3 7 2 pending -1"},
		{"an asset that is searched", needed(Asset, 3), needed(Requisite, 3), "status = 'fetched'", "-1 3 7 2 pending -1"},
		{"and the other way round", needed(Requisite, 3), needed(Asset, 3), "status = 'fetched'", "-1 3 7 2 fetched -1"},
		{"a requisite that is a page", needed(Asset, 3), at(x, 5), "", "0 5 7 2 pending -1"},
		{"it was fetched", needed(Requisite, 3), at(x, 5), "status = 'fetched', ready_at = 9", "0 5 7 2 pending 0"},
		{"it is dead", needed(Asset, 3), x, "status = 'dead', ready_at = 9", "0 0 7 2 dead 1"},
		{"it is being fetched", needed(Asset, 3), x, "status = 'fetching', ready_at = 9", "0 0 7 2 fetching 1"},
		{"a page that is needed", at(x, 5), needed(Asset, 3), "", "0 5 7 2 pending -1"},
		{"it waits for a retry", x, needed(Asset, 3), "status = 'failed', ready_at = 9", "0 0 7 2 failed 1"},
		{"it is fetched again", x, needed(Asset, 3), "fetched_at = 5, ready_at = 9", "0 0 7 2 pending 1"},
		{"it was fetched as a page", x, needed(Requisite, 3), "status = 'fetched', ready_at = 9", "0 0 7 2 fetched 1"},
		{"its type was not accepted", x, needed(Asset, 3), "status = 'dead', error_class = 'content_type', ready_at = 9", "0 0 7 2 pending -1"},
		{"it was too long for a requisite", needed(Asset, 3), at(x, 1), "status = 'dead', error_class = 'body_too_large', ready_at = 9", "0 1 7 2 pending 0"},
		{"robots.txt forbids it", x, needed(Asset, 3), "status = 'dead', error_class = 'robots_disallowed', ready_at = 9", "0 0 7 2 dead 1"},
		{"another page needs it", needed(Asset, 3), Entry{URL: x.URL, Kind: Asset, Need: Need{PageID: 8, Hops: 1}}, "status = 'dead', error_class = 'content_type'", "-2 3 7 2 dead -1"},
		{"a sitemap", needed(Asset, 3), Entry{URL: x.URL, Kind: Sitemap}, "", "1 0 7 2 pending -1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				put := func(e Entry) {
					_, err := f.Put(t.Context(), []Entry{e}, Limits{})
					must(t, err)
				}
				put(row.first)
				f.exec(`UPDATE hosts SET due_at = NULL`)
				if row.between != "" {
					f.exec(`UPDATE urls SET ` + row.between)
				}
				put(row.again)
				f.wantRow(row.want)
				if again := strings.Contains(row.between, "status") && strings.Contains(row.want, "pending"); again && f.number(`SELECT count(*) FROM hosts WHERE due_at IS NOT NULL`) == 0 {
					t.Error("the URL is pending again, and its host is not due")
				}
			})
		})
	}
}

func (f *fixture) wantRow(want string) {
	f.t.Helper()
	var kind, depth, page, hops, ready int
	var status string
	err := f.db().QueryRow(`SELECT kind, depth, page_id, hops, status, CASE WHEN ready_at < 0 THEN -1 WHEN ready_at > 0 THEN 1 ELSE 0 END FROM urls`).Scan(&kind, &depth, &page, &hops, &status, &ready)
	must(f.t, err)
	if got := fmt.Sprint(kind, depth, page, hops, " "+status+" ", ready); got != want {
		f.t.Errorf("the row is %q, want %q", got, want)
	}
}

// TestBecomesMoreMeanwhile checks outcomes of URLs that have become more than their claims say.
func TestBecomesMoreMeanwhile(t *testing.T) {
	page := Entry{URL: "http://a.test/x"}
	for _, row := range []struct {
		name         string
		first, again Entry
		fetch        Fetch
		want         Status
	}{
		{"a requisite that is a page", needed(Requisite, 0), page, Fetch{Kind: Requisite, Status: Fetched}, Pending},
		{"an asset that is searched", needed(Asset, 0), needed(Requisite, 0), Fetch{Kind: Asset, Status: Fetched}, Pending},
		{"nothing has changed", needed(Asset, 0), needed(Asset, 0), Fetch{Kind: Asset, Status: Fetched}, Fetched},
		{"it has failed", needed(Asset, 0), page, Fetch{Kind: Asset, Status: Dead}, Dead},
		{"a page that is needed", page, needed(Asset, 0), Fetch{Status: Dead, Unneeded: true}, Pending},
		{"a page that is not", page, page, Fetch{Status: Dead, Unneeded: true}, Dead},
		{"it was needed before", needed(Asset, 0), needed(Asset, 0), Fetch{Kind: Asset, Status: Dead}, Dead},
		{"a caller of the API", needed(Asset, 0), page, Fetch{Status: Fetched}, Fetched},
	} {
		t.Run(row.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				_, err := f.Put(t.Context(), []Entry{row.first}, Limits{})
				must(t, err)
				claims, err := f.Claim(t.Context(), ClaimParams{})
				must(t, err)
				_, err = f.Put(t.Context(), []Entry{row.again}, Limits{})
				must(t, err)
				row.fetch.ID, row.fetch.Token = claims[0].ID, claims[0].Token
				each, err := f.RecordFetch(t.Context(), []Fetch{row.fetch})
				must(t, err)
				must(t, each[0])
				e, err := f.Why(t.Context(), page.URL)
				if must(t, err); e.URL.Status != row.want {
					t.Errorf("the URL is %s, want %s", e.URL.Status, row.want)
				}
			})
		})
	}
}

// TestPutRequisites checks the limits, and what claims say of requisites.
func TestPutRequisites(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/", "http://b.test/known")
		ids, err := f.IDs(t.Context(), []string{"http://a.test/"})
		must(t, err)
		page := ids["http://a.test/"]
		put := func(limits RequisiteLimits, paths ...string) RequisiteResult {
			t.Helper()
			var entries []Entry
			for _, p := range paths {
				host, path, _ := strings.Cut(p, "/")
				entries = append(entries, Entry{URL: "http://" + host + ".test/" + path, Kind: Asset, Depth: 3, Parent: page, Need: Need{page, 1}})
			}
			r, err := f.PutRequisites(t.Context(), page, entries, limits)
			must(t, err)
			return r
		}
		for _, row := range []struct {
			name   string
			limits RequisiteLimits
			paths  string
			want   RequisiteResult
		}{
			{"no limit", RequisiteLimits{}, "a/1 a/1 b/known c/1", RequisiteResult{Added: 2}},
			{"of a page, without what it has", RequisiteLimits{OfPage: 4}, "a/1 a/2 a/3 a/4", RequisiteResult{Added: 1, OverPage: 2}},
			{"other hosts of a page", RequisiteLimits{PageHosts: 3}, "a/5 c/2 d/1 d/2 e/1", RequisiteResult{Added: 4, OverPageHosts: 1}},
			{"hosts of requisites: c, d, f", RequisiteLimits{Hosts: 3}, "f/1 f/2 g/1 c/3 h/1", RequisiteResult{Added: 3, OverHosts: 2}},
			{"URLs, of which no host is added", RequisiteLimits{URLs: 12}, "a/6 i/7 a/1", RequisiteResult{Added: 0, Over: 2}},
			{"so it does not count", RequisiteLimits{Hosts: 4}, "i/1 j/1", RequisiteResult{Added: 1, OverHosts: 1}},
		} {
			if got := put(row.limits, strings.Fields(row.paths)...); got != row.want {
				t.Errorf("%s: %+v, want %+v", row.name, got, row.want)
			}
		}
		for _, row := range []struct {
			url    string
			limits RequisiteLimits
			want   bool
		}{
			{"http://a.test/y", RequisiteLimits{OfPage: 1, PageHosts: 1, Hosts: 1}, true}, {"http://c.test/y", RequisiteLimits{PageHosts: 1, Hosts: 1}, true},
			{"http://k.test/y", RequisiteLimits{PageHosts: 4}, false}, {"http://k.test/y", RequisiteLimits{Hosts: 4}, false}, {"http://k.test/y", RequisiteLimits{Hosts: 5}, true},
			{"http://l.test/y", RequisiteLimits{Hosts: 5}, false}, {"http://[", RequisiteLimits{}, false},
		} {
			if ok, err := f.AllowRequisite(t.Context(), page, row.url, row.limits); err != nil || ok != row.want {
				t.Errorf("AllowRequisite(%s, %+v) = %t, %v", row.url, row.limits, ok, err)
			}
		}
		_, err = f.PutRequisites(t.Context(), 99, []Entry{{URL: "http://z.test/", Kind: Asset, Need: Need{99, 1}}}, RequisiteLimits{OfPage: 1, PageHosts: 1})
		must(t, err) // the page was deleted
		urls, err := f.URLsOf(t.Context(), []int64{page, 1 << 40})
		if must(t, err); len(urls) != 1 || urls[page] != "http://a.test/" {
			t.Errorf("URLsOf = %v", urls)
		}
		claims, err := f.Claim(t.Context(), ClaimParams{Limit: 100})
		must(t, err)
		for _, c := range claims {
			if (c.Kind == Asset) != (c.Host != "b.test") || c.Host == "c.test" && (c.Need != Need{page, 1} || c.Parent != page || c.Depth != 3) {
				t.Errorf("claimed %+v", c)
			}
		}
	})
}

// TestOrderOfRequisites checks that those of the last page are claimed first, and before pages.
func TestOrderOfRequisites(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/page")
		var many []Entry
		for i := range 1000 {
			many = append(many, Entry{URL: fmt.Sprintf("http://b.test/%03d", i), Kind: Asset, Need: Need{9, 1}})
		}
		_, err := f.PutRequisites(t.Context(), 9, many, RequisiteLimits{})
		must(t, err)
		if n := f.number(`SELECT count(DISTINCT ready_at) FROM urls WHERE ready_at < 0`); n != 1 {
			t.Errorf("the requisites of a document have %d places in the queue, want one, in which their order counts", n)
		}
		f.exec(`UPDATE hosts SET paused = TRUE WHERE host = 'b.test'`)
		for i, name := range []string{"first", "second", "third"} {
			_, err := f.PutRequisites(t.Context(), int64(i+10), []Entry{{URL: "http://a.test/" + name, Kind: Asset, Need: Need{int64(i + 10), 1}}}, RequisiteLimits{})
			must(t, err)
			f.exec(`UPDATE urls SET ready_at = ready_at + 1 WHERE ready_at < 0`) // a millisecond ago
		}
		zero := time.Duration(0)
		must(t, f.SetHost(t.Context(), "a.test", HostParams{Delay: &zero}))
		var got string
		for range 4 {
			f.exec(`UPDATE hosts SET next_at = 0, due_at = 0`)
			claims, err := f.Claim(t.Context(), ClaimParams{})
			must(t, err)
			got += " " + strings.TrimPrefix(claims[0].URL, "http://a.test/")
			_, err = f.RecordFetch(t.Context(), []Fetch{{ID: claims[0].ID, FetchedParams: FetchedParams{Token: claims[0].Token}, Status: Fetched}})
			must(t, err)
		}
		if want := " third second first page"; got != want {
			t.Errorf("claimed%s, want%s", got, want)
		}
	})
}
