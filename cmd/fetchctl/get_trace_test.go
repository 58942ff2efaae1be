package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"fetchd/cmd/fetchctl/timeline"
	"fetchd/cmd/fetchctl/timeline/timelinetest"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// drawn is the waterfall of messages with fixed times.
func drawn(t *testing.T, w *waterfall, messages []*pb.FetchResponse, since time.Duration) string {
	t.Helper()
	r := new(timeline.Recorder)
	for _, m := range messages {
		r.Take(m)
	}
	var out bytes.Buffer
	w.out = &cli.Printer{W: &out}
	w.draw(r.Fetch(since))
	return out.String()
}

// The whole drawing, as files that a reader can look at. UPDATE=1 writes them anew.
func TestTraceGolden(t *testing.T) {
	t.Parallel()
	flaky, err := timelinetest.Flaky()
	if err != nil {
		t.Fatal(err)
	}
	stalled, err := timelinetest.Stalled()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		file     string
		w        waterfall
		messages []*pb.FetchResponse
	}{
		{"ascii80", waterfall{columns: 80, plain: true}, flaky},
		{"utf8-120", waterfall{columns: 120}, flaky},
		{"color60", waterfall{columns: 60, paint: true}, flaky},
		{"narrow30", waterfall{columns: 30, plain: true}, flaky},
		{"stalled80", waterfall{columns: 80, plain: true}, stalled},
	} {
		t.Run(row.file, func(t *testing.T) {
			t.Parallel()
			got, name := drawn(t, &row.w, row.messages, 150*time.Millisecond), "testdata/trace/"+row.file+".txt"
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			if row.w.plain && strings.ContainsFunc(got, func(r rune) bool { return r >= utf8.RuneSelf }) {
				t.Errorf("%s is not ASCII:\n%s", name, got)
			}
		})
	}
}

// Whatever the width, no line with a bar is longer, and none of an origin's
// characters steers the terminal.
func TestTraceWidths(t *testing.T) {
	t.Parallel()
	messages, err := timelinetest.Flaky()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		for _, h := range m.GetAttemptFinished().GetHops() {
			h.Url = "https://other.example/\x1b[2J\u202eüé" + strings.Repeat("x", 200)
		}
	}
	for _, plain := range []bool{true, false} {
		for columns := 1; columns < 300; columns++ {
			for line := range strings.Lines(drawn(t, &waterfall{columns: columns, plain: plain}, messages, 0)) {
				line = strings.TrimSuffix(line, "\n")
				if strings.ContainsAny(line, "\x1b\u202e") {
					t.Fatalf("a line steers the terminal: %q", line)
				}
				if n := utf8.RuneCountInString(line); strings.ContainsAny(line, "│|") && n > columns {
					t.Fatalf("at %d columns a line has %d:\n%s", columns, n, line)
				}
			}
		}
	}
}

func TestIsUTF8(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		env  map[string]string
		want bool
	}{
		{"none", nil, false},
		{"LANG", map[string]string{"LANG": "de_DE.UTF-8"}, true},
		{"LANG without dash", map[string]string{"LANG": "C.utf8"}, true},
		{"LANG of another", map[string]string{"LANG": "de_DE.ISO-8859-1"}, false},
		{"LC_ALL first", map[string]string{"LC_ALL": "C", "LC_CTYPE": "C.UTF-8", "LANG": "C.UTF-8"}, false},
		{"LC_CTYPE before LANG", map[string]string{"LC_CTYPE": "C.UTF-8", "LANG": "C"}, true},
	} {
		a := &app{cli.Program{Env: func(name string) string { return row.env[name] }}}
		if got := a.isUTF8(); got != row.want {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}
