package wacz

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"fetchd/warc"

	"github.com/google/go-cmp/cmp"
)

// indexOf returns the lines of the index of files, and the number of records that share a member.
func indexOf(t *testing.T, files ...string) (lines []string, shared int) {
	t.Helper()
	x := NewIndex()
	defer x.Close()
	for i, f := range files {
		n, err := x.Add(fmt.Sprintf("f%d.warc", i), iotest.HalfReader(strings.NewReader(f)))
		if err != nil {
			t.Fatal(err)
		}
		shared += n
	}
	if err := x.Lines(func(line string) error { lines = append(lines, line); return nil }); err != nil {
		t.Fatal(err)
	}
	return lines, shared
}

// TestIndex has a row for each kind of record.
func TestIndex(t *testing.T) {
	t.Parallel()
	url := func(u string) func(h *warc.Header) { return func(h *warc.Header) { h.TargetURI = u } }
	html := "HTTP/1.1 404 Not Found\r\ncontent-type: text/html ; charset=utf-8\r\n\r\n"
	for _, tt := range []struct {
		name  string
		build func(f *file)
		want  string // without digest, length and offset
	}{
		{"exchange", func(f *file) { f.exchange(ask, html) }, `org,a)/ 20260203040506 {"url":"http://a.org/","mime":"text/html","status":"404"}`},
		{"response before its request", func(f *file) {
			f.record(warc.Response, "r", html, nil).record(warc.Request, "q", "PUT / HTTP/1.1\r\n\r\n", func(h *warc.Header) { h.ConcurrentTo = []string{"urn:test:r"} })
		}, `org,a)/?__wb_method=put 20260203040506 {"url":"http://a.org/","mime":"text/html","status":"404","method":"PUT"}`},
		{"POST of a URL with a query", func(f *file) {
			f.record(warc.Request, "q", "POST /?z=1 HTTP/1.1\r\n\r\n", url("http://a.org/?z=1")).
				record(warc.Response, "r", html, func(h *warc.Header) { h.TargetURI, h.ConcurrentTo = "http://a.org/?z=1", []string{"urn:test:q"} })
		}, `org,a)/?__wb_method=post&z=1 20260203040506 {"url":"http://a.org/?z=1","mime":"text/html","status":"404","method":"POST"}`},
		{"request of another response", func(f *file) {
			f.record(warc.Request, "q", "PUT / HTTP/1.1\r\n\r\n", nil).record(warc.Response, "r", html, nil)
		}, `org,a)/ 20260203040506 {"url":"http://a.org/","mime":"text/html","status":"404"}`},
		{"revisit", func(f *file) { f.revisit(nil) }, `org,a)/ 20260203050506 {"url":"http://a.org/","mime":"warc/revisit","status":"200"}`},
		{"no media type", func(f *file) { f.record(warc.Response, "r", "HTTP/1.1 200 OK\r\n\r\n", nil) }, `org,a)/ 20260203040506 {"url":"http://a.org/","mime":"unk","status":"200"}`},
		{"head that cannot be parsed", func(f *file) { f.record(warc.Response, "r", "nonsense", nil) }, `org,a)/ 20260203040506 {"url":"http://a.org/","mime":"unk"}`},
		{"media type that controls a terminal", func(f *file) {
			f.record(warc.Response, "r", "HTTP/1.1 200 OK\r\nContent-Type: \x1b[2J\u202e\"\xff\r\n\r\n", nil)
		}, `org,a)/ 20260203040506 {"url":"http://a.org/","mime":"\u001b[2J\u202e\"\ufffd","status":"200"}`},
		{"resource", func(f *file) {
			f.record(warc.Resource, "s", "x", func(h *warc.Header) { h.TargetURI, h.ContentType = "metadata://a.org/b", "text/plain; a=b" })
		}, `org,a)/b 20260203040506 {"url":"metadata://a.org/b","mime":"text/plain"}`},
		{"metadata", func(f *file) {
			f.record(warc.Metadata, "m", "x", func(h *warc.Header) { h.ContentType = "text/plain" })
		}, `org,a)/ 20260203040506 {"url":"http://a.org/","mime":"text/plain"}`},
		{"fields", func(f *file) {
			f.record(warc.Metadata, "m", "a: b\r\n", func(h *warc.Header) { h.ContentType = warc.WarcFields })
		}, ""},
		{"warcinfo", func(f *file) { f.record(warc.Warcinfo, "i", "a: b\r\n", nil) }, ""},
		{"request", func(f *file) { f.record(warc.Request, "q", ask, nil) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFile(t, false)
			tt.build(f)
			lines, _ := indexOf(t, f.String())
			got := strings.Join(lines, "\n")
			if start := strings.Index(got, `,"digest"`); start >= 0 {
				end := strings.Index(got, `"filename":"f0.warc"`) + len(`"filename":"f0.warc"`)
				got = got[:start] + got[end:]
			}
			if got != tt.want {
				t.Errorf("line %q, want %q", got, tt.want)
			}
		})
	}
}

// TestIndexPlaces reads each record of an index alone, at its offset.
func TestIndexPlaces(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		f := newFile(t, plain).exchange(ask, reply).record(warc.Resource, "s", "a resource", nil)
		lines, _ := indexOf(t, f.String())
		if len(lines) != 2 {
			t.Fatalf("plain %t: lines %q, want 2", plain, lines)
		}
		for _, line := range lines {
			var digest string
			var length, offset int64
			_, text, _ := strings.Cut(line, `"digest":`)
			if _, err := fmt.Sscanf(strings.ReplaceAll(text, `"`, " "), " %s , length : %d , offset : %d ,", &digest, &length, &offset); err != nil {
				t.Fatalf("plain %t: %q: %v", plain, text, err)
			}
			r := warc.NewReader(io.NewSectionReader(bytes.NewReader(f.Bytes()), offset, length), warc.ReaderOptions{})
			rec, err := r.Next()
			if err != nil || rec.Finish() != nil || string(rec.PayloadDigest) != "sha1:"+digest {
				t.Errorf("plain %t: %q: record %+v, %v; want digest %s", plain, line, rec, err, digest)
			}
			if _, err := r.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("plain %t: %q: %v after the record, want EOF", plain, line, err)
			}
		}
	}
}

// TestIndexComputesDigests checks the digests of records that have none.
func TestIndexComputesDigests(t *testing.T) {
	t.Parallel()
	f := newFile(t, true).exchange(ask, reply).String()
	const digest = "WARC-Payload-Digest: sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N\r\n"
	if !strings.Contains(f, digest) {
		t.Fatal("the response has another digest")
	}
	lines, _ := indexOf(t, strings.Replace(f, digest, "", 1))
	if len(lines) != 1 || !strings.Contains(lines[0], `"digest":"VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N"`) {
		t.Errorf("lines %q, want the digest of the payload", lines)
	}
}

// TestIndexOfDamagedFiles checks that whole records are in the index.
func TestIndexOfDamagedFiles(t *testing.T) {
	t.Parallel()
	good := newFile(t, true).exchange(ask, reply).String()
	for _, tt := range []struct {
		name, file string
		lines      int
		text       string
	}{
		{"truncated", good + good[:len(good)-1], 1, fmt.Sprintf("the file ends inside a record: truncate it to %d bytes", len(good)+strings.Index(good[1:], "WARC/1.1")+1)},
		{"damaged", good + "hello", 1, `not a WARC record: it starts with "hello": the rest of the file is not read`},
		{"empty", "", 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := NewIndex()
			defer x.Close()
			_, err := x.Add("f", strings.NewReader(tt.file))
			lines := 0
			if err := x.Lines(func(string) error { lines++; return nil }); err != nil {
				t.Fatal(err)
			}
			if p, _ := Unreadable(err); p.Text != tt.text || lines != tt.lines {
				t.Errorf("%d lines, %q; want %d, %q", lines, p.Text, tt.lines, tt.text)
			}
		})
	}
	x := NewIndex()
	defer x.Close()
	_, err := x.Add("f", iotest.ErrReader(context.Canceled))
	if _, unreadable := Unreadable(err); unreadable || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
}

// TestSorter sorts more lines than its memory holds, and leaves no file.
func TestSorter(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	random := rand.New(rand.NewPCG(1, 2))
	for _, tt := range []struct{ lines, memory int }{{0, 100}, {1, 100}, {10, 1 << 20}, {10, 100}, {100, 100}, {20_000, 5_000}, {3_000, 1}} {
		s := &sorter{memory: tt.memory}
		var want, got []string
		for range tt.lines {
			line := fmt.Sprint(random.IntN(tt.lines * 2))
			want = append(want, line)
			if err := s.add(line); err != nil {
				t.Fatal(err)
			}
			if len(s.runs) >= maxRuns {
				t.Fatalf("%d temporary files are open", len(s.runs))
			}
		}
		if err := s.each(func(line string) error { got = append(got, line); return nil }); err != nil {
			t.Fatal(err)
		}
		s.close()
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d lines, %d bytes of memory: (-want +got)\n%s", tt.lines, tt.memory, diff)
		}
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
	t.Setenv("TMPDIR", temp+"/none")
	if err := (&sorter{memory: 1}).add("line"); err == nil {
		t.Error("no error without a directory for temporary files")
	}
}
