package warc_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/warc"
)

func TestWriteInfo(t *testing.T) {
	fields := []warc.Field{{Name: "software", Value: "test/1"}, {Name: "operator", Value: "Jürgen <j@example.com>"}, {Name: "isPartOf", Value: ""}}
	var file bytes.Buffer
	w, err := warc.NewWriter(&file, warc.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h := warc.Header{Date: date, Filename: "a.warc.gz"}
	place, err := w.WriteInfo(&h, fields)
	if err != nil || h.Type != "" {
		t.Fatalf("error %v, the caller's type is %q", err, h.Type)
	}
	rec, err := warc.NewReader(&file, warc.ReaderOptions{Verify: true}).Next()
	if err != nil {
		t.Fatal(err)
	}
	got, err := warc.ParseFields(rec.Block, warc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fields, got); diff != "" {
		t.Error(diff)
	}
	if err := rec.Finish(); err != nil {
		t.Fatal(err)
	}
	if rec.ID != place.ID || rec.Type != warc.Warcinfo || rec.ContentType != warc.WarcFields || rec.BlockVerdict != warc.Matches || len(rec.Problems) > 0 {
		t.Errorf("got %+v", rec)
	}
}

func TestFormatFieldsRefuses(t *testing.T) {
	tests := []struct {
		name  string
		field warc.Field
	}{
		{"a line in a value", warc.Field{Name: "software", Value: "a\r\nrobots: classic"}},
		{"a name with a space", warc.Field{Name: "user agent", Value: "a"}},
	}
	for _, tt := range tests {
		if _, err := warc.FormatFields([]warc.Field{tt.field}); err == nil {
			t.Errorf("%s was accepted", tt.name)
		}
	}
}

func TestParseFields(t *testing.T) {
	tests := []struct {
		name, block string
		want        []warc.Field
		ok          bool
	}{
		{"nothing", "", nil, true},
		{"one", "a: b\r\n", []warc.Field{{Name: "a", Value: "b"}}, true},
		{"an empty line at the end", "a: b\r\n\r\n", []warc.Field{{Name: "a", Value: "b"}}, true},
		{"a continued value", "a: b\r\n c\r\n", []warc.Field{{Name: "a", Value: "b c"}}, true},
		{"a control character", "a: \x1b\r\n", []warc.Field{{Name: "a", Value: "\x1b"}}, false},
		{"no colon", "a\r\n", nil, false},
		{"no end of the line", "a: b", nil, false},
		{"a line that is too long", "a: " + strings.Repeat("b", 100) + "\r\n", nil, false},
	}
	for _, tt := range tests {
		got, err := warc.ParseFields(io.LimitReader(strings.NewReader(tt.block), 1<<20), warc.Limits{Line: 50})
		if (err == nil) != tt.ok {
			t.Errorf("%s: error %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}
