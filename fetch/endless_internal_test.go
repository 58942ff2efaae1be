package fetch

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"testing"

	"fetchd/classify"
)

// TestEndlessEmptyInput checks that a body of endless empty parts is not read endlessly, because
// the encoded bytes are limited too.
func TestEndlessEmptyInput(t *testing.T) {
	t.Parallel()
	var emptyMember bytes.Buffer
	if err := gzip.NewWriter(&emptyMember).Close(); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, coding string
		part         []byte
	}{
		{"gzip members", "gzip", emptyMember.Bytes()},
		{"zstd frames to be skipped", "zstd", append([]byte{0x50, 0x2a, 0x4d, 0x18, 0, 4, 0, 0}, make([]byte, 1<<10)...)},
		{"stored deflate blocks", "deflate", []byte{0, 0, 0, 0xff, 0xff}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", row.coding)
				many := bytes.Repeat(row.part, 1000)
				for sent := 0; sent < 1<<30; sent += len(many) {
					if _, err := w.Write(many); err != nil {
						return
					}
				}
			}))
			t.Cleanup(s.Close)
			c, err := New(Config{Egress: Egress{Unrestricted: true}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			for _, truncate := range []bool{false, true} {
				req := NewRequest(classify.Standard)
				req.URL, req.MaxBodyBytes, req.Truncate = mustURL(t, s.URL), 1000, truncate
				out := c.Fetch(t.Context(), req, nil)
				if out.Body.EncodedSize > 1000+2*codingOverhead || out.Body.Size != 0 || out.Body.Truncated != truncate {
					t.Errorf("truncate %t: read %d bytes, %d decoded, truncated %t", truncate, out.Body.EncodedSize, out.Body.Size, out.Body.Truncated)
				}
				if truncate != (out.Kind == classify.Success) || !truncate && (out.Failure.Class != classify.BodyTooLarge || out.Failure.Reason != "max_size_bytes") {
					t.Errorf("truncate %t: %s, failure %+v, want BODY_TOO_LARGE, or success if the body may be truncated", truncate, out.Kind, out.Failure)
				}
			}
		})
	}
}
