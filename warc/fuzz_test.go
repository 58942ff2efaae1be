package warc_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fetchd/warc"
)

// FuzzReader reads any file. The reader does not panic, it stops, its heads are within the limits,
// and what it calls whole is read again without an error.
func FuzzReader(f *testing.F) {
	// Seeds are small: the time of a fuzz target goes into making them smaller.
	for _, seed := range []string{small, zipped(small)} {
		f.Add([]byte(seed))
		f.Add([]byte(seed[:len(seed)-3]))
	}
	f.Add([]byte(zipped(small + small)))
	f.Add([]byte(record("1.0", "WARC-Type: response\nA: b\n c\nWARC-Date: 2026\n", "x")))
	f.Add([]byte(smallHead + "Content-Length: 9223372036854775807\r\n\r\n"))
	limits := warc.Limits{Line: 1 << 10, Head: 4 << 10, Fields: 20}
	f.Fuzz(func(t *testing.T, file []byte) {
		o := warc.ReaderOptions{Limits: limits, Verify: true}
		r := warc.NewReader(bytes.NewReader(file), o)
		records, whole := 0, int64(0)
		for {
			rec, err := r.Next()
			if err == nil {
				checkBudget(t, rec, limits)
				err = rec.Finish()
			}
			if err != nil {
				failure, ok := errors.AsType[*warc.Error](err)
				if ok && failure.Offset != r.Whole() || !ok && (!errors.Is(err, io.EOF) || r.Whole() != int64(len(file))) {
					t.Fatalf("got %v with %d of %d bytes whole", err, r.Whole(), len(file))
				}
				break
			}
			if r.Whole() > whole {
				whole = r.Whole()
				records++
			}
		}
		if whole > int64(len(file)) {
			t.Fatalf("%d bytes are whole of %d", whole, len(file))
		}
		if n, err := readAll(bytes.NewReader(file[:whole]), o); n < records || !errors.Is(err, io.EOF) {
			t.Fatalf("the whole part has %d records, want at least %d; error %v", n, records, err)
		}
	})
}

// checkBudget fails if the head of a record exceeds the limits.
func checkBudget(t *testing.T, rec *warc.Record, limits warc.Limits) {
	size := 0
	for _, f := range rec.Fields {
		size += len(f.Name) + len(f.Value)
	}
	if size > limits.Head || len(rec.Fields) > limits.Fields || len(rec.Problems) > 3*limits.Fields {
		t.Fatalf("a head of %d bytes, %d fields and %d problems", size, len(rec.Fields), len(rec.Problems))
	}
}

// FuzzRoundTrip writes a record between two others. A head is refused, or it is read back as it
// was, and its neighbours too.
func FuzzRoundTrip(f *testing.F) {
	f.Add(uint8(1), "http://example.com/", int64(1), "X-A", "b", "text/plain", []byte("block"), false)
	f.Add(uint8(4), "http://example.com/\r\nA: b", int64(-1), "A\r\nB", "c\r\nD: e", "text/plain\r\n", []byte("\r\n\r\nWARC/1.1\r\n"), true)
	f.Add(uint8(2), "urn:a", int64(1<<62), "warc-type", " x ", "a/b; c=d", []byte{0x1f, 0x8b}, true)
	types := []warc.Type{warc.Warcinfo, warc.Response, warc.Resource, warc.Request, warc.Metadata, warc.Conversion, "x"}
	f.Fuzz(func(t *testing.T, kind uint8, uri string, nanos int64, name, value, contentType string, block []byte, plain bool) {
		h := warc.Header{Type: types[int(kind)%len(types)], ID: warc.NewID(), Date: time.Unix(0, nanos).UTC(), TargetURI: uri,
			ContentType: contentType, Truncated: warc.Truncated(value), Extra: []warc.Field{{Name: name, Value: value}}}
		if h.Type == warc.Warcinfo || h.Type == warc.Metadata {
			h.TargetURI, h.Filename = "", ""
		}
		neighbour := warc.Header{Type: warc.Metadata, Date: date}
		var file bytes.Buffer
		w, err := warc.NewWriter(&file, warc.WriterOptions{Plain: plain})
		if err != nil {
			t.Fatal(err)
		}
		want := 2
		for i := range 3 {
			if i != 1 {
				if _, err := w.WriteRecord(&neighbour, bytes.NewReader([]byte("n")), 1); err != nil {
					t.Fatal(err)
				}
			} else if _, err := w.WriteSeeker(&h, bytes.NewReader(block), warc.SHA256); err == nil {
				want++
			}
		}
		r := warc.NewReader(&file, warc.ReaderOptions{Verify: true})
		for i := range want {
			rec, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(rec.Block)
			if err != nil || rec.Finish() != nil || len(rec.Problems) > 0 || rec.Length == 0 {
				t.Fatalf("error %v, problems %v", err, rec.Problems)
			}
			if i != 1 || want == 2 {
				if string(got) != "n" {
					t.Fatalf("a neighbour has the block %q", got)
				}
				continue
			}
			checkSame(t, rec, got, &h, block)
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	})
}

// checkSame fails if a record with that block was not written with this header and block.
func checkSame(t *testing.T, rec *warc.Record, got []byte, h *warc.Header, block []byte) {
	if !bytes.Equal(got, block) || rec.BlockVerdict != warc.Matches || rec.PayloadVerdict == warc.Differs {
		t.Fatalf("got the block %q, %v, %v", got, rec.BlockVerdict, rec.PayloadVerdict)
	}
	read := rec.Header
	read.BlockDigest, read.PayloadDigest = "", ""
	if diff := cmp.Diff(*h, read, cmpopts.EquateComparable(ip)); diff != "" {
		t.Fatal(diff)
	}
}
