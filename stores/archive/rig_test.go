package archive_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"fetchd/stores/archive"
	"fetchd/test/wait"
	"fetchd/warc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var began = time.Date(2026, 11, 23, 7, 0, 0, 123456789, time.UTC)

const getRequest = "GET /page HTTP/1.1\r\nHost: origin.example\r\n\r\n"

// plainExchange is an exchange whose response has a body of length bytes.
func plainExchange(length int64) archive.Exchange {
	return archive.Exchange{URL: "http://origin.example/page", Method: "GET", Date: began, Address: netip.MustParseAddr("192.0.2.1"),
		Protocol: "HTTP/1.1", Whole: true, Length: length}
}

// okResponse is a response with that body.
func okResponse(body string) string { return "HTTP/1.1 200 OK\r\nServer: origin\r\n\r\n" + body }

func openArchive(t testing.TB, c archive.Config) *archive.Archive {
	t.Helper()
	a, err := archive.OpenFast("crawl", c)
	must(t, err)
	t.Cleanup(func() { _ = a.Close(ended()) }) // most tests have closed it
	return a
}

// ended returns a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func closeArchive(t testing.TB, a *archive.Archive) {
	t.Helper()
	if err := a.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// capture takes the bytes of an exchange.
func capture(t testing.TB, a *archive.Archive, sent, received string) *archive.Capture {
	t.Helper()
	c := a.Begin(nil)
	if err := errors.Join(c.Sent([]byte(sent)), c.Received([]byte(received))); err != nil {
		t.Error(err)
	}
	return c
}

// record records an exchange, which must succeed.
func record(t testing.TB, a *archive.Archive, sent, received string, e archive.Exchange) []archive.Record {
	t.Helper()
	records, err := capture(t, a, sent, received).Commit(e)
	if err != nil {
		t.Error(err)
	}
	return records
}

// found is a record that was read from a file.
type found struct {
	warc.Record
	block string
	file  string
}

// readFile returns the records of a file. It fails for a problem, a wrong digest and a record that shares
// its member.
func readFile(t testing.TB, path string) []found {
	t.Helper()
	raw, err := os.ReadFile(path)
	must(t, err)
	var all []found
	r := warc.NewReader(bytes.NewReader(raw), warc.ReaderOptions{Verify: true})
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		block, err := io.ReadAll(rec.Block)
		if err = errors.Join(err, rec.Finish()); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if len(rec.Problems) > 0 || rec.Shared || rec.BlockVerdict != warc.Matches || rec.PayloadVerdict == warc.Differs {
			t.Errorf("%s: record at %d: problems %v, shared %t, digests %v, %v", path, rec.Offset, rec.Problems, rec.Shared, rec.BlockVerdict, rec.PayloadVerdict)
		}
		all = append(all, found{*rec, string(block), strings.TrimSuffix(filepath.Base(path), ".open")})
	}
}

// readDir returns the records of all whole files in a directory, without warcinfo. Each file must begin
// with warcinfo, which all of its records name.
func readDir(t testing.TB, dir string) []found {
	t.Helper()
	var all []found
	for _, name := range names(t, dir) {
		if strings.HasSuffix(name, ".open") {
			continue
		}
		records := readFile(t, filepath.Join(dir, name))
		if len(records) < 2 || records[0].Type != warc.Warcinfo {
			t.Fatalf("%s has %d records, want warcinfo and others", name, len(records))
		}
		for _, r := range records[1:] {
			if r.WarcinfoID != records[0].ID {
				t.Errorf("%s: the record at %d names the warcinfo %s, want %s", name, r.Offset, r.WarcinfoID, records[0].ID)
			}
		}
		all = append(all, records[1:]...)
	}
	return all
}

// names returns the names in a directory.
func names(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	all := make([]string, 0, len(entries))
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// sameAs compares the records of outcomes with those that were read.
func sameAs(t testing.TB, outcomes []archive.Record, records []found) {
	t.Helper()
	byID := map[string]found{}
	for _, r := range records {
		byID[r.ID] = r
	}
	if len(byID) != len(records) || len(outcomes) != len(records) {
		t.Errorf("%d records with %d identifiers in files, %d in outcomes", len(records), len(byID), len(outcomes))
	}
	for _, o := range outcomes {
		r, ok := byID[o.ID]
		if !ok {
			t.Errorf("no record %s", o.ID)
			continue
		}
		if got := (archive.Record{Type: r.Type, ID: r.ID, File: r.file, Offset: r.Offset, Length: r.Length, Date: r.Date, PayloadDigest: r.PayloadDigest}); got != o {
			t.Errorf("outcome has %+v, file has %+v", o, got)
		}
	}
}

// until waits for a state that other goroutines bring about.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := wait.Until(ctx, time.Millisecond, is); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
