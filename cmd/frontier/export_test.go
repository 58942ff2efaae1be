package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"fetchd/cmd/frontier/show"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// failing returns a crawl with one URL that failed at a known time.
func failing(t *testing.T) *fixture {
	t.Helper()
	c := newCrawl(t, "http://a.test/?a=1&b=2")
	f := failedIn("http_server_error", store.Failed)
	f.LastError = "=cmd|'/C calc'!A0, \"<b>\"\nline"
	f.BodyDigest = "sha256:00"
	f.Content = store.Content{ContentType: "text/html", Charset: "utf-8", Headers: "{\"Link\":[\"<a>\",\"\u202e\"]}"}
	f.Archived = store.Archived{File: "fetchd-1.warc.gz", Offset: 5, Length: 7, RecordID: "urn:uuid:1", Date: "2026-01-02T03:04:05.123456Z", PayloadDigest: "sha1:A"}
	c.fetch(f)
	c.exec(`UPDATE urls SET ready_at = 1800000000123, fetched_at = 1800000000000, priority = 7, depth = 2, parent_id = id, metadata = '=1'`)
	c.exec(`UPDATE fetches SET ended_at = 1800000000000`)
	return c
}

func TestExport(t *testing.T) {
	t.Parallel()
	c := failing(t)
	for _, tt := range []struct{ name, args, want string }{
		{"URLs as JSON lines", "export", `{"id":1,"url":"http://a.test/?a=1&b=2","host":"a.test","status":"failed",` +
			`"last_error":"=cmd|'/C calc'!A0, \"<b>\"\nline","error_class":"http_server_error","retry_count":2,"failure_count":1,"crash_count":0,` +
			`"http_status":503,"ready_at":"2027-01-15T08:00:00.123Z","lease_until":null,"worker":"","fetched_at":"2027-01-15T08:00:00.000Z","recrawl_at":null,` +
			`"kind":"page","priority":7,"depth":2,"parent_url":"http://a.test/?a=1&b=2","page_url":"","title":"","metadata":"=1"}` + "\n"},
		{"fetches as JSON lines", "export --what fetches", `{"id":1,"url":"http://a.test/?a=1&b=2","final_url":"","status":"failed","http_status":503,` +
			`"error_class":"http_server_error","last_error":"=cmd|'/C calc'!A0, \"<b>\"\nline","attempts":3,"retry_count":2,"duration_ms":1500,"wait_ms":1000,` +
			`"bytes":7,"body_digest":"sha256:00","ended_at":"2027-01-15T08:00:00.000Z",` +
			`"content_type":"text/html","charset":"utf-8","headers":{"Link":["<a>","\u202e"]},"warc_file":"fetchd-1.warc.gz","warc_offset":5,"warc_length":7,` +
			`"warc_record_id":"urn:uuid:1","warc_date":"2026-01-02T03:04:05.123456Z","warc_payload_digest":"sha1:A"}` + "\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := c.in(t)
			diff(t, "standard output", tt.want, c.must(strings.Fields(tt.args)...))
			file := filepath.Join(t.TempDir(), "file")
			diff(t, "standard output with -o", "", c.must(append(strings.Fields(tt.args), "-o", file)...))
			text, err := os.ReadFile(file)
			must(t, err)
			diff(t, "file", tt.want, string(text))
		})
	}
}

func TestExportManyRows(t *testing.T) {
	t.Parallel()
	const urls = 2500 // more than two pages of the store
	var list []string
	for n := range urls {
		list = append(list, fmt.Sprintf("http://a.test/%d", n))
	}
	c := newCrawl(t, list...)
	if got := strings.Fields(c.urls()); len(got) != urls || got[urls-1] != list[urls-1] {
		t.Errorf("%d URLs, want %d in their order", len(got), urls)
	}
}

func TestExportCannotWrite(t *testing.T) {
	t.Parallel()
	c := failing(t)
	dir := t.TempDir()
	for _, tt := range []struct{ name, file, told string }{
		{"a folder", dir, "frontier: write: " + dir + " is a directory\n"},
		{"no folder", dir + "/no/file", "frontier: write: open " + dir + "/no/file: no such file or directory\n"},
		{"a full device", "/dev/full", "frontier: write: write /dev/full: no space left on device\n"},
	} {
		got := c.cli("export", "-o", tt.file)
		if got.code != cli.ExitOutput || !strings.HasPrefix(got.err, tt.told) {
			t.Errorf("%s: exit status %d, %q; want %d, %q", tt.name, got.code, got.err, cli.ExitOutput, tt.told)
		}
	}
	noFiles(t, dir)
}

// An existing file stays until the new one is complete.
func TestExportInterrupted(t *testing.T) {
	t.Parallel()
	c := failing(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, []byte("before"), 0o600))
	out, err := cli.OpenOutput(file, nil)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	c.store(func(s store.Store) error {
		cancel()
		if err := show.URLs(out, s.URLs(ctx)); !errors.Is(err, context.Canceled) {
			t.Errorf("URLs = %v, want context.Canceled", err)
		}
		return nil
	})
	out.Discard()
	text, err := os.ReadFile(file)
	if string(text) != "before" || err != nil {
		t.Errorf("the file is %q, %v, want what was there before", text, err)
	}
	must(t, os.Remove(file))
	noFiles(t, dir)
}

func noFiles(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%s has %v, %v, want nothing", dir, left, err)
	}
}

// A reader that goes away is not an error, and nothing is printed about it.
func TestReaderGoesAway(t *testing.T) {
	t.Parallel()
	c := failing(t)
	for _, args := range []string{"export", "status", "why http://a.test/?a=1&b=2", "pause b.test"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			c := c.in(t)
			r, w, err := os.Pipe()
			must(t, err)
			r.Close()
			cmd := exec.CommandContext(t.Context(), "frontier", append(strings.Fields(args), "--db", c.db)...)
			var told bytes.Buffer
			cmd.Stdout, cmd.Stderr = w, &told
			err = cmd.Run()
			w.Close()
			if err != nil || told.Len() > 0 {
				t.Errorf("frontier %s: %v, %q; want exit status 0 and nothing", args, err, told.String())
			}
		})
	}
}

// A signal ends a run that waits for input.
func TestSignal(t *testing.T) {
	t.Parallel()
	c := newCrawl(t)
	cmd := exec.CommandContext(t.Context(), "frontier", "add", "-i", "-", "--db", c.db)
	stdin, err := cmd.StdinPipe()
	must(t, err)
	told, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	if _, err := io.WriteString(stdin, "http://a.test/1\nbad\n"); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len("stdin:2: URL has the wrong scheme: it has none\n"))
	if _, err := io.ReadFull(told, first); err != nil { // both were put
		t.Fatalf("read %q: %v", first, err)
	}
	must(t, cmd.Process.Signal(os.Interrupt))
	rest, err := io.ReadAll(told)
	must(t, err)
	ended, ok := errors.AsType[*exec.ExitError](cmd.Wait())
	if want := "frontier: interrupted: the last line added was stdin:2 (1 added, 0 known, 1 bad)\n"; !ok || ended.ExitCode() != cli.ExitInterrupted || !strings.HasPrefix(string(rest), want) {
		t.Errorf("ended with %v, %q; want exit status %d and %q", ended, rest, cli.ExitInterrupted, want)
	}
	stdin.Close()
}

// TestJSONIsPlain checks that JSON cannot control a terminal, whatever the origin sends,
// and that its values are unchanged.
func TestJSONIsPlain(t *testing.T) {
	t.Parallel()
	const hostile = "a&\u009b31m\u202eb\u2066c\u007f\U000e0041"
	for _, tt := range []struct {
		name  string
		write func(*strings.Builder) error
	}{
		{"export", func(out *strings.Builder) error {
			return show.URLs(out, func(yield func(store.URL, error) bool) { yield(store.URL{LastError: hostile}, nil) })
		}},
		{"status and why", func(out *strings.Builder) error {
			p := &cli.Printer{W: out}
			writeJSON(p, map[string]string{"last_error": hostile})
			return p.Err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			must(t, tt.write(&out))
			line, ended := strings.CutSuffix(out.String(), "\n")
			if !ended || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsGraphic(r) }) {
				t.Errorf("%q", out.String())
			}
			var got struct {
				LastError string `json:"last_error"`
			}
			if err := json.Unmarshal([]byte(line), &got); err != nil || got.LastError != hostile {
				t.Errorf("%s decodes to %q, %v, want %q", line, got.LastError, err, hostile)
			}
		})
	}
}
