package warc_test

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/gzip"

	"fetchd/test/must"
	"fetchd/warc"
)

var (
	date = time.Date(2026, 11, 23, 4, 5, 6, 123456789, time.UTC)
	ip   = netip.MustParseAddr("192.0.2.7")
)

const (
	idInfo     = "urn:uuid:00000000-0000-4000-8000-000000000001"
	idRequest  = "urn:uuid:00000000-0000-4000-8000-000000000002"
	idResponse = "urn:uuid:00000000-0000-4000-8000-000000000003"
	idOther    = "urn:uuid:00000000-0000-4000-8000-000000000004"
)

// sample is a record of each type with the bytes that it must have. Lines of want end with CR LF
// in the file.
type sample struct {
	name   string
	header warc.Header
	block  string
	digest warc.Algorithm // "": the header has its digests, or none
	want   string
}

var samples = []sample{
	{
		name:   "warcinfo",
		header: warc.Header{Type: warc.Warcinfo, ID: idInfo, Date: date.Truncate(time.Second), Filename: "a.warc.gz", ContentType: warc.WarcFields},
		block:  "software: test/1\r\nformat: WARC File Format 1.1\r\n",
		want: `WARC/1.1
WARC-Type: warcinfo
WARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000001>
WARC-Date: 2026-11-23T04:05:06Z
WARC-Filename: a.warc.gz
Content-Type: application/warc-fields
Content-Length: 48

software: test/1
format: WARC File Format 1.1


`,
	},
	{
		name: "request",
		header: warc.Header{Type: warc.Request, ID: idRequest, Date: date, TargetURI: "http://example.com/", ConcurrentTo: []string{idResponse},
			IPAddress: ip, Protocol: []string{"http/1.1", "tls/1.3"}, CipherSuite: "TLS_AES_128_GCM_SHA256", WarcinfoID: idInfo, ContentType: warc.HTTPRequest},
		block:  "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
		digest: warc.SHA256,
		want: `WARC/1.1
WARC-Type: request
WARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000002>
WARC-Date: 2026-11-23T04:05:06.123456789Z
WARC-Target-URI: http://example.com/
WARC-Concurrent-To: <urn:uuid:00000000-0000-4000-8000-000000000003>
WARC-IP-Address: 192.0.2.7
WARC-Protocol: http/1.1
WARC-Protocol: tls/1.3
WARC-Cipher-Suite: TLS_AES_128_GCM_SHA256
WARC-Warcinfo-ID: <urn:uuid:00000000-0000-4000-8000-000000000001>
WARC-Block-Digest: sha256:@BLOCK
WARC-Payload-Digest: sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
Content-Type: application/http;msgtype=request
Content-Length: 37

GET / HTTP/1.1
Host: example.com



`,
	},
	{
		name: "response",
		header: warc.Header{Type: warc.Response, ID: idResponse, Date: date, TargetURI: "http://example.com/", ConcurrentTo: []string{idRequest, idOther},
			Truncated: warc.TruncatedDisconnect, IdentifiedPayloadType: "text/plain", ContentType: warc.HTTPResponse,
			Extra: []warc.Field{{Name: "X-Note", Value: "grüße"}, {Name: "x-note", Value: ""}}},
		block:  "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
		digest: warc.SHA1,
		want: `WARC/1.1
WARC-Type: response
WARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000003>
WARC-Date: 2026-11-23T04:05:06.123456789Z
WARC-Target-URI: http://example.com/
WARC-Concurrent-To: <urn:uuid:00000000-0000-4000-8000-000000000002>
WARC-Concurrent-To: <urn:uuid:00000000-0000-4000-8000-000000000004>
WARC-Truncated: disconnect
WARC-Identified-Payload-Type: text/plain
WARC-Block-Digest: sha1:@BLOCK
WARC-Payload-Digest: sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N
Content-Type: application/http;msgtype=response
Content-Length: 43
X-Note: grüße
x-note: 

HTTP/1.1 200 OK
Content-Length: 9

hello

`,
	},
	{
		name:   "resource",
		header: warc.Header{Type: warc.Resource, ID: idOther, Date: date, TargetURI: "file:///etc/motd", ContentType: "text/plain"},
		block:  "hello",
		digest: warc.SHA1,
		want: `WARC/1.1
WARC-Type: resource
WARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000004>
WARC-Date: 2026-11-23T04:05:06.123456789Z
WARC-Target-URI: file:///etc/motd
WARC-Block-Digest: sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N
WARC-Payload-Digest: sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N
Content-Type: text/plain
Content-Length: 5

hello

`,
	},
	{
		name:   "metadata",
		header: warc.Header{Type: warc.Metadata, ID: idOther, Date: date, RefersTo: idResponse, ContentType: warc.WarcFields},
		block:  "fetchTimeMs: 12\r\n",
		digest: warc.SHA1,
		want: `WARC/1.1
WARC-Type: metadata
WARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000004>
WARC-Date: 2026-11-23T04:05:06.123456789Z
WARC-Refers-To: <urn:uuid:00000000-0000-4000-8000-000000000003>
WARC-Block-Digest: sha1:@BLOCK
Content-Type: application/warc-fields
Content-Length: 17

fetchTimeMs: 12


`,
	},
	{
		name: "revisit, identical payload",
		header: warc.Header{Type: warc.Revisit, ID: idOther, Date: date, TargetURI: "http://example.com/b", RefersTo: idResponse,
			RefersToTargetURI: "http://example.com/", RefersToDate: date.Add(-time.Hour).Truncate(time.Millisecond), Profile: warc.IdenticalPayloadDigest,
			PayloadDigest: "sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N", Truncated: warc.TruncatedLength, ContentType: warc.HTTPResponse},
		block:  "HTTP/1.1 200 OK\r\n\r\n",
		digest: warc.SHA1,
		want: `WARC/1.1
WARC-Type: revisit
WARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000004>
WARC-Date: 2026-11-23T04:05:06.123456789Z
WARC-Target-URI: http://example.com/b
WARC-Refers-To: <urn:uuid:00000000-0000-4000-8000-000000000003>
WARC-Refers-To-Target-URI: http://example.com/
WARC-Refers-To-Date: 2026-11-23T03:05:06.123Z
WARC-Profile: http://netpreserve.org/warc/1.1/revisit/identical-payload-digest
WARC-Truncated: length
WARC-Block-Digest: sha1:@BLOCK
WARC-Payload-Digest: sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N
Content-Type: application/http;msgtype=response
Content-Length: 19

HTTP/1.1 200 OK



`,
	},
	{
		name: "revisit, not modified, without a block",
		header: warc.Header{Type: warc.Revisit, ID: idOther, Date: date, TargetURI: "http://example.com/", RefersTo: idResponse,
			Profile: warc.ServerNotModified},
		want: `WARC/1.1
WARC-Type: revisit
WARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000004>
WARC-Date: 2026-11-23T04:05:06.123456789Z
WARC-Target-URI: http://example.com/
WARC-Refers-To: <urn:uuid:00000000-0000-4000-8000-000000000003>
WARC-Profile: http://netpreserve.org/warc/1.1/revisit/server-not-modified
Content-Length: 0



`,
	},
	{
		name: "conversion",
		header: warc.Header{Type: warc.Conversion, ID: idOther, Date: date, TargetURI: "http://example.com/", RefersTo: idResponse,
			ContentType: `text/plain; charset="utf-8"`},
		block: "hello",
		want: `WARC/1.1
WARC-Type: conversion
WARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000004>
WARC-Date: 2026-11-23T04:05:06.123456789Z
WARC-Target-URI: http://example.com/
WARC-Refers-To: <urn:uuid:00000000-0000-4000-8000-000000000003>
Content-Type: text/plain; charset="utf-8"
Content-Length: 5

hello

`,
	},
	{
		name: "continuation",
		header: warc.Header{Type: warc.Continuation, ID: idOther, Date: date, TargetURI: "http://example.com/", SegmentNumber: 2,
			SegmentOriginID: idResponse, SegmentTotalLength: 12},
		block: "rest",
		want: `WARC/1.1
WARC-Type: continuation
WARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000004>
WARC-Date: 2026-11-23T04:05:06.123456789Z
WARC-Target-URI: http://example.com/
WARC-Segment-Number: 2
WARC-Segment-Origin-ID: <urn:uuid:00000000-0000-4000-8000-000000000003>
WARC-Segment-Total-Length: 12
Content-Length: 4

rest

`,
	},
	{
		name:   "a type of an extension",
		header: warc.Header{Type: "screenshot", ID: idOther, Date: date},
		want: `WARC/1.1
WARC-Type: screenshot
WARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000004>
WARC-Date: 2026-11-23T04:05:06.123456789Z
Content-Length: 0



`,
	},
}

// blockDigests are the block digests of samples, computed without this package.
var blockDigests = map[string]string{
	"request":                    "be23e41f8b21ff0264ca05b51c78bba9a7fce74800813b5a1f580fb9700d02b1",
	"response":                   "I5TN5M3HD6CYNQNKRGEN6NHREDQATW77",
	"metadata":                   "NIB2BWQS3HN7KF3L6G2TWK32Q3RN52IO",
	"revisit, identical payload": "OP3ZUEAEIGC5QPO47I7DR5X4KB6IV5TP",
}

func (s sample) golden() string {
	return strings.ReplaceAll(strings.ReplaceAll(s.want, "@BLOCK", blockDigests[s.name]), "\n", "\r\n")
}

// writeSamples writes all samples into one file.
func writeSamples(t testing.TB, o warc.WriterOptions) ([]byte, []warc.Place) {
	t.Helper()
	var file bytes.Buffer
	w, err := warc.NewWriter(&file, o)
	must.Succeed(t, err)
	var places []warc.Place
	for _, s := range samples {
		var place warc.Place
		if s.digest != "" {
			place, err = w.WriteSeeker(&s.header, strings.NewReader(s.block), s.digest)
		} else {
			place, err = w.WriteRecord(&s.header, strings.NewReader(s.block+"not part of it"), int64(len(s.block)))
		}
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if place.ID != s.header.ID {
			t.Errorf("%s: got the identifier %q", s.name, place.ID)
		}
		places = append(places, place)
	}
	if got := w.Offset(); got != o.Offset+int64(file.Len()) {
		t.Errorf("the writer is at %d, the file has %d bytes after %d", got, file.Len(), o.Offset)
	}
	return file.Bytes(), places
}

func TestWriteGolden(t *testing.T) {
	for _, plain := range []bool{true, false} {
		file, places := writeSamples(t, warc.WriterOptions{Plain: plain, Offset: 1000})
		end := int64(1000)
		for i, s := range samples {
			place := places[i]
			if place.Offset != end {
				t.Errorf("%s: at offset %d, the last record ended at %d", s.name, place.Offset, end)
			}
			end += place.Length
			got := file[place.Offset-1000 : end-1000]
			if !plain {
				got = gunzip(t, got)
			}
			if diff := cmp.Diff(s.golden(), string(got)); diff != "" {
				t.Errorf("%s, plain %v: %s", s.name, plain, diff)
			}
		}
	}
}

// gunzip decompresses exactly one member.
func gunzip(t *testing.T, member []byte) []byte {
	t.Helper()
	rest := bytes.NewReader(member)
	z, err := gzip.NewReader(rest)
	must.Succeed(t, err)
	z.Multistream(false)
	content, err := io.ReadAll(z)
	if err != nil || rest.Len() != 0 {
		t.Fatalf("the member has %d more bytes, error %v", rest.Len(), err)
	}
	return content
}

func TestReadSamples(t *testing.T) {
	for _, plain := range []bool{true, false} {
		file, places := writeSamples(t, warc.WriterOptions{Plain: plain, Offset: 7})
		r := warc.NewReader(bytes.NewReader(file), warc.ReaderOptions{Verify: true, Offset: 7})
		for i, s := range samples {
			rec, err := r.Next()
			if err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			got, err := io.ReadAll(rec.Block)
			if err != nil || string(got) != s.block {
				t.Errorf("%s: got the block %q, error %v", s.name, got, err)
			}
			if err := rec.Finish(); err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
			if diff := cmp.Diff(s.header, rec.Header, cmpopts.EquateComparable(ip), cmpopts.IgnoreFields(warc.Header{}, "BlockDigest", "PayloadDigest")); diff != "" {
				t.Errorf("%s: %s", s.name, diff)
			}
			if len(rec.Problems) > 0 || rec.Version != "1.1" || rec.Shared || r.Compressed() == plain {
				t.Errorf("%s: problems %v, version %s, shared %v, compressed %v", s.name, rec.Problems, rec.Version, rec.Shared, r.Compressed())
			}
			if place := (warc.Place{ID: rec.ID, Offset: rec.Offset, Length: rec.Length}); place != places[i] {
				t.Errorf("%s: read at %+v, written at %+v", s.name, place, places[i])
			}
			if want := verdictOf(rec.BlockDigest != ""); rec.BlockVerdict != want {
				t.Errorf("%s: the block digest is %v, want %v", s.name, rec.BlockVerdict, want)
			}
			if want := verdictOf(rec.PayloadDigest != "" && rec.Type != warc.Revisit); rec.PayloadVerdict != want {
				t.Errorf("%s: the payload digest is %v, want %v", s.name, rec.PayloadVerdict, want)
			}
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("after the last record: %v", err)
		}
		if r.Whole() != 7+int64(len(file)) {
			t.Errorf("%d bytes are whole of %d", r.Whole(), 7+len(file))
		}
	}
}

func verdictOf(present bool) warc.Verdict {
	if present {
		return warc.Matches
	}
	return warc.NotChecked
}

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
		must.Succeed(t, err)
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
			must.Succeed(t, err)
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
