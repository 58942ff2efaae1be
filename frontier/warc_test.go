package frontier

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/fetch"
	"fetchd/frontier/store"
	"fetchd/server"
	"fetchd/server/fetchdtest"
	"fetchd/warc"
)

// recordRig is a rig whose crawls are recorded.
type recordRig struct {
	*rig
	dir     string
	visits  int                    // at the site before the last crawl
	records map[string]warc.Record // every record so far, by id
	crawled map[string]int         // the crawl of a record, by id
	crawls  int
}

// in returns r for a subtest.
func (r *recordRig) in(t *testing.T) *recordRig {
	c := *r
	c.rig = r.rig.in(t)
	return &c
}

func newRecordRig(t *testing.T, cfg site.Config) *recordRig {
	t.Helper()
	r := &recordRig{rig: newRig(t, time.Millisecond, cfg), dir: filepath.Join(t.TempDir(), "warc"), records: map[string]warc.Record{}, crawled: map[string]int{}}
	r.config.RecordStore, r.config.IgnoreRobots, r.config.MaxAttempts, r.config.Policy.MaxURLRetries = "crawl", false, 2, 0
	return r
}

// record crawls with a new service, and reads its records when the service has ended.
func (r *recordRig) record() {
	r.Helper()
	file := filepath.Join(r.TempDir(), "stores.yaml")
	must(r, os.WriteFile(file, fmt.Appendf(nil, `stores: {crawl: {url: "warc+file://%s"}}`, r.dir), 0o600))
	s, err := fetchdtest.New(fetchdtest.Options{NoOrigin: true, InMemory: true, StoresFile: file, Configure: func(c *server.Config) {
		c.Fetch.Resolver = r.site.Resolver()
		c.Fetch.Egress = fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: []uint16{uint16(r.site.Port())}}
	}})
	must(r, err)
	r.visits = r.site.Count()
	r.crawls++
	r.crawl((&fetchd{s}).as("inside"))
	must(r, s.Close())
	r.read()
}

// read reads every record, and checks its digests.
func (r *recordRig) read() {
	r.Helper()
	files, err := filepath.Glob(filepath.Join(r.dir, "*.warc.gz"))
	if open, _ := filepath.Glob(filepath.Join(r.dir, "*.open")); err != nil || len(files) == 0 || len(open) > 0 {
		r.Fatalf("files %q, %q, %v; want whole ones", files, open, err)
	}
	for _, file := range files {
		f, err := os.Open(file)
		must(r, err)
		defer f.Close()
		records := warc.NewReader(f, warc.ReaderOptions{Verify: true})
		for {
			rec, err := records.Next()
			if err == io.EOF { //nolint:errorlint // as documented
				break
			}
			if err == nil {
				err = rec.Finish()
			}
			if err != nil || len(rec.Problems) > 0 || rec.BlockVerdict == warc.Differs || rec.PayloadVerdict == warc.Differs {
				r.Fatalf("%s: %+v, %v", file, rec, err)
			}
			if _, known := r.records[rec.ID]; !known {
				r.records[rec.ID], r.crawled[rec.ID] = *rec, r.crawls
			}
		}
	}
	r.references()
}

// references checks that each revisit refers to a response of an earlier crawl.
func (r *recordRig) references() {
	r.Helper()
	for id, rec := range r.records {
		if rec.Type != warc.Revisit {
			continue
		}
		to, known := r.records[rec.RefersTo]
		if !known || to.Type != warc.Response || to.TargetURI != rec.RefersToTargetURI || !to.Date.Equal(rec.RefersToDate) || r.crawled[to.ID] >= r.crawled[id] {
			r.Errorf("%s of %s refers to %s, %s, %v, which is %+v; want an earlier response", id, rec.TargetURI, rec.RefersTo, rec.RefersToTargetURI, rec.RefersToDate, to.Header)
		}
	}
}

// requested compares the requests that the last crawl has recorded with the log of the site.
func (r *recordRig) requested() {
	r.Helper()
	want, got := map[string]int{}, map[string]int{}
	for _, v := range r.site.Visits()[r.visits:] {
		want[fmt.Sprintf("http://%s:%d%s", v.Host, r.site.Port(), v.Path)]++
	}
	for id, rec := range r.records {
		if rec.Type == warc.Request && r.crawled[id] == r.crawls {
			got[rec.TargetURI]++
		}
	}
	if !maps.Equal(got, want) {
		r.Errorf("crawl %d: recorded requests %v, want those of the site, %v", r.crawls, got, want)
	}
}

// kinds returns the types and profiles of the responses of a URL, by crawl.
func (r *recordRig) kinds(url string) (kinds []string) {
	for id, rec := range r.records {
		if rec.TargetURI == url && rec.Type != warc.Request {
			_, profile, _ := strings.Cut(rec.Profile, "/revisit/")
			kinds = append(kinds, strings.TrimSpace(fmt.Sprintf("%d %s %s", r.crawled[id], rec.Type, profile)))
		}
	}
	slices.Sort(kinds)
	return kinds
}

// located checks that each outcome of the last crawl names the record of its response.
func (r *recordRig) located(outcomes int, without ...string) {
	r.Helper()
	all := r.recorded()
	for _, rec := range all[outcomes:] {
		got, known := r.records[rec.WARCRecordID]
		if !known {
			if rec.WARCRecordID != "" || rec.WARCFile != "" || !slices.Contains(without, rec.URL) {
				r.Errorf("%+v: no record", rec)
			}
			continue
		}
		last := rec.URL
		if rec.FinalURL != "" {
			last = rec.FinalURL
		}
		if got.TargetURI != last || got.Offset != rec.WARCOffset || got.Length != rec.WARCLength || string(got.PayloadDigest) != rec.WARCPayloadDigest ||
			got.Date.Format(time.RFC3339Nano) != rec.WARCDate || r.crawled[got.ID] != r.crawls || got.Type == warc.Request {
			r.Errorf("%+v names the record %+v", rec, got)
		}
		if _, err := os.Stat(filepath.Join(r.dir, rec.WARCFile)); err != nil {
			r.Error(err)
		}
	}
}

// TestRecordedCrawls crawls three times. Every request is recorded, and equal responses refer to
// those of the first crawl.
func TestRecordedCrawls(t *testing.T) {
	t.Parallel()
	r := newRecordRig(t, site.Config{Robots: func(string) (int, string) { return 200, "User-agent: *\nDisallow: /forbidden\n" }})
	at := r.site.URL
	here, there := at("b", "/go/302/2?to=%2Fp%2F2"), at("b", "/go/302/3?to="+at("d", "/p/3"))
	broken, silent, forbidden := at("c", "/s/cut/200:size=5000,cut=1000"), at("c", "/s/silent/reset"), at("a", "/forbidden")
	r.add(at("a", "/p/1"), at("a", "/s/same/200:size=2000"), at("a", "/s/chunked/200:size=200000,chunked"), at("a", "/s/changes/200:size=100/200:size=101/200:size=102"),
		at("a", "/s/retry/503/200:size=100"), at("a", "/s/empty/204"), here, there, broken, silent, at("c", "/missing"), forbidden)
	for range 3 {
		outcomes := len(r.recorded())
		r.record()
		r.requested()
		r.located(outcomes, silent, forbidden)
		if _, err := r.store.RetryFailed(t.Context(), "", "", nil); err != nil { // robots.txt is fetched again
			t.Fatal(err)
		}
		if _, err := r.store.Refetch(t.Context(), 0, "", nil); err != nil {
			t.Fatal(err)
		}
	}
	responses := []string{"1 response", "2 response", "3 response"}
	equal := []string{"1 response", "2 revisit identical-payload-digest", "3 revisit identical-payload-digest"}
	for _, row := range []struct {
		name, url string
		want      []string
	}{
		{"not modified", at("a", "/p/1"), []string{"1 response", "2 revisit server-not-modified", "3 revisit server-not-modified"}},
		{"equal", at("a", "/s/same/200:size=2000"), equal},
		{"equal in chunks", at("a", "/s/chunked/200:size=200000,chunked"), equal},
		{"changed each time", at("a", "/s/changes/200:size=100/200:size=101/200:size=102"), responses},
		{"equal, after a retry", at("a", "/s/retry/503/200:size=100"), append([]string{"1 response"}, equal...)},
		{"empty", at("a", "/s/empty/204"), responses},
		{"robots.txt", at("a", "/robots.txt"), equal},
		{"a redirect to the same host", at("b", "/p/2?via=r"), []string{"1 response", "2 revisit server-not-modified", "3 revisit server-not-modified"}},
		{"a redirect to another host", at("d", "/p/3?via=r"), []string{"1 response", "2 revisit server-not-modified", "3 revisit server-not-modified"}},
		{"the redirect itself", here, []string{"1 response"}}, // the URL is then that of the target
		{"a failed status", at("c", "/missing"), responses},
		{"a broken response", broken, slices.Sorted(slices.Values(append(slices.Clone(responses), responses...)))},
		{"no response", silent, nil},
		{"forbidden", forbidden, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			if got := r.kinds(row.url); !slices.Equal(got, row.want) {
				t.Errorf("%s: %q, want %q", row.url, got, row.want)
			}
		})
	}
}

// TestRecordAfterGap checks that a response refers to no record if the content was fetched without a
// record since, because a 304 would then be about other content.
func TestRecordAfterGap(t *testing.T) {
	t.Parallel()
	r := newRecordRig(t, site.Config{})
	u := r.site.URL("a", "/p/1")
	r.add(u)
	again := func() {
		if _, err := r.store.Refetch(t.Context(), 0, "", nil); err != nil {
			t.Fatal(err)
		}
	}
	r.record()
	again()
	r.config.RecordStore = ""
	r.config.Bodies = new(shelf) // so that the request is not conditional
	r.crawl()
	r.config.Bodies = nil
	again()
	r.config.RecordStore = "crawl"
	r.record()
	if got, want := r.kinds(u), []string{"1 response", "2 response"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, rec := range r.recorded() {
		if rec.Status != string(store.Fetched) {
			t.Errorf("%+v, want it fetched", rec)
		}
	}
}
