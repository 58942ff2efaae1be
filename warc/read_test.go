package warc_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"

	"fetchd/test/must"
	"fetchd/warc"
)

// record returns a record with these fields and a block.
func record(version, fields, block string) string {
	head := "WARC/" + version + "\n" + fields + fmt.Sprintf("Content-Length: %d\n\n", len(block))
	return strings.ReplaceAll(head, "\n", "\r\n") + block + "\r\n\r\n"
}

func TestReadOtherWriters(t *testing.T) {
	const head = "WARC-Type: resource\nWARC-Record-ID: <urn:a:b>\nWARC-Date: 2026-11-23T04:05:06Z\nWARC-Target-URI: http://a/\n"
	tests := []struct {
		name     string
		file     string
		check    func(r *warc.Record) bool
		problems []string
	}{
		{"WARC/1.0 with brackets around the target", record("1.0",
			"WARC-Type: response\nWARC-Record-ID: <urn:a:b>\nWARC-Date: 2026-11-23T04:05:06Z\nWARC-Target-URI: <http://a/>\n", ""),
			func(r *warc.Record) bool { return r.TargetURI == "http://a/" && r.Version == "1.0" }, nil},
		{"an identifier without brackets", record("1.0",
			"WARC-Type: metadata\nWARC-Record-ID: urn:a:b\nWARC-Date: 2026-11-23T04:05:06Z\n", ""),
			func(r *warc.Record) bool { return r.ID == "urn:a:b" }, nil},
		{"a value on further lines", record("1.1", head+"X-A: b\n  c\n\td \n \n", ""),
			func(r *warc.Record) bool { return warc.Get(r.Fields, "x-a") == "b c d" }, nil},
		{"names in other cases, values without a space", record("1.1",
			"warc-type:metadata\nWARC-RECORD-ID:<urn:a:b>\nwarc-date:  \t2026-11-23T04:05:06Z\t\n", ""),
			func(r *warc.Record) bool { return r.Type == warc.Metadata && r.Date.Second() == 6 }, nil},
		{"an unknown type", record("1.1", "WARC-Type: x\nWARC-Record-ID: <urn:a:b>\nWARC-Date: 2026-11-23T04:05:06Z\nWARC-Filename: f\n", ""),
			func(r *warc.Record) bool { return r.Type == "x" }, nil},
		{"a date of a year", record("1.1", strings.Replace(head, "-11-23T04:05:06Z", "", 1), ""),
			func(r *warc.Record) bool { return r.Date.Equal(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) }, nil},
		{"nothing but a length", record("1.1", "", ""), nil,
			[]string{"WARC-Record-ID is missing", "WARC-Date is missing", `WARC-Type: "" is not a type`}},
		{"a date that is none", record("1.1", strings.Replace(head, "2026", "x", 1), ""), nil,
			[]string{"WARC-Date: the value is not a date", "WARC-Date is missing"}},
		{"a field that is repeated", record("1.1", head+"WARC-Target-URI: http://b/\n", ""),
			func(r *warc.Record) bool { return r.TargetURI == "http://a/" }, []string{"WARC-Target-URI is repeated"}},
		{"a target with a space", record("1.1", strings.Replace(head, "http://a/", "http://a/ b", 1), ""),
			func(r *warc.Record) bool { return r.TargetURI == "http://a/ b" },
			[]string{`WARC-Target-URI: byte 9, " ", must be percent-encoded in a URI`}},
		{"a control character", record("1.1", head+"X-A: \x1b[31m\n", ""), nil, []string{"X-A: the value has a control character at byte 0"}},
		{"a name with a space", record("1.1", head+"X A: b\n", ""), nil, []string{`"X A" is not a name of a field`}},
		{"an address that is none", record("1.1", head+"WARC-IP-Address: \x1b\n", ""), nil,
			[]string{"WARC-IP-Address: the value has a control character at byte 0", `WARC-IP-Address: ParseAddr("\x1b"): unable to parse IP`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := warc.NewReader(strings.NewReader(tt.file), warc.ReaderOptions{})
			rec, err := r.Next()
			must.Succeed(t, err)
			var problems []string
			for _, p := range rec.Problems {
				problems = append(problems, fmt.Sprint(p))
			}
			if diff := cmp.Diff(tt.problems, problems); diff != "" {
				t.Error(diff)
			}
			if tt.check != nil && !tt.check(rec) {
				t.Errorf("got %+v", rec)
			}
			if _, err := r.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("after the record: %v", err)
			}
		})
	}
}

func TestVerify(t *testing.T) {
	const (
		head     = "WARC-Type: %s\nWARC-Record-ID: <urn:a:b>\nWARC-Date: 2026-11-23T04:05:06Z\nWARC-Target-URI: http://a/\n"
		hello    = "VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N" // SHA-1 of "hello"
		helloHex = "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"
		other    = "AL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N"
		http     = "Content-Type: application/http; msgtype=response\n"
	)
	tests := []struct {
		name           string
		kind           warc.Type
		fields, block  string
		wantBlock      warc.Verdict
		wantForPayload warc.Verdict
	}{
		{"no digest", warc.Resource, "", "hello", warc.NotChecked, warc.NotChecked},
		{"base32", warc.Resource, "WARC-Block-Digest: sha1:" + hello + "\n", "hello", warc.Matches, warc.NotChecked},
		{"base32 in lower case", warc.Resource, "WARC-Block-Digest: SHA-1:" + strings.ToLower(hello) + "\n", "hello", warc.Matches, warc.NotChecked},
		{"hexadecimal", warc.Resource, "WARC-Block-Digest: sha1:" + helloHex + "\n", "hello", warc.Matches, warc.NotChecked},
		{"a payload that is the block", warc.Resource, "WARC-Payload-Digest: sha1:" + hello + "\n", "hello", warc.NotChecked, warc.Matches},
		{"another digest", warc.Resource, "WARC-Block-Digest: sha1:" + other + "\n", "hello", warc.Differs, warc.NotChecked},
		{"no digest at all", warc.Resource, "WARC-Block-Digest: sha1:x\n", "hello", warc.Differs, warc.NotChecked},
		{"an unknown algorithm", warc.Resource, "WARC-Block-Digest: md5:x\n", "hello", warc.NotChecked, warc.NotChecked},
		{"both", warc.Response, http + "WARC-Block-Digest: sha1:" + other + "\nWARC-Payload-Digest: sha1:" + hello + "\n",
			"HTTP/1.1 200 OK\r\n\r\nhello", warc.Differs, warc.Matches},
		{"a payload that differs", warc.Response, http + "WARC-Payload-Digest: sha1:" + other + "\n",
			"HTTP/1.1 200 OK\r\n\r\nhello", warc.NotChecked, warc.Differs},
		{"a head whose lines end with LF", warc.Response, http + "WARC-Payload-Digest: sha1:" + hello + "\n",
			"HTTP/1.1 200 OK\nA: b\n\nhello", warc.NotChecked, warc.Matches},
		{"a message that is not HTTP", warc.Response, "Content-Type: text/dns\nWARC-Payload-Digest: sha1:" + other + "\n",
			"hello", warc.NotChecked, warc.NotChecked},
		{"the payload of a revisit", warc.Revisit, http + "WARC-Payload-Digest: sha1:" + hello + "\n",
			"HTTP/1.1 200 OK\r\n\r\n", warc.NotChecked, warc.NotChecked},
		{"the payload of a segment", warc.Resource, "WARC-Segment-Number: 1\nWARC-Payload-Digest: sha1:" + other + "\n",
			"hello", warc.NotChecked, warc.NotChecked},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := record("1.1", fmt.Sprintf(head, tt.kind)+tt.fields, tt.block)
			for _, verify := range []bool{true, false} {
				r := warc.NewReader(strings.NewReader(file), warc.ReaderOptions{Verify: verify})
				rec, err := r.Next()
				must.Succeed(t, err)
				must.Succeed(t, rec.Finish())
				wantBlock, wantForPayload := tt.wantBlock, tt.wantForPayload
				if !verify {
					wantBlock, wantForPayload = warc.NotChecked, warc.NotChecked
				}
				if rec.BlockVerdict != wantBlock || rec.PayloadVerdict != wantForPayload {
					t.Errorf("verify %v: block %v, payload %v", verify, rec.BlockVerdict, rec.PayloadVerdict)
				}
			}
		})
	}
}

func TestSharedMember(t *testing.T) {
	alone, shared := zipped(small), zipped(small+small)
	r := warc.NewReader(strings.NewReader(alone+shared+alone), warc.ReaderOptions{})
	type where struct {
		Offset, Length, Whole int64
		Shared                bool
	}
	a, s := int64(len(alone)), int64(len(shared))
	want := []where{{0, a, a, false}, {a, 0, a, true}, {a, 0, a + s, true}, {a + s, a, a + s + a, false}}
	for i := range want {
		rec, err := r.Next()
		must.Succeed(t, err)
		must.Succeed(t, rec.Finish())
		if got := (where{rec.Offset, rec.Length, r.Whole(), rec.Shared}); got != want[i] {
			t.Errorf("record %d: got %+v, want %+v", i, got, want[i])
		}
	}
}

func TestBlockAfterNext(t *testing.T) {
	r := warc.NewReader(strings.NewReader(small+small), warc.ReaderOptions{})
	first, err := r.Next()
	must.Succeed(t, err)
	half := make([]byte, 1)
	if _, err := first.Block.Read(half); err != nil {
		t.Fatal(err)
	}
	block := first.Block
	second, err := r.Next()
	must.Succeed(t, err)
	if n, err := block.Read(half); n != 0 || err == nil {
		t.Errorf("the block of the first record can still be read: %d bytes, error %v", n, err)
	}
	if got, err := io.ReadAll(second.Block); err != nil || string(got) != "hi" {
		t.Errorf("the second block is %q, error %v", got, err)
	}
}

// TestTruncatedAtEveryByte reads a file truncated after each of its bytes: all whole records, then an
// error with the offset of the end of the last one.
func TestTruncatedAtEveryByte(t *testing.T) {
	for _, plain := range []bool{true, false} {
		file, places := writeSamples(t, warc.WriterOptions{Plain: plain})
		for size := range len(file) + 1 {
			whole, records := int64(0), 0
			for _, p := range places {
				if end := p.Offset + p.Length; end <= int64(size) {
					whole, records = end, records+1
				}
			}
			got, err := readAll(bytes.NewReader(file[:size]), warc.ReaderOptions{})
			if got != records {
				t.Fatalf("plain %v, truncated at %d: read %d records, want %d", plain, size, got, records)
			}
			if whole == int64(size) {
				if !errors.Is(err, io.EOF) {
					t.Fatalf("plain %v, truncated at %d, between records: %v", plain, size, err)
				}
				continue
			}
			failure, ok := errors.AsType[*warc.Error](err)
			if !ok || failure.Offset != whole || !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, warc.ErrFormat) {
				t.Fatalf("plain %v, truncated at %d: got %v, want an unexpected end after %d whole bytes", plain, size, err, whole)
			}
		}
	}
}

// readAll returns how many whole records there are, and the error that ended them.
func readAll(src io.Reader, o warc.ReaderOptions) (int, error) {
	r := warc.NewReader(src, o)
	for n := 0; ; n++ {
		rec, err := r.Next()
		if err != nil {
			return n, err
		}
		if err := rec.Finish(); err != nil {
			if _, again := r.Next(); !errors.Is(again, err) {
				return n, errors.New("Next does not repeat the error")
			}
			return n, err
		}
	}
}

func TestAppendAfterRecovery(t *testing.T) {
	for _, plain := range []bool{true, false} {
		file, places := writeSamples(t, warc.WriterOptions{Plain: plain})
		_, err := readAll(bytes.NewReader(file[:len(file)-1]), warc.ReaderOptions{})
		failure, ok := errors.AsType[*warc.Error](err)
		if !ok {
			t.Fatal(err)
		}
		recovered := bytes.NewBuffer(bytes.Clone(file[:failure.Offset]))
		w, err := warc.NewWriter(recovered, warc.WriterOptions{Plain: plain, Offset: failure.Offset})
		must.Succeed(t, err)
		last := samples[len(samples)-1]
		place, err := w.WriteRecord(&last.header, strings.NewReader(last.block), int64(len(last.block)))
		if err != nil || place != places[len(places)-1] {
			t.Errorf("plain %v: appended at %+v, error %v", plain, place, err)
		}
		if !bytes.Equal(recovered.Bytes(), file) {
			t.Errorf("plain %v: the file differs from one that was never truncated", plain)
		}
	}
}

func TestReadInSmallPieces(t *testing.T) {
	for _, plain := range []bool{true, false} {
		file, places := writeSamples(t, warc.WriterOptions{Plain: plain})
		n, err := readAll(iotest.OneByteReader(bytes.NewReader(file)), warc.ReaderOptions{Verify: true})
		if n != len(places) || !errors.Is(err, io.EOF) {
			t.Errorf("plain %v: %d records, error %v", plain, n, err)
		}
	}
}

// TestReadOne reads each record alone, by its offset and length.
func TestReadOne(t *testing.T) {
	for _, plain := range []bool{true, false} {
		file, places := writeSamples(t, warc.WriterOptions{Plain: plain})
		for i, p := range places {
			section := io.NewSectionReader(bytes.NewReader(file), p.Offset, p.Length)
			r := warc.NewReader(section, warc.ReaderOptions{Offset: p.Offset})
			rec, err := r.Next()
			must.Succeed(t, err)
			block, err := io.ReadAll(rec.Block)
			if err != nil || string(block) != samples[i].block || rec.Offset != p.Offset {
				t.Errorf("%s: got %q at %d, error %v", samples[i].name, block, rec.Offset, err)
			}
			if _, err := r.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("%s: after the record: %v", samples[i].name, err)
			}
		}
	}
}

// TestSourceFails shows that an error of the source is not taken for the end of the file.
func TestSourceFails(t *testing.T) {
	fault := errors.New("disk on fire")
	for _, plain := range []bool{true, false} {
		file, places := writeSamples(t, warc.WriterOptions{Plain: plain})
		for name, size := range map[string]int64{
			"at the start":     0,
			"between records":  places[1].Offset,
			"inside a head":    places[1].Offset + 20,
			"inside the block": places[2].Offset - 6,
		} {
			src := io.MultiReader(bytes.NewReader(file[:size]), iotest.ErrReader(fault))
			_, err := readAll(src, warc.ReaderOptions{})
			if _, ok := errors.AsType[*warc.Error](err); !ok || !errors.Is(err, fault) || errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("plain %v, %s: got %v", plain, name, err)
			}
		}
	}
}

const smallHead = "WARC/1.1\r\nWARC-Type: resource\r\nWARC-Record-ID: <urn:a:b>\r\nWARC-Date: 2026-11-23T04:05:06Z\r\nWARC-Target-URI: http://a/\r\n"

// small is a correct record.
const small = smallHead + "Content-Length: 2\r\n\r\nhi\r\n\r\n"

func zipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, s); err != nil {
		panic(err)
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return b.String()
}

// endless repeats a string for ever.
type endless struct {
	s  string
	at int
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.s[e.at]
		e.at = (e.at + 1) % len(e.s)
	}
	return len(p), nil
}

func TestDamagedFiles(t *testing.T) {
	tests := []struct {
		name  string
		file  string
		whole int // records
		want  error
	}{
		{"no byte", "", 0, io.EOF},
		{"one record", small, 1, io.EOF},
		{"one compressed record", zipped(small), 1, io.EOF},
		{"all records in one member", zipped(small + small + small), 3, io.EOF},
		{"records in shared members", zipped(small) + zipped(small+small) + zipped(small), 4, io.EOF},
		{"zeros", strings.Repeat("\x00", 4096), 0, warc.ErrFormat},
		{"zeros after a record", small + strings.Repeat("\x00", 4096), 1, warc.ErrFormat},
		{"a text", "Lorem ipsum\r\n", 0, warc.ErrFormat},
		{"an ARC file", "filedesc://a 0.0.0.0 19960923142103 text/plain 76\n", 0, warc.ErrFormat},
		{"an unknown version", "WARC/2.0\r\n\r\n", 0, warc.ErrFormat},
		{"lines that end with LF", strings.ReplaceAll(small, "\r\n", "\n"), 0, warc.ErrFormat},
		{"a line without a colon", "WARC/1.1\r\nabc\r\n\r\n", 0, warc.ErrFormat},
		{"a first field that is continued", "WARC/1.1\r\n a: b\r\n\r\n", 0, warc.ErrFormat},
		{"no length", smallHead + "\r\n\r\n\r\n", 0, warc.ErrFormat},
		{"an empty length", smallHead + "Content-Length:\r\n\r\n\r\n\r\n", 0, warc.ErrFormat},
		{"a negative length", smallHead + "Content-Length: -1\r\n\r\n\r\n\r\n", 0, warc.ErrFormat},
		{"a length with a sign", smallHead + "Content-Length: +2\r\n\r\nhi\r\n\r\n", 0, warc.ErrFormat},
		{"a length of 20 digits", smallHead + "Content-Length: 99999999999999999999\r\n\r\nhi\r\n\r\n", 0, warc.ErrFormat},
		{"the largest length", smallHead + "Content-Length: 9223372036854775807\r\n\r\nhi\r\n\r\n", 0, io.ErrUnexpectedEOF},
		{"two lengths", smallHead + "Content-Length: 2\r\nContent-length: 2\r\n\r\nhi\r\n\r\n", 0, warc.ErrFormat},
		{"a length that is too small", smallHead + "Content-Length: 1\r\n\r\nhi\r\n\r\n" + small, 0, warc.ErrFormat},
		{"a length that is too large", smallHead + "Content-Length: 3\r\n\r\nhi\r\n\r\n" + small, 0, warc.ErrFormat},
		{"a record without its end", strings.TrimSuffix(small, "\r\n") + small, 0, warc.ErrFormat},
		{"an empty line between records", small + "\r\n" + small, 1, warc.ErrFormat},
		{"an empty member", zipped(small) + zipped("") + zipped(small), 1, warc.ErrFormat},
		{"a record in two members", zipped(small) + zipped(small[:50]) + zipped(small[50:]), 1, warc.ErrFormat},
		{"a member that ends in a block", zipped(small[:len(small)-5]) + zipped(small), 0, warc.ErrFormat},
		{"a member with more than a record", zipped(small+"abc\r\n") + zipped(small), 1, warc.ErrFormat},
		{"a plain record after a compressed one", zipped(small) + small, 1, gzip.ErrHeader},
		{"a compressed record after a plain one", small + zipped(small), 1, warc.ErrFormat},
		{"a wrong checksum", zipped(small)[:len(zipped(small))-5] + "\x00\x00\x00\x00\x00", 0, gzip.ErrChecksum},
		{"a line that is too long", "WARC/1.1\r\nA: " + strings.Repeat("b", 64<<10) + "\r\n\r\n", 0, warc.ErrLimit},
		{"a first line that is too long", "WARC/" + strings.Repeat("1", 65<<10), 0, warc.ErrLimit},
		{"too many fields", "WARC/1.1\r\n" + strings.Repeat("A: b\r\n", 1025) + "\r\n", 0, warc.ErrLimit},
		{"too many continued lines", "WARC/1.1\r\nA: b\r\n" + strings.Repeat(" \r\n", 90<<10) + "\r\n", 0, warc.ErrLimit},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n, err := readAll(strings.NewReader(tt.file), warc.ReaderOptions{Verify: true})
			if n != tt.whole || !errors.Is(err, tt.want) {
				t.Errorf("read %d records, want %d; error %v, want %v", n, tt.whole, err, tt.want)
			}
		})
	}
}

// TestBoundedMemory reads files without an end, and files that decompress to far more than they
// have.
func TestBoundedMemory(t *testing.T) {
	const size = 64 << 20
	tests := []struct {
		name string
		src  io.Reader
		want error
	}{
		{"a line without an end", io.MultiReader(strings.NewReader("WARC/1.1\r\nA: "), &endless{s: "b"}), warc.ErrLimit},
		{"a head without an end", io.MultiReader(strings.NewReader("WARC/1.1\r\n"), &endless{s: "A: b\r\n"}), warc.ErrLimit},
		{"a value without an end", io.MultiReader(strings.NewReader("WARC/1.1\r\nA: b\r\n"), &endless{s: " b\r\n"}), warc.ErrLimit},
		{"a gzip name without an end", io.MultiReader(strings.NewReader("\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\xff"), &endless{s: "b"}), gzip.ErrHeader},
		{"a bomb in a head", strings.NewReader(zipped("WARC/1.1\r\nA: " + strings.Repeat("b", size))), warc.ErrLimit},
		{"a bomb in a block", strings.NewReader(zipped(smallHead + "Content-Length: 67108864\r\n\r\n" + strings.Repeat("b", size) + "\r\n\r\n")), io.EOF},
		{"a bomb after a block", strings.NewReader(zipped(small + strings.Repeat("b", size))), warc.ErrFormat},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := readAll(tt.src, warc.ReaderOptions{Verify: true})
			runtime.ReadMemStats(&after)
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 2<<20 {
				t.Errorf("allocated %d bytes", used)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	tests := []struct {
		name   string
		limits warc.Limits
		want   error
	}{
		{"the line fits", warc.Limits{Line: 40}, io.EOF},
		{"the line does not fit", warc.Limits{Line: 30}, warc.ErrLimit},
		{"the head fits", warc.Limits{Head: len(small) - 6}, io.EOF},
		{"the head does not fit", warc.Limits{Head: len(small) - 7}, warc.ErrLimit},
		{"the fields fit", warc.Limits{Fields: 5}, io.EOF},
		{"the fields do not fit", warc.Limits{Fields: 4}, warc.ErrLimit},
	}
	for _, tt := range tests {
		if _, err := readAll(strings.NewReader(small), warc.ReaderOptions{Limits: tt.limits}); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
}

// TestWriterMemory writes a block that is far larger than what the writer may hold.
func TestWriterMemory(t *testing.T) {
	const size = 64 << 20
	for _, plain := range []bool{true, false} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w, err := warc.NewWriter(io.Discard, warc.WriterOptions{Plain: plain, Level: 1})
		must.Succeed(t, err)
		h := warc.Header{Type: warc.Resource, Date: date, TargetURI: "http://example.com/"}
		if _, err := w.WriteRecord(&h, &endless{s: "b"}, size); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
			t.Errorf("plain %v: allocated %d bytes", plain, used)
		}
	}
}
