//go:build linux

package warc

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fetchd/client"
	"fetchd/cmd/frontier/site"
	"fetchd/frontier"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/must"
	"fetchd/test/rig"
)

// faults are the pages of a crawl that are not plain ones. %d is the number of the page.
var faults = []string{
	"/s/%d/200:size=3000,chunked",
	"/s/%d/200:size=70000,chunked,trailers",
	"/s/%d/200:size=200000",
	"/s/%d/200:size=2000,no-length",
	"/s/%d/200:size=5000,coding=gzip",
	"/s/%d/200:size=0",
	"/s/%d/204",
	"/s/%d/404:body=gone",
	"/s/%d/410",
	"/s/%d/503/200:size=100",
	"/s/%d/429:retry-after=0/200:size=100",
	"/s/%d/200:size=900,early=103,early-count=2",
	"/s/%d/reset/200:size=100",
	"/s/%d/reset:at=in-body,after=500/200:size=100",
	"/s/%d/200:size=100000,cut=80000/200:size=100",
	"/s/%d/200:size=5000,cut=1000,how=rst/200:size=5000",
	"/s/%d/fin/200:size=10",
	"/s/%d/garbage",
	"/s/%d/bad-status-line",
	"/s/%d/bad-header",
	"/s/%d/200:size=100,chunk-fault=bad-size/200:size=50",
	"/s/%d/200:size=100,chunk-fault=no-last/200:size=50",
	"/s/%d/302:to=%%2Fp%%2F%[1]d%%3Fvia=r",
	"/s/%d/301:to=%%2Fs%%2Fto%[1]d%%2F200:size=40%%3Fvia=r,body=moved",
	"/s/%d/200:head-size=30000,size=10",
	"/s/%d/200:set-cookie=a%%3Db,size=10",
}

// pages returns n URLs of a site, every third of them with a fault.
func pages(s *site.Site, n int) []string {
	urls := make([]string, n)
	for i := range urls {
		path := fmt.Sprintf("/p/%d", i)
		if i%3 == 0 {
			path = fmt.Sprintf(faults[i/3%len(faults)], i)
		}
		urls[i] = s.URL(fmt.Sprintf("h%d", i%50), path)
	}
	return urls
}

// resolving returns the flags with which a fetchd reaches a site.
func resolving(s *site.Site) []string {
	return []string{"--egress-resolver", s.NameServer(), "--egress-allow-port", strconv.Itoa(s.Port())}
}

// requests returns a request for each URL.
func requests(urls []string) iter.Seq[*pb.FetchRequest] {
	return func(yield func(*pb.FetchRequest) bool) {
		for _, u := range urls {
			if !yield(request(u)) {
				return
			}
		}
	}
}

// fetchAll fetches URLs over FetchMany.
func (s *service) fetchAll(ctx context.Context, urls []string) {
	s.Helper()
	for result, err := range s.client.Many(ctx, requests(urls), client.ManyOptions{Open: 32}) {
		if result == nil || result.Outcome == nil {
			s.Fatalf("no outcome: %v", err)
		}
	}
}

// stopped stops the service and returns its files in dir.
func (s *service) stopped(dir string) []string {
	s.Helper()
	s.Stop()
	if open := openFiles(s.T, dir); len(open) > 0 {
		s.Errorf("fetchd has stopped and left %q", open)
	}
	return wholeFiles(s.T, dir)
}

// TestCrawl crawls a site with faults twice through a fetchd. The records must be those that the
// outcomes name, with each request that the site has received, and the second crawl must not store
// what has not changed.
func TestCrawl(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, 5*time.Minute)
	o, dir := rig.Site(t, site.Config{}), t.TempDir()
	urls := pages(o, rig.Pick("FETCHD_WARC", 2000, 20_000))
	s := start(ctx, t, entry{URL: "warc+file://" + dir, MaxFileBytes: 500_000}, resolving(o)...)
	work := t.TempDir()
	list, db, lines := filepath.Join(work, "urls"), filepath.Join(work, "frontier.db"), filepath.Join(work, "outcomes.jsonl")
	must.Succeed(t, os.WriteFile(list, []byte(strings.Join(urls, "\n")), 0o600))
	crawl := []string{"crawl", "--db", db, "--server", s.GRPC, "--warc", "archive", "--outcomes", lines, "--delay", "1ms",
		"--accept", "any", "--max-url-retries", "0", "--quiet"}
	for _, args := range [][]string{{"add", "--db", db, "--input", list}, crawl, {"retry", "--db", db, "--fetched-before", "0s"}, crawl} {
		if out, faults, err := run(ctx, t, rig.Program("frontier"), args...); err != nil {
			t.Fatalf("frontier %s: %v\n%s%.2000s", args[0], err, out, faults)
		}
	}
	files := s.stopped(dir)
	records := newChecker(t).read(ctx, t, files...)
	wantRequests(t, o, records)
	kinds := make(map[string]int)
	for _, r := range records {
		kinds[r.Type]++
	}
	wantLines(t, lines, records)
	rig.AtLeast(t, "files", len(files), 3)
	rig.AtLeast(t, "revisits", kinds["revisit"], len(urls)/2)
	t.Logf("%d pages, %d requests: %d files with %v", len(urls), o.Count(), len(files), kinds)
}

// wantLines checks that each outcome of a crawl names the last response of its fetch.
func wantLines(t *testing.T, file string, records []record) {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	byID := make(map[string]record)
	for _, r := range records {
		byID[r.ID] = r
	}
	named := 0
	for line := range strings.Lines(string(text)) {
		var out frontier.Record
		must.Succeed(t, json.Unmarshal([]byte(line), &out))
		if out.WARCRecordID == "" {
			if out.HTTPStatus != 0 {
				t.Errorf("an outcome with a response names no record: %s", line)
			}
			continue
		}
		named++
		r, ok := byID[out.WARCRecordID]
		if !ok || r.Type == "request" || r.File != out.WARCFile || r.Offset != out.WARCOffset || r.Length != out.WARCLength ||
			r.field("WARC-Payload-Digest") != out.WARCPayloadDigest {
			t.Errorf("the record is %+v, but the outcome is %s", r, line)
		}
	}
	rig.AtLeast(t, "outcomes that name a record", named, len(records)/4)
}

// wantRequests compares the requests of the records with those that the site has received.
func wantRequests(t *testing.T, o *site.Site, records []record) {
	t.Helper()
	received, recorded := make(map[string]int), make(map[string]int)
	for _, v := range o.Visits() {
		received[v.Method+" "+v.Host+" "+v.Path]++
	}
	for _, r := range records {
		if r.Type != "request" {
			continue
		}
		u, err := url.Parse(r.URI)
		must.Succeed(t, err)
		method, rest, _ := strings.Cut(r.Start, " ")
		path, _, _ := strings.Cut(rest, " ")
		recorded[method+" "+u.Hostname()+" "+path]++
		if path != u.RequestURI() {
			t.Errorf("the request for %q has the path %q", r.URI, path)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(received)) {
		if recorded[key] != received[key] {
			t.Errorf("%s was received %d times and recorded %d times", key, received[key], recorded[key])
		}
		delete(recorded, key)
	}
	for key, n := range recorded {
		t.Errorf("%s was recorded %d times and never received", key, n)
	}
}
