//go:build linux

package crawls

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/test/rig"
	"fetchd/warc"
)

// TestRecordedCrawl crawls with the fetchd inside, which records. Every outcome must name a whole
// record, and every request must have one. Two more crawls must refer to the responses of the first.
// With SQLite the first worker is killed: the requests in flight then may have no record.
func TestRecordedCrawl(t *testing.T) {
	t.Parallel()
	for name, newDatabase := range databases {
		t.Run(name, func(t *testing.T) {
			ctx := long(t)
			recordedCrawl(ctx, t, newDatabase(t), name == "sqlite")
		})
	}
}

func recordedCrawl(ctx context.Context, t *testing.T, dsn string, kill bool) {
	t.Helper()
	const hosts, pages = 8, 60
	c := newCrawl(ctx, t, dsn, 0)
	dir := filepath.Join(c.dir, "warc")
	flags := []string{"--warc", dir, "--egress-allow-cidr", "127.0.0.0/8", "--max-attempts", "1"}
	var sites []*site.Site
	var urls []string
	for range hosts { // a site is a host, because it has its own port
		s := rig.Site(t, site.Config{})
		sites = append(sites, s)
		flags = append(flags, "--egress-allow-port", strconv.Itoa(s.Port()))
		for page := range pages {
			urls = append(urls, fmt.Sprintf("http://%s/p/%d", s.Addr(), page))
		}
	}
	c.add(urls)
	requests := func() (n int) {
		for _, s := range sites {
			n += s.Count()
		}
		return n
	}
	mayLose := 0
	if kill {
		mayLose = hosts
		w := c.worker(flags...)
		rig.Until(ctx, t, "the crawl is half way", func() bool { return requests() >= hosts*pages/2 })
		w.kill()
		w.exits(ctx, -1)
		if open, err := filepath.Glob(filepath.Join(dir, "*.open")); err != nil || len(open) == 0 {
			t.Errorf("open files %q, %v after the kill; want some", open, err)
		}
	}
	c.finished(c.worker(flags...))
	c.complete()
	records := recordsIn(t, dir)
	lost := requests() - count(records, warc.Request)
	if lost < 0 || lost > mayLose {
		t.Errorf("%d requests have no record, want at most %d", lost, mayLose)
	}
	for range 2 {
		asked, had := requests(), count(records, warc.Revisit)
		c.again()
		c.finished(c.worker(flags...))
		records = recordsIn(t, dir)
		if revisits := count(records, warc.Revisit) - had; revisits != hosts*pages || requests()-asked != hosts*pages {
			t.Errorf("%d revisits and %d requests in a crawl of equal pages, want %d", revisits, requests()-asked, hosts*pages)
		}
		if now := requests() - count(records, warc.Request); now != lost {
			t.Errorf("%d requests have no record, before the last crawl %d", now, lost)
		}
	}
	for id, rec := range records {
		if to := records[rec.RefersTo]; rec.Type == warc.Revisit &&
			(to.Type != warc.Response || to.TargetURI != rec.RefersToTargetURI || !to.Date.Equal(rec.RefersToDate) || to.TargetURI != rec.TargetURI) {
			t.Errorf("%s of %s refers to %+v, want a response of that URL", id, rec.TargetURI, to)
		}
	}
	c.located(records)
	t.Logf("%d URLs three times in %.1f s: %d requests, %d records, %d requests without a record", c.urls, time.Since(c.started).Seconds(), requests(), len(records), lost)
}

// again makes all URLs pending.
func (c *crawl) again() {
	c.Helper()
	start(c.T, "frontier retry", "frontier", "retry", "--db", c.dsn, "--fetched-before", "0s").exits(c.ctx, 0)
}

// archived is a record and its file.
type archived struct {
	warc.Header
	file string
	at   int64
}

// recordsIn reads the records of a directory, by id. Every file must be whole.
func recordsIn(t *testing.T, dir string) map[string]archived {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]archived)
	for _, file := range files {
		f, err := os.Open(filepath.Join(dir, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for r := warc.NewReader(f, warc.ReaderOptions{Verify: true}); ; {
			rec, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err == nil {
				err = rec.Finish()
			}
			if err != nil || filepath.Ext(file.Name()) != ".gz" || len(rec.Problems) > 0 || rec.BlockVerdict != warc.Matches {
				t.Fatalf("%s: %+v, %v", file.Name(), rec, err)
			}
			if before, twice := all[rec.ID]; twice {
				t.Errorf("%s: the record %s is in %s too", file.Name(), rec.ID, before.file)
			}
			all[rec.ID] = archived{rec.Header, file.Name(), rec.Offset}
		}
	}
	return all
}

func count(records map[string]archived, kind warc.Type) (n int) {
	for _, r := range records {
		if r.Type == kind {
			n++
		}
	}
	return n
}

// located fails the test unless every outcome in the database names the record of its response.
func (c *crawl) located(records map[string]archived) {
	c.Helper()
	rows, err := c.db.QueryContext(c.ctx, `SELECT url, warc_file, warc_offset, warc_record_id FROM fetches`)
	if err != nil {
		c.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var url, file, id string
		var offset int64
		if err := rows.Scan(&url, &file, &offset, &id); err != nil {
			c.Fatal(err)
		}
		if r := records[id]; r.file != file || r.at != offset || r.TargetURI != url || r.Type == warc.Request {
			c.Errorf("the outcome of %s names %s at %d of %s, which is %+v", url, id, offset, file, r)
		}
	}
	if err := rows.Err(); err != nil || n != 3*c.urls {
		c.Errorf("%d outcomes, %v; want three of each URL", n, err)
	}
}
