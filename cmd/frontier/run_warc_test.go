package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/wacz"
	"fetchd/server"
	"fetchd/server/fetchdtest"
	"fetchd/test/rig"
	"fetchd/warc"
)

// recordAt reads the record at an offset of a file.
func recordAt(t *testing.T, file string, offset int64) *warc.Record {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	if _, err := f.Seek(offset, 0); err != nil {
		t.Fatal(err)
	}
	rec, err := warc.NewReader(f, warc.ReaderOptions{Offset: offset}).Next()
	if err != nil {
		t.Fatalf("%s at %d: %v", file, offset, err)
	}
	return rec
}

// outcomesIn returns the outcomes in lines of JSON.
func outcomesIn(t *testing.T, lines string) (all []frontier.Record) {
	t.Helper()
	for line := range strings.Lines(lines) {
		var r frontier.Record
		must(t, json.Unmarshal([]byte(line), &r))
		all = append(all, r)
	}
	return all
}

// TestRecords records crawls in every kind of place.
func TestRecords(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		flags func(dir, stores string) []string
	}{
		{"a directory", func(dir, _ string) []string { return []string{"--warc", dir} }},
		{"a URL", func(dir, _ string) []string { return []string{"--warc", "warc+file://" + dir} }},
		{"a store", func(_, stores string) []string { return []string{"--warc", "crawl", "--stores-file", stores} }},
		{"a store, and bodies in another", func(_, stores string) []string {
			return []string{"--warc", "crawl", "--stores-file", stores, "--bodies", "pages"}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, site.Config{})
			c := newCrawl(t, at(s, "/p/1"), at(s, "/nothing"), at(s, "/s/reset/reset"))
			dir := filepath.Join(t.TempDir(), "warc")
			stores := filepath.Join(t.TempDir(), "stores.yaml")
			// The callers are those of a fetchd.
			must(t, os.WriteFile(stores, fmt.Appendf(nil, `stores: {crawl: {url: "warc+file://%s", callers: [other]}, pages: {url: "file://%s/pages"}}`, dir, t.TempDir()), 0o600))
			flags := append(tt.flags(dir, stores), "--outcomes", "-", "--max-url-retries", "0", "--max-attempts", "1")
			for _, kind := range []warc.Type{warc.Response, warc.Revisit} {
				got := c.run(inside(s.Port()), flags...)
				if got.code != cli.ExitOK {
					t.Fatalf("exit status %d, %s", got.code, got.err)
				}
				names := files(t, dir)
				for name := range names {
					if !strings.HasSuffix(name, ".warc.gz") {
						t.Errorf("%s after the end, want whole files only", name)
					}
				}
				exported := c.must("export", "--what", "fetches")
				for _, r := range outcomesIn(t, got.out) {
					if strings.Contains(r.URL, "reset") {
						if r.WARCFile != "" || r.WARCRecordID != "" {
							t.Errorf("%+v: a record of no response", r)
						}
						continue
					}
					rec := recordAt(t, filepath.Join(dir, r.WARCFile), r.WARCOffset)
					want := kind
					if r.Status != "fetched" {
						want = warc.Response
					}
					if rec.ID != r.WARCRecordID || rec.TargetURI != r.URL || rec.Type != want {
						t.Errorf("%+v names %+v, want the %s of the URL", r, rec.Header, want)
					}
					if row := fmt.Sprintf(`"warc_file":%q,"warc_offset":%d,"warc_length":%d,"warc_record_id":%q`, r.WARCFile, r.WARCOffset, r.WARCLength, r.WARCRecordID); !strings.Contains(exported, row) {
						t.Errorf("export has no %s:\n%s", row, exported)
					}
				}
				c.must("retry", "--fetched-before", "0s")
				c.must("retry")
			}
		})
	}
}

// TestRecordsOfAnotherService names the stores of the fetchd of --server.
func TestRecordsOfAnotherService(t *testing.T) {
	t.Parallel()
	s := startSite(t, site.Config{})
	dir := t.TempDir()
	stores := filepath.Join(dir, "stores.yaml")
	must(t, os.WriteFile(stores, fmt.Appendf(nil, `stores: {crawl: {url: "warc+file://%s/warc"}, pages: {url: "file://%s/pages"}}`, dir, dir), 0o600))
	service := fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, StoresFile: stores, Configure: func(c *server.Config) {
		c.Fetch.Egress.AllowPorts = []uint16{uint16(s.Port())} //nolint:gosec // a port
	}})
	for _, tt := range []struct {
		name, warc string
		told       string
	}{
		{"a store for records", "crawl", ""},
		{"a store for bodies", "pages", `--warc: ` + service.Addr + `: the name is "pages", which is a store for bodies`},
		{"no store", "other", `--warc: ` + service.Addr + `: the name is "other", which is not configured`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCrawl(t, at(s, "/p/1"))
			before := s.Count()
			// A service that does not answer is not checked.
			got := c.cli("crawl", "--delay", "1ms", "--log-level", "error", "--outcomes", "-", "--server", rig.FreeAddress(t, "127.0.0.1"), "--server", service.Addr, "--warc", tt.warc)
			if tt.told != "" {
				if got.code != cli.ExitUsage || !strings.Contains(got.err, tt.told) || s.Count() != before {
					t.Errorf("exit status %d, %q; want %d and %q before any request", got.code, got.err, cli.ExitUsage, tt.told)
				}
				return
			}
			all := outcomesIn(t, got.out)
			if got.code != cli.ExitOK || len(all) != 1 || all[0].WARCRecordID == "" {
				t.Fatalf("exit status %d, %q, %+v; want a record", got.code, got.err, all)
			}
			// The service has the file open.
			if rec := recordAt(t, filepath.Join(dir, "warc", all[0].WARCFile+".open"), all[0].WARCOffset); rec.ID != all[0].WARCRecordID {
				t.Errorf("%+v names %+v", all[0], rec.Header)
			}
		})
	}
	t.Run("an older service", func(t *testing.T) {
		t.Parallel()
		address := fetchdtest.Start(t, fetchdtest.Options{Fake: olderService{}}).Addr
		got := newCrawl(t, at(s, "/p/1")).cli("crawl", "--server", address, "--warc", "crawl")
		if want := "--warc: " + address + ": this fetchd cannot record fetches: use a newer one"; got.code != cli.ExitUsage || !strings.Contains(got.err, want) {
			t.Errorf("exit status %d, %q; want %d and %q", got.code, got.err, cli.ExitUsage, want)
		}
	})
}

// TestWARCInfo checks what the files of a crawl say about it.
func TestWARCInfo(t *testing.T) {
	t.Parallel()
	s := startSite(t, site.Config{})
	dir := filepath.Join(t.TempDir(), "warc")
	c := newCrawl(t, at(s, "/p/1"))
	got := c.run(inside(s.Port()), "--warc", dir, "--user-agent", "bot/1", "--from", "jo@example.org", "--ignore-robots", "--warc-info", "operator=Jo, Ltd", "--warc-info", "isPartOf=news=1")
	if got.code != cli.ExitOK {
		t.Fatalf("exit status %d, %s", got.code, got.err)
	}
	for name := range files(t, dir) {
		fields, err := warc.ParseFields(recordAt(t, filepath.Join(dir, name), 0).Block, warc.Limits{})
		must(t, err)
		for name, want := range map[string]string{"robots": "ignore", "http-header-user-agent": "bot/1", "http-header-from": "jo@example.org", "operator": "Jo, Ltd", "isPartOf": "news=1"} {
			if value := warc.Get(fields, name); value != want {
				t.Errorf("%s: %q, want %q", name, value, want)
			}
		}
	}
	for _, row := range []struct{ flags, want string }{
		{"--warc-info a=b", "--warc-info: describes the files of --warc"},
		{"--warc x --warc-info a", `"a" is not NAME=VALUE`},
		{"--warc x --warc-info a:b=c", `"a:b=c" is not NAME=VALUE`},
		{"--warc x --warc-info a=b\nc:d", `is not NAME=VALUE`},
		{"--warc x --server 127.0.0.1:1 --warc-info a=b", "--warc-info: is for files of the fetchd inside"},
	} {
		if got := c.cli(append([]string{"crawl"}, strings.Split(row.flags, " ")...)...); got.code != cli.ExitUsage || !strings.Contains(got.err, row.want) {
			t.Errorf("%q: exit status %d, %q; want %d and %q", row.flags, got.code, got.err, cli.ExitUsage, row.want)
		}
	}
	for dsn, want := range map[string]string{"a/news.db": "news", "x": "x", "postgres://jo:secret@db/crawl?sslmode=disable": "crawl", "postgres://%zz": ""} {
		if got := (database{DB: dsn}).name(); got != want {
			t.Errorf("the name of %s is %q, want %q", dsn, got, want)
		}
	}
}

// TestExportWACZ packs a crawl and the next one, whose records are revisits.
func TestExportWACZ(t *testing.T) {
	t.Parallel()
	s := startSite(t, site.Config{})
	dir := t.TempDir()
	c := newCrawl(t, at(s, "/p/1"))
	for range 2 {
		if got := c.run(inside(s.Port()), "--warc", filepath.Join(dir, "warc")); got.code != cli.ExitOK {
			t.Fatalf("exit status %d, %s", got.code, got.err)
		}
		c.must("retry", "--fetched-before", "0s")
	}
	file := filepath.Join(dir, "x.wacz")
	c.must("export", "--wacz", file, "--warc", filepath.Join(dir, "warc"))
	content, err := os.ReadFile(file)
	must(t, err)
	check := wacz.NewCheck(func(p wacz.Problem) { t.Errorf("%s: %s", p.File, p.String()) })
	defer check.Close()
	must(t, errors.Join(check.Package(file, bytes.NewReader(content), int64(len(content))), check.References()))
	if check.Pages != 1 || check.Types[warc.Revisit] != 1 {
		t.Errorf("%+v", check.Counts)
	}
	must(t, os.Remove(file))
	names := slices.Sorted(maps.Keys(files(t, filepath.Join(dir, "warc"))))
	must(t, os.Mkdir(filepath.Join(dir, "first"), 0o700))
	must(t, os.Rename(filepath.Join(dir, "warc", names[0]), filepath.Join(dir, "first", names[0])))
	must(t, os.WriteFile(filepath.Join(dir, "first", "y.warc.gz.open"), nil, 0o600))
	for _, row := range []struct{ flags, want string }{
		{"--wacz x.wacz", "--wacz: needs the WARC files"},
		{"--warc warc", "--warc: is for a package"},
		{"--wacz x.wacz --warc warc --what fetches", "--what: has no effect"},
		{"--wacz x.wacz --warc warc -o y", "--output: has no effect"},
		{"--wacz x.wacz --warc none", "--warc: open " + dir + "/none"},
		{"--wacz x.wacz --warc warc", "refers to a record that is in none of the files: add the files of the earlier crawl with another --warc"},
		{"--wacz x.wacz --warc first", "y.warc.gz.open is not complete"},
	} {
		var flags []string
		for _, f := range strings.Split(row.flags, " ") {
			if slices.Contains([]string{"x.wacz", "warc", "none", "first", "y"}, f) {
				f = filepath.Join(dir, f)
			}
			flags = append(flags, f)
		}
		got := c.cli(append([]string{"export"}, flags...)...)
		if left, _ := filepath.Glob(filepath.Join(dir, "*x.wacz*")); got.code != cli.ExitUsage || !strings.Contains(got.err, row.want) || left != nil {
			t.Errorf("%q: exit status %d, %q, files %q; want %d, %q and no file", row.flags, got.code, got.err, left, cli.ExitUsage, row.want)
		}
	}
}

// TestRecordsInterrupted checks that a run that is stopped leaves whole files.
func TestRecordsInterrupted(t *testing.T) {
	t.Parallel()
	s := startSite(t, site.Config{})
	dir := filepath.Join(t.TempDir(), "warc")
	c := newCrawl(t, at(s, "/p/1"))
	b := c.start(append(inside(s.Port()), "--endless", "--outcomes", "-", "--warc", dir)...)
	r := outcomesIn(t, b.out.until(t, "{"))[0]
	b.end(cli.ExitInterrupted)
	if names := files(t, dir); len(names) != 1 || !names[r.WARCFile] {
		t.Errorf("files %v, want %s alone", names, r.WARCFile)
	}
	if rec := recordAt(t, filepath.Join(dir, r.WARCFile), r.WARCOffset); rec.ID != r.WARCRecordID || rec.Type != warc.Response {
		t.Errorf("%+v names %+v", r, rec.Header)
	}
}

// olderService knows no records. It finds only what earlier versions found.
type olderService struct {
	pb.UnimplementedFetchServiceServer
}

func (olderService) Explain(context.Context, *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	return new(pb.ExplainResponse), nil
}

func (olderService) Fetch(*pb.FetchRequest, grpc.ServerStreamingServer[pb.FetchResponse]) error {
	s, err := status.New(codes.InvalidArgument, "url: is empty").WithDetails(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "url", Description: "is empty"}}})
	if err != nil {
		return err
	}
	return s.Err()
}
