package main

import (
	"strings"
	"testing"

	"fetchd/cmd/frontier/site"
	"fetchd/internal/cli"
	"fetchd/test/clitest"
	"fetchd/test/need"
)

func TestRunOnTerminal(t *testing.T) {
	t.Parallel()
	s := startSite(t, site.Config{})
	c := newCrawl(t, at(s, "/p/1"))
	screen, terminal, err := clitest.OpenTerminal(80)
	if err != nil {
		need.Missing(t, "run it where /dev/ptmx exists", "there are no pseudo-terminals here: %v", err)
	}
	defer func() { _ = screen.Close() }() // it is read to its end
	code := run(t.Context(), append([]string{"crawl", "--db", c.db}, inside(s.Port())...), func(string) string { return "" },
		cli.Streams{In: strings.NewReader(""), Out: &strings.Builder{}, Err: terminal})
	must(t, terminal.Close())
	got := clitest.Seen(screen)
	lines := strings.Split(strings.TrimSuffix(got, "\r\n"), "\r\n")
	last := lines[len(lines)-1]
	if i := strings.LastIndex(last, "\x1b[K"); i >= 0 {
		last = last[i+len("\x1b[K"):]
	}
	if code != cli.ExitOK || !strings.HasPrefix(last, "1 completed, 0 failed, 0 retries in ") || !strings.HasSuffix(got, "\r\n") {
		t.Errorf("exit status %d, screen %q, want 0 and the sum in the last line", code, got)
	}
}
