package download

import (
	"strings"
	"testing"
	"time"

	"fetchd/internal/cli"
)

// A bar fits its columns, whatever the name.
func TestBar(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, tt := range []struct {
		name             string
		at, total, since int64
		columns          int
		want             string
	}{
		{"a.iso", 1 << 20, 4 << 20, 1 << 20, 79, "a.iso            [===          ]  25 %  1.0 MiB of 4.0 MiB  1.0 MiB/s  3s left"},
		{"a.iso", 1 << 20, 4 << 20, 1 << 20, 119, "a.iso                    [=====               ]  25 %  1.0 MiB of 4.0 MiB  1.0 MiB/s  3s left"},
		{"a.iso", 1 << 20, -1, 1 << 20, 79, "a.iso            1.0 MiB  1.0 MiB/s"},
		{"a.iso", -1, -1, 0, 79, "a.iso            0 B"},
		{"漢字漢字漢字漢字漢字.iso", 1 << 20, 4 << 20, 1 << 20, 59, "漢字漢字漢…   25 %  1.0 MiB of 4.0 MiB  1.0 MiB/s  3s left"},
		{"long", 1 << 20, 4 << 20, 1 << 20, 20, "long       25 %  1.…"},
	} {
		r := &track{started: now.Add(-time.Second)}
		r.rename(tt.name)
		r.at.Store(tt.at)
		r.total.Store(tt.total)
		r.received.Store(tt.since)
		got := r.bar(tt.columns, now)
		if got != tt.want || widthOf(got) > tt.columns {
			t.Errorf("%s in %d columns: %q, want %q", tt.name, tt.columns, got, tt.want)
		}
	}
}

// Bars come a few times a second, below the lines, and are taken away.
func TestBoard(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	b := &board{out: &cli.Printer{W: &out}, draws: true, files: 9, started: time.Now(), size: func() (int, int) { return 60, 5 }}
	for range 6 {
		b.add("x").set(0, -1)
	}
	_, _ = b.Write([]byte("a line\n"))
	if out.String() != "" {
		t.Errorf("drawn at once: %q", out.String())
	}
	b.quit = make(chan struct{})
	b.draw()
	if n := strings.Count(out.String(), "\n"); n != 1+3+1 || !strings.HasPrefix(out.String(), "a line\n") {
		t.Errorf("5 rows hold %d lines: %q", n, out.String())
	}
	out.Reset()
	b.draw()
	if got := out.String(); strings.Contains(got, "\x1b[J") || strings.Count(got, "\x1b[K\n") != 4 {
		t.Errorf("drawn again, the bars are not written over the old ones: %q", got)
	}
	out.Reset()
	b.end()
	if got := out.String(); got != "\x1b[4A\r\x1b[J" {
		t.Errorf("at the end %q", got)
	}
}
