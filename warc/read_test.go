package warc_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
			if err != nil {
				t.Fatal(err)
			}
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
				if err != nil {
					t.Fatal(err)
				}
				if err := rec.Finish(); err != nil {
					t.Fatal(err)
				}
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
		if err != nil {
			t.Fatal(err)
		}
		if err := rec.Finish(); err != nil {
			t.Fatal(err)
		}
		if got := (where{rec.Offset, rec.Length, r.Whole(), rec.Shared}); got != want[i] {
			t.Errorf("record %d: got %+v, want %+v", i, got, want[i])
		}
	}
}

func TestBlockAfterNext(t *testing.T) {
	r := warc.NewReader(strings.NewReader(small+small), warc.ReaderOptions{})
	first, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	half := make([]byte, 1)
	if _, err := first.Block.Read(half); err != nil {
		t.Fatal(err)
	}
	block := first.Block
	second, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := block.Read(half); n != 0 || err == nil {
		t.Errorf("the block of the first record can still be read: %d bytes, error %v", n, err)
	}
	if got, err := io.ReadAll(second.Block); err != nil || string(got) != "hi" {
		t.Errorf("the second block is %q, error %v", got, err)
	}
}
