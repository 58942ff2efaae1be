package warc_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"fetchd/warc"
)

// onlyWriter hides the other methods of a buffer.
type onlyWriter struct{ io.Writer }

// TestWriterReset writes the same file with one writer that is reset, also after an error and between
// destinations that need a buffer and those that do not.
func TestWriterReset(t *testing.T) {
	h := warc.Header{Type: warc.Resource, ID: idResponse, Date: date, TargetURI: "http://example.com/", ContentType: "text/plain"}
	for name, o := range map[string]warc.WriterOptions{"plain": {Plain: true}, "compressed": {Level: 1}} {
		t.Run(name, func(t *testing.T) {
			var want bytes.Buffer
			fresh, err := warc.NewWriter(&want, o)
			if err != nil {
				t.Fatal(err)
			}
			write := func(w *warc.Writer) warc.Place {
				t.Helper()
				at, err := w.WriteSeeker(&h, strings.NewReader(strings.Repeat("text ", 50_000)), warc.SHA1)
				if err != nil {
					t.Fatal(err)
				}
				return at
			}
			write(fresh)
			w, err := warc.NewWriter(new(bytes.Buffer), o)
			if err != nil {
				t.Fatal(err)
			}
			for i, buffered := range []bool{true, false, true, true, false} {
				w.Reset(broken{}, 7)
				if _, err := w.WriteSeeker(&h, strings.NewReader("text"), warc.SHA1); !errors.Is(err, errBroken) {
					t.Fatal(err)
				}
				var file bytes.Buffer
				var dst io.Writer = &file
				if buffered {
					dst = onlyWriter{&file}
				}
				w.Reset(dst, 100)
				if at := write(w); at.Offset != 100 || at.Length != int64(file.Len()) || w.Offset() != 100+at.Length {
					t.Errorf("%d: record at %d, %d of %d bytes", i, at.Offset, at.Length, file.Len())
				}
				if !bytes.Equal(file.Bytes(), want.Bytes()) {
					t.Errorf("%d: the file differs from that of a new writer", i)
				}
			}
		})
	}
}

var errBroken = errors.New("the destination fails")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// TestDigesterReset computes the digests of a second block.
func TestDigesterReset(t *testing.T) {
	one, err := warc.NewDigester(warc.SHA1, true)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = one.Write([]byte("HTTP/1.1 200 OK\r\n\r\nfirst"))
	one.Reset()
	two, err := warc.NewDigester(warc.SHA1, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []*warc.Digester{one, two} {
		_, _ = d.Write([]byte("HTTP/1.1 200 OK\r\nA: b\r\n\r\nhello"))
	}
	if one.Length() != two.Length() || one.Block() != two.Block() || one.Payload() != two.Payload() {
		t.Errorf("%d bytes with %s and %s, want %d with %s and %s", one.Length(), one.Block(), one.Payload(), two.Length(), two.Block(), two.Payload())
	}
}
