package wacz

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"fetchd/warc"

	"github.com/google/go-cmp/cmp"
)

const (
	reply = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"
	ask   = "GET / HTTP/1.1\r\nHost: a.org\r\n\r\n"
)

var day = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

// file writes a WARC file.
type file struct {
	t testing.TB
	bytes.Buffer
	w *warc.Writer
}

func newFile(t testing.TB, plain bool) *file {
	t.Helper()
	f := &file{t: t}
	var err error
	if f.w, err = warc.NewWriter(&f.Buffer, warc.WriterOptions{Plain: plain}); err != nil {
		t.Fatal(err)
	}
	return f
}

// record writes a record with digests. change changes its head.
func (f *file) record(kind warc.Type, id, block string, change func(h *warc.Header)) *file {
	f.t.Helper()
	h := &warc.Header{Type: kind, ID: "urn:test:" + id, Date: day, TargetURI: "http://a.org/", ContentType: warc.HTTPResponse}
	if kind == warc.Request {
		h.ContentType = warc.HTTPRequest
	}
	if kind == warc.Warcinfo {
		h.TargetURI, h.ContentType = "", warc.WarcFields
	}
	if change != nil {
		change(h)
	}
	if _, err := f.w.WriteSeeker(h, strings.NewReader(block), warc.SHA1); err != nil {
		f.t.Fatal(err)
	}
	return f
}

// exchange writes a request and its response.
func (f *file) exchange(request, response string) *file {
	return f.record(warc.Request, "q", request, func(h *warc.Header) { h.ConcurrentTo = []string{"urn:test:r"} }).
		record(warc.Response, "r", response, func(h *warc.Header) { h.ConcurrentTo = []string{"urn:test:q"} })
}

// problems checks files and returns the problems as "offset: text" and the counts.
func problems(t *testing.T, files ...string) ([]string, Counts) {
	t.Helper()
	var found []string
	c := NewCheck(func(p Problem) { found = append(found, fmt.Sprintf("%s %d: %s", p.File, p.Offset, p.Text)) })
	defer c.Close()
	for i, f := range files {
		if err := c.File(fmt.Sprint("f", i), iotest.OneByteReader(strings.NewReader(f))); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.References(); err != nil {
		t.Fatal(err)
	}
	return found, c.Counts
}

// TestCheck has a row for each fault that is found, and rows that have none.
func TestCheck(t *testing.T) {
	t.Parallel()
	first := func(h *warc.Header) {}
	chunked := func(body string) string { return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body }
	for _, tt := range []struct {
		name  string
		build func(f *file)
		want  string // one problem, or none
	}{
		{"exchange", func(f *file) { f.record(warc.Warcinfo, "i", "software: x\r\n", nil).exchange(ask, reply) }, ""},
		{"response without a body", func(f *file) { f.exchange(ask, "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n") }, ""},
		{"304 with a length", func(f *file) { f.exchange(ask, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n") }, ""},
		{"response to HEAD", func(f *file) {
			f.exchange("HEAD / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
		}, ""},
		{"response to GET that is empty", func(f *file) { f.exchange(ask, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n") },
			"the HTTP head has Content-Length 5, and the payload has 0 bytes"},
		{"body up to the close of the connection", func(f *file) { f.exchange(ask, "HTTP/1.0 200 OK\r\n\r\nany") }, ""},
		{"body that is too short", func(f *file) { f.exchange(ask, strings.TrimSuffix(reply, "o")) },
			"the HTTP head has Content-Length 5, and the payload has 4 bytes"},
		{"body that is too long", func(f *file) { f.exchange(ask, reply+"o") },
			"the HTTP head has Content-Length 5, and the payload has 6 bytes"},
		{"body that is truncated", func(f *file) {
			f.record(warc.Response, "r", reply[:len(reply)-1], func(h *warc.Header) { h.Truncated = warc.TruncatedDisconnect })
		}, ""},
		{"body of a request that is too short", func(f *file) { f.record(warc.Request, "q", "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n1", nil) },
			"the HTTP head has Content-Length 2, and the payload has 1 bytes"},
		{"chunks", func(f *file) { f.exchange(ask, chunked("5\r\nhello\r\n0\r\n\r\n")) }, ""},
		{"chunks with a trailer", func(f *file) { f.exchange(ask, chunked("5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n")) }, ""},
		{"chunks without an end", func(f *file) { f.exchange(ask, chunked("5\r\nhello\r\n")) }, "the chunks of the body are not whole: unexpected EOF"},
		{"chunks without a trailer", func(f *file) { f.exchange(ask, chunked("0\r\n")) }, "the chunks of the body are not whole: the HTTP head does not end within the block"},
		{"bytes after the chunks", func(f *file) { f.exchange(ask, chunked("0\r\n\r\nmore")) }, "the chunks of the body are not whole: 4 bytes follow them"},
		{"chunks that are truncated", func(f *file) {
			f.record(warc.Response, "r", chunked("5\r\nhel"), func(h *warc.Header) { h.Truncated = warc.TruncatedTime })
		}, ""},
		{"two equal lengths", func(f *file) {
			f.exchange(ask, "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\nContent-Length: 2\r\n\r\nok")
		}, ""},
		{"two lengths", func(f *file) {
			f.exchange(ask, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok")
		}, ""},
		{"two lengths in a request", func(f *file) {
			f.exchange("POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", reply)
		}, "the HTTP head has Content-Length 2 and 3"},
		{"length that is not a number", func(f *file) { f.exchange(ask, "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nok") }, ""},
		{"length of a request that is not a number", func(f *file) { f.exchange("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\nok", reply) },
			`Content-Length "-1" of the HTTP head is not a number`},
		{"head that does not end", func(f *file) { f.exchange(ask, "HTTP/1.1 200 OK\r\nA: b\r\n") }, "the HTTP head does not end within the block"},
		{"head that does not end, truncated", func(f *file) {
			f.record(warc.Response, "r", "HTTP/1.1 200 OK\r\nA: b\r\n", func(h *warc.Header) { h.Truncated = warc.TruncatedTime })
		}, ""},
		{"line without a name, truncated", func(f *file) {
			f.record(warc.Response, "r", "HTTP/1.1 200 OK\r\nno\r\n\r\n", func(h *warc.Header) { h.Truncated = warc.TruncatedDisconnect })
		}, ""},
		{"empty block", func(f *file) { f.exchange(ask, "") }, "the HTTP head does not end within the block"},
		{"head with LF alone", func(f *file) { f.exchange(ask, "HTTP/1.1 200 OK\nA: b\n\nbody") }, ""},
		{"head with a line that is continued", func(f *file) { f.exchange(ask, "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n") }, ""},
		{"head with NUL", func(f *file) { f.exchange(ask, "HTTP/1.1 200 O\x00K\r\nA: \x00\r\n\r\n") }, ""},
		{"HTTP/2", func(f *file) { f.exchange("GET / HTTP/2\r\n\r\n", "HTTP/2 200\r\n\r\n") }, ""},
		{"line without a name", func(f *file) { f.exchange(ask, "HTTP/1.1 200 OK\r\n\x1b[2Jno\r\n\r\n") }, ""},
		{"line without a name in a request", func(f *file) { f.exchange("GET / HTTP/1.1\r\n\x1b[2Jno\r\n\r\n", reply) }, `the line "\x1b[2Jno" of the HTTP head has no name`},
		{"status line", func(f *file) { f.exchange(ask, "ICY 200 OK\r\n\r\n") }, `the status line "ICY 200 OK" cannot be parsed`},
		{"status of two digits", func(f *file) { f.exchange(ask, "HTTP/1.1 20 OK\r\n\r\n") }, `the status line "HTTP/1.1 20 OK" cannot be parsed`},
		{"request line", func(f *file) { f.exchange("GET /\r\n\r\n", reply) }, `the request line "GET /" cannot be parsed`},
		{"head that is too long", func(f *file) { f.exchange(ask, "HTTP/1.1 200 OK\r\n"+strings.Repeat("A: b\r\n", maxHead/6)+"\r\n") }, fmt.Sprint(errLong)},
		{"line that is too long", func(f *file) { f.exchange(ask, "HTTP/1.1 200 OK\r\nA: "+strings.Repeat("b", maxLine)+"\r\n\r\n") }, fmt.Sprint(errLong)},
		{"long line", func(f *file) { f.exchange(ask, "HTTP/1.1 200 OK\r\nA: "+strings.Repeat("b", maxLine-5)+"\r\n\r\n") }, ""},
		{"block that is not HTTP", func(f *file) {
			f.record(warc.Response, "r", "\x00", func(h *warc.Header) { h.ContentType = "application/octet-stream" })
		}, ""},
		{"block digest", func(f *file) {
			f.record(warc.Response, "r", reply, func(h *warc.Header) { h.BlockDigest = warc.NewDigest(warc.SHA1, make([]byte, 20)) })
		}, `WARC-Block-Digest is "sha1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", and the block has another digest`},
		{"payload digest", func(f *file) {
			f.record(warc.Response, "r", reply, func(h *warc.Header) { h.PayloadDigest = warc.NewDigest(warc.SHA1, make([]byte, 20)) })
		}, `WARC-Payload-Digest is "sha1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", and the payload has another digest`},
		{"identifier that occurs twice", func(f *file) { f.record(warc.Request, "q", ask, first).record(warc.Request, "q", ask, first) },
			`has the WARC-Record-ID of the record at offset 0 of "f0"`},
		{"concurrent to no record", func(f *file) {
			f.record(warc.Request, "q", ask, func(h *warc.Header) { h.ConcurrentTo = []string{"urn:test:none"} })
		}, ""},
		{"concurrent to itself", func(f *file) {
			f.record(warc.Request, "q", ask, func(h *warc.Header) { h.ConcurrentTo = []string{"urn:test:q"} })
		}, "is concurrent to itself"},
		{"concurrent with another date", func(f *file) {
			f.record(warc.Request, "q", ask, nil).record(warc.Response, "r", reply, func(h *warc.Header) {
				h.ConcurrentTo, h.Date = []string{"urn:test:q"}, day.Add(time.Second)
			})
		}, `is concurrent to "urn:test:q" and has another WARC-Date`},
		{"revisit", func(f *file) { f.exchange(ask, reply).revisit(nil) }, ""},
		{"revisit of a record elsewhere", func(f *file) { f.revisit(nil) }, ""},
		{"revisit of another URL", func(f *file) {
			f.exchange(ask, reply).revisit(func(h *warc.Header) { h.RefersToTargetURI = "http://a.org/other" })
		}, `refers to "urn:test:r" with WARC-Refers-To-Target-URI "http://a.org/other", and that record has WARC-Target-URI "http://a.org/"`},
		{"revisit of another date", func(f *file) {
			f.exchange(ask, reply).revisit(func(h *warc.Header) { h.RefersToDate = day.Add(time.Minute) })
		}, `refers to "urn:test:r" with WARC-Refers-To-Date 2026-02-03T04:06:06Z, and that record has WARC-Date 2026-02-03T04:05:06Z`},
		{"revisit of another payload", func(f *file) {
			f.exchange(ask, reply).revisit(func(h *warc.Header) { h.PayloadDigest = warc.NewDigest(warc.SHA1, make([]byte, 20)) })
		}, `refers to "urn:test:r", which has the payload digest "sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N" and not "sha1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"`},
		{"warcinfo that is not one", func(f *file) {
			f.record(warc.Request, "q", ask, nil).record(warc.Response, "r", reply, func(h *warc.Header) { h.WarcinfoID = "urn:test:q" })
		}, `has "urn:test:q" as its WARC-Warcinfo-ID, which is a "request" record`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, plain := range []bool{false, true} {
				f := newFile(t, plain)
				tt.build(f)
				found, counts := problems(t, f.String())
				if len(found) != counts.Problems {
					t.Errorf("%d problems are counted, and %d were reported", counts.Problems, len(found))
				}
				var texts []string
				for _, p := range found {
					_, text, _ := strings.Cut(p, ": ")
					texts = append(texts, text)
				}
				if got := strings.Join(texts, "\n"); got != tt.want {
					t.Errorf("plain %t: problems %q, want %q", plain, got, tt.want)
				}
			}
		})
	}
}

// revisit writes a revisit of the response of exchange.
func (f *file) revisit(change func(h *warc.Header)) *file {
	return f.record(warc.Revisit, "v", reply[:len(reply)-5], func(h *warc.Header) {
		h.Profile, h.Truncated, h.Date = warc.IdenticalPayloadDigest, warc.TruncatedLength, day.Add(time.Hour)
		h.RefersTo, h.RefersToTargetURI, h.RefersToDate = "urn:test:r", "http://a.org/", day
		h.PayloadDigest = "sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N" // of "hello"
		if change != nil {
			change(h)
		}
	})
}

// TestCheckDamagedFiles checks files that no Writer writes.
func TestCheckDamagedFiles(t *testing.T) {
	t.Parallel()
	good := newFile(t, true).exchange(ask, reply).String()
	end := strings.Index(good[1:], "WARC/1.1") + 1 // of the first record
	two := func(members ...string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		for _, m := range members {
			_, _ = io.WriteString(z, m) // to memory
		}
		_ = z.Close()
		return b.String()
	}
	for _, tt := range []struct{ name, file, want string }{
		{"empty", "", "f0 0: the file has no records"},
		{"not a WARC file", "hello", `f0 0: not a WARC record: it starts with "hello": the rest of the file is not read`},
		{"zeros at the end", good + "\x00\x00\x00\x00\x00", fmt.Sprintf(`f0 %d: not a WARC record: it starts with "\x00\x00\x00\x00\x00": the rest of the file is not read`, len(good))},
		{"length that is too short", strings.Replace(good, "Content-Length: 31", "Content-Length: 30", 1),
			"f0 0: not a WARC record: 30 bytes of block are not followed by two empty lines: the rest of the file is not read"},
		{"length that is too long", strings.Replace(good, "Content-Length: 31", "Content-Length: 9999", 1),
			"f0 0: the file ends inside a record: truncate it to 0 bytes"},
		{"two records in one member", two(good), "f0 0: shares its gzip member with other records, so it cannot be read alone\n" +
			"f0 0: shares its gzip member with other records, so it cannot be read alone"},
		{"a record in two members", two(good[:50]) + two(good[50:]), "f0 0: not a WARC record: the gzip member ends inside a record: the rest of the file is not read"},
		{"member after another", two(good[:end]) + two(good[end:]), ""},
		{"checksum of gzip", func() string { s := []byte(two(good[:end])); s[len(s)-5] ^= 1; return string(s) }(),
			"f0 0: gzip: invalid checksum: the rest of the file is not read"},
		{"no type", strings.Replace(good, "WARC-Type: request\r\n", "", 1), `f0 0: WARC-Type: "" is not a type`},
		{"no date", strings.Replace(good, "WARC-Date: 2026-02-03T04:05:06Z\r\n", "", 1), "f0 0: WARC-Date is missing"},
		{"no identifier", strings.Replace(good, "WARC-Record-ID: <urn:test:q>\r\n", "", 1), "f0 0: WARC-Record-ID is missing"},
		{"no target URI", strings.Replace(good, "WARC-Target-URI: http://a.org/\r\n", "", 1), "f0 0: WARC-Target-URI is missing in a request record"},
		{"no length", strings.Replace(good, "Content-Length: 31\r\n", "", 1), "f0 0: not a WARC record: Content-Length: the value is not a number: the rest of the file is not read"},
		{"field of another type", strings.Replace(good, "Content-Length: 31\r\n", "WARC-Filename: a\r\nContent-Length: 31\r\n", 1), "f0 0: WARC-Filename is not allowed in a request record"},
		{"digest of an unknown algorithm", strings.Replace(good, "WARC-Block-Digest: sha1:", "WARC-Block-Digest: blake3:", 1), ""},
		{"WARC/1.0", strings.ReplaceAll(good, "WARC/1.1", "WARC/1.0"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			found, _ := problems(t, tt.file)
			if diff := cmp.Diff(tt.want, strings.Join(found, "\n")); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCheckTruncatedFile truncates a file at every byte. The offset in the report is where the file
// must be truncated, and the file is then correct.
func TestCheckTruncatedFile(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		whole := newFile(t, plain).record(warc.Warcinfo, "i", "software: x\r\n", nil).record(warc.Response, "r", reply, nil).String()
		second := int64(0)
		if _, err := NewIndex().Add("f", strings.NewReader(whole)); err != nil {
			t.Fatal(err)
		}
		r := warc.NewReader(strings.NewReader(whole), warc.ReaderOptions{})
		for rec, err := r.Next(); err == nil; rec, err = r.Next() {
			second = rec.Offset
		}
		for n := 1; n < len(whole); n++ {
			if int64(n) == second {
				continue // a whole record
			}
			at := int64(0)
			if int64(n) > second {
				at = second
			}
			want := fmt.Sprintf("f0 %d: the file ends inside a record: truncate it to %d bytes", at, at)
			if found, _ := problems(t, whole[:n]); len(found) != 1 || found[0] != want {
				t.Fatalf("plain %t, %d of %d bytes: problems %q, want %q", plain, n, len(whole), found, want)
			}
		}
		if found, _ := problems(t, whole[:second]); found != nil {
			t.Errorf("plain %t, %d of %d bytes: problems %q, want none", plain, second, len(whole), found)
		}
	}
}

// TestCheckFilesTogether checks references from one file to another, in either order.
func TestCheckFilesTogether(t *testing.T) {
	t.Parallel()
	crawl, later := newFile(t, false).exchange(ask, reply).String(), newFile(t, true).revisit(nil).String()
	for _, files := range [][]string{{crawl, later}, {later, crawl}} {
		found, counts := problems(t, files...)
		want := Counts{Files: 2, Records: 3, Types: map[warc.Type]int{warc.Request: 1, warc.Response: 1, warc.Revisit: 1}}
		if diff := cmp.Diff(want, counts); diff != "" || found != nil {
			t.Errorf("problems %q, counts (-want +got):\n%s", found, diff)
		}
	}
	if _, counts := problems(t, later); counts.Elsewhere != 1 {
		t.Errorf("%d references to records elsewhere, want 1", counts.Elsewhere)
	}
	if found, _ := problems(t, crawl, crawl); len(found) != 2 {
		t.Errorf("the same file twice: problems %q, want 2", found)
	}
}

// TestCheckChunks checks that the payload digest may be that of the chunks, and that these are counted.
func TestCheckChunks(t *testing.T) {
	t.Parallel()
	const head, chunks, asSent = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", "sha1:FPKJFAEPEIMEFSS2G2SDNSN5YKX3N5JX"
	f := newFile(t, false).record(warc.Response, "r", head+chunks, nil).record(warc.Response, "s", head+chunks, func(h *warc.Header) { h.PayloadDigest = asSent })
	found, counts := problems(t, f.String())
	if found != nil || counts.AsSent != 1 {
		t.Errorf("problems %q, %d digests with chunks, want none and 1", found, counts.AsSent)
	}
}

// TestCheckErrors checks errors that are not about the file.
func TestCheckErrors(t *testing.T) {
	t.Parallel()
	good := newFile(t, true).exchange(ask, reply).String()
	for n := range len(good) {
		c := NewCheck(func(p Problem) { t.Errorf("after %d bytes: problem %q", n, p.Text) })
		err := c.File("f", io.MultiReader(strings.NewReader(good[:n]), iotest.ErrReader(context.Canceled)))
		c.Close()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("after %d bytes: %v, want context.Canceled", n, err)
		}
	}
	var got []string
	c := NewCheck(func(p Problem) { got = append(got, p.Text) })
	defer c.Close()
	if err := c.File("f", io.MultiReader(strings.NewReader(good[:9]), iotest.ErrReader(errors.New("bad disk")))); err != nil {
		t.Fatal(err)
	}
	if want := []string{"bad disk: the rest of the file is not read"}; !cmp.Equal(got, want) {
		t.Errorf("problems %q, want %q", got, want)
	}
}

// TestCheckManyReferences checks that a head with many references does not grow when they are sorted.
func TestCheckManyReferences(t *testing.T) {
	t.Parallel()
	f := newFile(t, true).record(warc.Request, strings.Repeat("x", 60_000), ask, func(h *warc.Header) {
		h.TargetURI += strings.Repeat("y", 60_000)
		for i := range 1000 {
			h.ConcurrentTo = append(h.ConcurrentTo, fmt.Sprint("urn:test:", i))
		}
	})
	c := NewCheck(func(Problem) {})
	defer c.Close()
	if err := c.File("f", &f.Buffer); err != nil {
		t.Fatal(err)
	}
	if n := c.references.sorter.size; n > 1<<20 {
		t.Errorf("the references have %d bytes, want at most 1 MiB", n)
	}
	if err := c.References(); err != nil || c.Problems != 0 || c.Elsewhere != 1000 {
		t.Errorf("%d problems, %d references to other files, %v; want 0 and 1000", c.Problems, c.Elsewhere, err)
	}
}

// FuzzCheck checks that no file stops the check or the index, and that both find the same end.
func FuzzCheck(f *testing.F) {
	for _, plain := range []bool{true, false} {
		t := new(testing.T)
		f.Add(newFile(t, plain).exchange(ask, reply).revisit(nil).Bytes())
	}
	f.Add([]byte("WARC/1.1\r\nContent-Length: 0\r\nWARC-Record-ID: \x1b[2J\tx\r\nWARC-Concurrent-To: \t\r\n\r\n\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ended := ""
		c := NewCheck(func(p Problem) { ended = p.Text })
		defer c.Close()
		if err := c.File("f", bytes.NewReader(data)); err != nil {
			t.Fatalf("File: %v", err)
		}
		last := ended
		if err := c.References(); err != nil {
			t.Fatalf("References: %v", err)
		}
		x := NewIndex()
		defer x.Close()
		_, err := x.Add("f", bytes.NewReader(data))
		if p, bad := Unreadable(err); bad && p.Text != last || err != nil && !bad {
			t.Errorf("Add: %v, and the last problem is %q", err, last)
		}
		if err := x.Lines(func(line string) error {
			if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r >= 0x7f && r <= 0x9f || r == 0x202e }) {
				t.Errorf("the line %q has a control character", line)
			}
			return nil
		}); err != nil {
			t.Errorf("Lines: %v", err)
		}
	})
}
