package feed

import (
	"bytes"
	"io"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/cmd/frontier/progress"
	"fetchd/frontier/store"
	"fetchd/test/must"
)

// TestFeedOnTerminal checks that progress is drawn, and that a report removes it.
func TestFeedOnTerminal(t *testing.T) {
	t.Parallel()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "frontier.db"), store.Config{})
	must.Succeed(t, err)
	defer func() { _ = s.Close() }() // nothing is left to lose
	synctest.Test(t, func(t *testing.T) {
		in, stdin := io.Pipe()
		go func() {
			_, _ = io.WriteString(stdin, "http://a.test/1\nhttp://a.test/2\n") // the pipe has a reader
			time.Sleep(1500 * time.Millisecond)                                //nolint:forbidigo // time in a bubble
			_, _ = io.WriteString(stdin, "bad\n")
			_ = stdin.Close()
		}()
		sources, err := Sources(nil, []string{"-"}, nil, in)
		must.Succeed(t, err)
		var told bytes.Buffer
		f := &Feed{Store: s, Line: progress.NewLine(&told), Clean: func(text string) string { return text }}
		f.Terminal = true
		if err := f.Add(t.Context(), sources); err != nil || f.Bad != 1 {
			t.Errorf("Add = %v, %d bad; want 1 bad", err, f.Bad)
		}
		if got, want := f.Sum(), "2 added, 0 known, 1 bad"; got != want {
			t.Errorf("sum %q, want %q", got, want)
		}
		if got, want := told.String(), "\r\x1b[K2 URLs read, 2/s\r\x1b[Kstdin:3: URL has the wrong scheme: it has none\n"; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}
