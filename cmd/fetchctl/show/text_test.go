package show

import (
	"bytes"
	"strings"
	"testing"
	"time"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

func TestQuantities(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ got, want string }{
		{Size(0), "0 B"}, {Size(1023), "1023 B"}, {Size(1024), "1.0 KiB"}, {Size(12_600), "12.3 KiB"},
		{Size(1<<20 - 1), "1.0 MiB"}, {Size(1 << 40), "1.0 TiB"}, {Size(1<<63 - 1), "8.0 EiB"},
		{Took(345 * time.Microsecond), "345 µs"}, {Took(340 * time.Millisecond), "340 ms"},
		{Took(1234 * time.Millisecond), "1.23 s"}, {Took(90 * time.Second), "1m30s"},
		{cli.Count(1, "attempt"), "1 attempt"}, {cli.Count(2, "attempt"), "2 attempts"},
		{StatusLine(503), "503 Service Unavailable"}, {StatusLine(599), "599"},
		{Label(pb.ErrorClass_ERROR_CLASS_HTTP_SERVER_ERROR), "http_server_error"},
		{Label(pb.ErrorClass(900)), "unknown_900"},
		{Label(pb.StopReason_STOP_REASON_NOT_IDEMPOTENT), "not_idempotent"},
		{cut("abcdef", 4), "abc…"}, {cut("abc", 4), "abc"}, {cut("abc", 0), "…"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
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
		{"binary", "\x00\x01", "2 B of binary data"},
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
	p := &Progress{On: true, Out: &cli.Printer{W: &out}, Columns: 80}
	p.start(&pb.HttpResponse{ContentLength: &length})
	p.chunk(&pb.BodyChunk{Data: make([]byte, 1024)}, time.Second) // begins the body
	p.chunk(&pb.BodyChunk{OffsetBytes: 1024, Data: make([]byte, 1024)}, 1050*time.Millisecond)
	p.chunk(&pb.BodyChunk{OffsetBytes: 99 << 10, Data: make([]byte, 1024)}, 2*time.Second)
	p.Clear()
	p.Clear()
	rest := int64(300 << 10)
	p.start(&pb.HttpResponse{StatusCode: 206, ContentLength: &rest, Headers: []*pb.Header{{Name: "Content-Range", Value: "bytes 102400-409599/409600"}}})
	p.chunk(&pb.BodyChunk{OffsetBytes: 199 << 10, Data: make([]byte, 1024)}, 3*time.Second) // continues the body
	p.Clear()
	const empty = "          " // half a bar
	want := "\r[" + empty + empty + "]   0 %  1.0 KiB of 400.0 KiB\x1b[K" +
		"\r[=====     " + empty + "]  25 %  100.0 KiB of 400.0 KiB  99.0 KiB/s  3s left\x1b[K" + "\r\x1b[K" +
		"\r[==========" + empty + "]  50 %  200.0 KiB of 400.0 KiB\x1b[K" + "\r\x1b[K"
	if got := out.String(); got != want {
		t.Errorf("drawn %q, want %q", got, want)
	}
}

func TestGauge(t *testing.T) {
	t.Parallel()
	const kib = 1 << 10
	for _, tt := range []struct {
		name                string
		columns             int
		at, total, received int64
		spent               time.Duration
		want                string
	}{
		{"80 columns", 80, 100 * kib, 400 * kib, 50 * kib, time.Second, "[=====               ]  25 %  100.0 KiB of 400.0 KiB  50.0 KiB/s  6s left"},
		{"a short bar", 60, 100 * kib, 400 * kib, 50 * kib, time.Second, "[=     ]  25 %  100.0 KiB of 400.0 KiB  50.0 KiB/s  6s left"},
		{"no space for a bar", 50, 100 * kib, 400 * kib, 50 * kib, time.Second, " 25 %  100.0 KiB of 400.0 KiB  50.0 KiB/s  6s left"},
		{"unknown total", 80, 100 * kib, -1, 50 * kib, time.Second, "100.0 KiB  50.0 KiB/s"},
		{"nothing came yet", 80, 100 * kib, 400 * kib, 0, time.Second, "[=====               ]  25 %  100.0 KiB of 400.0 KiB"},
		{"less than a second left", 80, 399 * kib, 400 * kib, 50 * kib, time.Second, "[=================== ]  99 %  399.0 KiB of 400.0 KiB  50.0 KiB/s  1s left"},
		{"complete", 80, 400 * kib, 400 * kib, 400 * kib, time.Second, "[====================] 100 %  400.0 KiB of 400.0 KiB  400.0 KiB/s"},
		{"more than the total", 80, 500 * kib, 400 * kib, 500 * kib, time.Second, "[====================] 100 %  500.0 KiB of 400.0 KiB  500.0 KiB/s"},
		{"an hour", 80, 1 << 20, 1 << 30, 1 << 20, 4 * time.Second, "[                    ]   0 %  1.0 MiB of 1.0 GiB  256.0 KiB/s  1h8m12s left"},
	} {
		if got := Gauge(tt.columns, tt.at, tt.total, tt.received, tt.spent); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestProgressOff(t *testing.T) {
	t.Parallel()
	var p Progress
	p.start(&pb.HttpResponse{})
	p.chunk(&pb.BodyChunk{Data: []byte("x")}, time.Second) // would panic on its nil writer
	p.Clear()
}
