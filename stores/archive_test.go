package stores_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"fetchd/stores"
	"fetchd/stores/archive"
	"fetchd/warc"
)

// record records an exchange in an archive.
func record(t *testing.T, a *archive.Archive) archive.Record {
	t.Helper()
	c := a.Begin(nil)
	must(t, errors.Join(c.Sent([]byte("GET / HTTP/1.1\r\n\r\n")), c.Received([]byte("HTTP/1.1 200 OK\r\n\r\nhello"))))
	records, err := c.Commit(archive.Exchange{URL: "http://origin.example/", Date: time.Now(), Protocol: "HTTP/1.1", Whole: true, Length: 5})
	if err != nil || len(records) != 2 {
		t.Fatal(records, err)
	}
	return records[1]
}

// count returns how many records a file has.
func count(t *testing.T, file []byte) (n int) {
	t.Helper()
	r := warc.NewReader(bytes.NewReader(file), warc.ReaderOptions{Verify: true})
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return n
		}
		must(t, err)
		if err := rec.Finish(); err != nil || rec.BlockVerdict != warc.Matches {
			t.Errorf("record %d: %v, %v", n, rec.BlockVerdict, err)
		}
		n++
	}
}

// TestArchives opens stores of both kinds and reads the file again with changes.
func TestArchives(t *testing.T) {
	t.Parallel()
	const text = "stores:\n  b: {url: 'file://DIR/b'}\n  a:\n    url: warc+file://DIR/a\n"
	for _, row := range []struct {
		name, text string
		kept       bool
	}{
		{"nothing", text, true},
		{"callers", text + "    callers: [alice]\n", true},
		{"another store", text + "  c: {url: 'file://DIR/c'}\n", true},
		{"fields", text + "    redact: [Cookie]\n", false},
		{"the age of files", text + "    max-file-age: 2h\n", false},
		{"bodies in place of records", strings.Replace(text, "warc+", "", 1), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			read := func(text string, before *stores.Set) *stores.Set {
				set, err := stores.ReadFile(write(t, dir+"/stores.yaml", strings.ReplaceAll(text, "DIR", dir)), before)
				must(t, err)
				t.Cleanup(set.Drop)
				return set
			}
			before := read(text, new(stores.Set))
			old, _ := before.Archive("a")
			if body, _ := before.Get("a"); body != nil || old == nil || old.Name() != "a" {
				t.Errorf("store %v for bodies and %v for records, want one for records", body, old)
			}
			if records, _ := before.Archive("b"); records != nil {
				t.Error("a store for bodies takes records")
			}
			var all []string
			for s := range before.All() {
				all = append(all, s.Name())
			}
			for a := range before.Archives() {
				all = append(all, "archive "+a.Name())
			}
			if strings.Join(all, ",") != "b,archive a" {
				t.Errorf("stores %q", all)
			}
			record(t, old)
			now := read(row.text, before)
			if got, _ := now.Archive("a"); (got == old) != row.kept {
				t.Errorf("kept %t, want %t", got == old, row.kept)
			}
			if err := before.Without(now).Close(t.Context()); err != nil {
				t.Error(err)
			}
			if err := old.Ready(); (err == nil) != row.kept {
				t.Errorf("ready: %v", err)
			}
		})
	}
}

// TestFileMode checks the mode of files of records, while they are written and when they are whole.
func TestFileMode(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, key string
		single    bool // a file of fetchctl
		want      os.FileMode
	}{
		{"the default", "", false, 0o600},
		{"more than the umask allows", "file-mode: 0666", false, 0o666},
		{"a text", "file-mode: '640'", false, 0o640},
		{"a single file", "", true, 0o600},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var a *archive.Archive
			if row.single {
				var err error
				a, err = archive.Open("one", archive.Config{File: dir + "/a.warc.gz"})
				must(t, err)
			} else {
				set, err := stores.ReadFile(write(t, t.TempDir()+"/stores.yaml", "stores:\n  a:\n    url: warc+file://"+dir+"\n    "+row.key+"\n"), new(stores.Set))
				must(t, err)
				a, _ = set.Archive("a")
			}
			defer func() { _ = a.Close(t.Context()) }()
			modes := func() (all []os.FileMode) {
				entries, err := os.ReadDir(dir)
				must(t, err)
				for _, e := range entries {
					info, err := e.Info()
					must(t, err)
					all = append(all, info.Mode())
				}
				return all
			}
			record(t, a)
			if got := modes(); !slices.Equal(got, []os.FileMode{row.want}) {
				t.Errorf("modes %v while it is written, want one file with %v", got, row.want)
			}
			must(t, a.Close(t.Context()))
			if got := modes(); !slices.Equal(got, []os.FileMode{row.want}) {
				t.Errorf("modes %v at the end, want one file with %v", got, row.want)
			}
		})
	}
}

// TestArchiveOf makes a set of one archive.
func TestArchiveOf(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.warc.gz")
	a, err := archive.Open("one", archive.Config{File: path})
	must(t, err)
	set := stores.Of(a)
	if got, callers := set.Archive("one"); got != a || callers != nil {
		t.Errorf("archive %v, callers %q", got, callers)
	}
	record(t, a)
	if err := set.Close(t.Context()); err != nil {
		t.Error(err)
	}
	file, err := os.ReadFile(path)
	if err != nil || count(t, file) != 3 {
		t.Errorf("file of %d bytes, %v", len(file), err)
	}
}

// warcText is a file of stores with a bucket for records.
func (b *s3Bucket) warcText(endpoint, dir string) string {
	return "stores:\n  a:\n    url: warc+" + b.url(endpoint) + "\n    prefix: crawl\n    access-key-id: " + keyID +
		"\n    secret-access-key: " + secret + "\n    spool-dir: " + dir + "/spool\n"
}

// TestArchiveInBucket uploads files when they are whole: at the end, and those that were left when the
// bucket was down.
func TestArchiveInBucket(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	dir := t.TempDir()
	read := func(endpoint string) *stores.Set {
		set, err := stores.ReadFile(write(t, dir+"/stores.yaml", b.warcText(endpoint, dir)), new(stores.Set))
		must(t, err)
		t.Cleanup(set.Drop)
		return set
	}
	down := read("http://127.0.0.1:1")
	a, _ := down.Archive("a")
	first := record(t, a)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := down.Close(ctx); err == nil || !strings.Contains(fmt.Sprint(err), "1 files in "+dir+"/spool wait for their upload") {
		t.Error(err)
	}
	up := read("")
	a, _ = up.Archive("a")
	second := record(t, a)
	if err := up.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, r := range []archive.Record{first, second} {
		out, err := b.client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &b.name, Key: aws.String("crawl/" + r.File)})
		must(t, err)
		file, err := io.ReadAll(out.Body)
		if err = errors.Join(err, out.Body.Close()); err != nil || count(t, file) != 3 || aws.ToString(out.ContentType) != "application/warc" {
			t.Errorf("%d bytes of type %q, %v", len(file), aws.ToString(out.ContentType), err)
		}
	}
	if left, err := os.ReadDir(dir + "/spool"); err != nil || len(left) != 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// TestCleanArchives recovers files of dead processes, and removes unfinished uploads of files.
func TestCleanArchives(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	dir := t.TempDir()
	key := "crawl/fetchd-1.warc.gz"
	if _, err := b.client.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: &b.name, Key: &key}); err != nil {
		t.Fatal(err)
	}
	text := b.warcText("", dir) + "  b: {url: 'warc+file://" + dir + "/b'}\n  c: {url: 'file://" + dir + "/c'}\n"
	set, err := stores.ReadFile(write(t, dir+"/stores.yaml", text), new(stores.Set))
	must(t, err)
	t.Cleanup(set.Drop)
	dead := filepath.Join(dir, "b", "fetchd-1.warc.gz.open") // it is empty
	write(t, dead, "")
	var got []string
	set.Clean(t.Context(), 0, func(name string, uploads, _ int, err error) {
		got = append(got, fmt.Sprint(name, uploads, err))
	})
	if want := []string{"a1 <nil>", "b0 <nil>", "c0 <nil>"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("the file of the dead process: %v", err)
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
