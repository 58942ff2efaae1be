package timeline_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"fetchd/cmd/fetchctl/timeline"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	testrig "fetchd/test/rig"
)

// drawn is the waterfall of messages with fixed times.
func drawn(t *testing.T, w *timeline.Waterfall, messages []*pb.FetchEvent, since time.Duration) string {
	t.Helper()
	r := new(timeline.Recorder)
	for _, m := range messages {
		r.Take(m)
	}
	var out bytes.Buffer
	w.Out = &cli.Printer{W: &out}
	w.Draw(r.Fetch(since))
	return out.String()
}

// The whole drawing, as files that a reader can look at. UPDATE=1 writes them anew.
func TestTraceGolden(t *testing.T) {
	t.Parallel()
	flaky, err := flakyFetch()
	if err != nil {
		t.Fatal(err)
	}
	stalled, err := stalledFetch()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		file     string
		w        timeline.Waterfall
		messages []*pb.FetchEvent
	}{
		{"ascii80", timeline.Waterfall{Columns: 80, Plain: true}, flaky},
		{"utf8-120", timeline.Waterfall{Columns: 120}, flaky},
		{"color60", timeline.Waterfall{Columns: 60, Paint: true}, flaky},
		{"narrow30", timeline.Waterfall{Columns: 30, Plain: true}, flaky},
		{"stalled80", timeline.Waterfall{Columns: 80, Plain: true}, stalled},
	} {
		t.Run(row.file, func(t *testing.T) {
			t.Parallel()
			got, name := drawn(t, &row.w, row.messages, 150*time.Millisecond), "testdata/"+row.file+".txt"
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
			if row.w.Plain && strings.ContainsFunc(got, func(r rune) bool { return r >= utf8.RuneSelf }) {
				t.Errorf("%s is not ASCII:\n%s", name, got)
			}
		})
	}
}

// Whatever the width, no line with a bar is longer, and none of an origin's
// characters steers the terminal.
func TestTraceWidths(t *testing.T) {
	t.Parallel()
	messages, err := flakyFetch()
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
			for line := range strings.Lines(drawn(t, &timeline.Waterfall{Columns: columns, Plain: plain}, messages, 0)) {
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

// TestTraceWrong draws answers in which a message or a field is missing or wrong, such as a time before the start.
func TestTraceWrong(t *testing.T) {
	t.Parallel()
	flaky, err := flakyFetch()
	if err != nil {
		t.Fatal(err)
	}
	for name, messages := range testrig.Wrong(flaky) {
		for _, w := range []timeline.Waterfall{{Columns: 80}, {Columns: 30, Plain: true}} {
			if got := drawn(t, &w, messages, 0); strings.ContainsAny(got, "\x00\x1b\x07\u202e\u2028") {
				t.Errorf("%s: prints %q", name, got)
			}
		}
	}
}
