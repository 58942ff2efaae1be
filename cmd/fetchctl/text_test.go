package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

func TestEscape(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"plain", "a b~", "a b~"},
		{"letters of other scripts", "grüße 漢字", "grüße 漢字"},
		{"escape sequence", "\x1b[2Jx", `\x1b[2Jx`},
		{"C1 control", "a\u009bb", `a\u009bb`},
		{"line end", "a\r\nb", `a\r\nb`},
		{"direction override", "a\u202eb", `a\u202eb`},
		{"invalid byte", "a\xffb", `a\xffb`},
		{"DEL and NUL", "\x7f\x00", `\x7f\x00`},
	} {
		if got := cli.Escape(tt.in); got != tt.want {
			t.Errorf("%s: Escape(%q) = %q, want %q", tt.name, tt.in, got, tt.want)
		}
	}
}

// FuzzEscape: no byte of an origin steers a terminal.
func FuzzEscape(f *testing.F) {
	for _, seed := range []string{"", "plain", "\x1b]0;x\a", "\u202e", "\xc2", "é\r\n\t"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := cli.Escape(s)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsGraphic(r) }) {
			t.Errorf("Escape(%q) = %q", s, got)
		}
	})
}

// A body reaches a terminal whole however it was cut into pieces.
func TestTerminalWriter(t *testing.T) {
	t.Parallel()
	const text = "grüße\r\n\tcut\x1b[31m\r漢\xff\nend \xe6\xbc"
	const want = "grüße\n\tcut\\x1b[31m\\r漢\\xff\nend \\xe6\\xbc"
	for piece := 1; piece <= len(text); piece++ {
		var out bytes.Buffer
		w := &terminalWriter{w: &out}
		for rest := []byte(text); len(rest) > 0; {
			n := min(piece, len(rest))
			if wrote, err := w.Write(rest[:n]); err != nil || wrote != n {
				t.Fatalf("Write of %d bytes: %d, %v", n, wrote, err)
			}
			rest = rest[n:]
		}
		if err := w.flush(); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); got != want {
			t.Errorf("in pieces of %d: %q, want %q", piece, got, want)
		}
	}
}

func TestQuantities(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ got, want string }{
		{size(0), "0 B"}, {size(1023), "1023 B"}, {size(1024), "1.0 KiB"}, {size(12_600), "12.3 KiB"},
		{size(1<<20 - 1), "1.0 MiB"}, {size(1 << 40), "1.0 TiB"}, {size(1<<63 - 1), "8.0 EiB"},
		{took(345 * time.Microsecond), "345 µs"}, {took(340 * time.Millisecond), "340 ms"},
		{took(1234 * time.Millisecond), "1.23 s"}, {took(90 * time.Second), "1m30s"},
		{cli.Count(1, "attempt"), "1 attempt"}, {cli.Count(2, "attempt"), "2 attempts"},
		{statusLine(503), "503 Service Unavailable"}, {statusLine(599), "599"},
		{label(pb.ErrorClass_ERROR_CLASS_HTTP_SERVER_ERROR), "http_server_error"},
		{label(pb.ErrorClass(900)), "unknown_900"},
		{words(pb.RetryVerdict_RETRY_VERDICT_NOT_IDEMPOTENT), "not idempotent"},
		{cut("abcdef", 4), "abc…"}, {cut("abc", 4), "abc"}, {cut("abc", 0), "…"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

func TestByteSize(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		want byteSize
		bad  bool
	}{
		{in: "0"}, {in: "1000", want: 1000}, {in: "500kB", want: 500_000}, {in: "16MiB", want: 16 << 20},
		{in: "1.5K", want: 1536}, {in: "1 GB", want: 1e9},
		{in: "", bad: true}, {in: "MiB", bad: true}, {in: "-1", bad: true}, {in: "1X", bad: true}, {in: "9e99", bad: true},
		{in: "99999999999999TB", bad: true},
	} {
		var got byteSize
		if err := got.UnmarshalText([]byte(tt.in)); (err != nil) != tt.bad || got != tt.want {
			t.Errorf("UnmarshalText(%q) = %d, %v; want %d, error %t", tt.in, got, err, tt.want, tt.bad)
		}
	}
}

func TestFirstLines(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"a line", "overloaded\n", "overloaded"},
		{"blank lines do not count", "\n\n a \n\nb\n", "a|b"},
		{"more than three", "a\nb\nc\nd\n", "a|b|c|…"},
		{"controls", "\x1b[2Jgone", `\x1b[2Jgone`},
		{"binary", "\x00\x01", "2 B that are no text"},
		{"cut inside a character", "gr\xc3", `gr\xc3`},
	} {
		if got := strings.Join(firstLines([]byte(tt.in)), "|"); got != tt.want {
			t.Errorf("%s: firstLines(%q) = %q, want %q", tt.name, tt.in, got, tt.want)
		}
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	length := int64(400 << 10)
	p := &progress{on: true, out: &cli.Printer{W: &out}, columns: 80}
	p.start(&pb.HttpResponse{ContentLength: &length})
	p.chunk(&pb.BodyChunk{Data: make([]byte, 1024)}, time.Second) // begins the body
	p.chunk(&pb.BodyChunk{OffsetBytes: 1024, Data: make([]byte, 1024)}, 1050*time.Millisecond)
	p.chunk(&pb.BodyChunk{OffsetBytes: 99 << 10, Data: make([]byte, 1024)}, 2*time.Second)
	p.clear()
	p.clear()
	rest := int64(300 << 10)
	p.start(&pb.HttpResponse{StatusCode: 206, ContentLength: &rest, Headers: []*pb.Header{{Name: "Content-Range", Value: "bytes 102400-409599/409600"}}})
	p.chunk(&pb.BodyChunk{OffsetBytes: 199 << 10, Data: make([]byte, 1024)}, 3*time.Second) // continues the body
	p.clear()
	want := "\r\x1b[K1.0 KiB of 400.0 KiB  0 %" + "\r\x1b[K100.0 KiB of 400.0 KiB  25 %  100.0 KiB/s" + "\r\x1b[K" +
		"\r\x1b[K200.0 KiB of 400.0 KiB  50 %" + "\r\x1b[K"
	if got := out.String(); got != want {
		t.Errorf("drawn %q, want %q", got, want)
	}
}

func TestProgressOff(t *testing.T) {
	t.Parallel()
	var p progress
	p.start(&pb.HttpResponse{})
	p.chunk(&pb.BodyChunk{Data: []byte("x")}, time.Second) // would panic on its nil writer
	p.clear()
}
