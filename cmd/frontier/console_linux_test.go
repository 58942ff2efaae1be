package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"fetchd/cmd/frontier/site"
	"fetchd/internal/cli"
	"fetchd/test/clitest"
	"fetchd/test/need"
)

// openTerminal opens a pseudo-terminal with a number of columns. The test reads from screen what is
// written to terminal.
func openTerminal(t *testing.T, columns uint16) (screen, terminal *os.File) {
	t.Helper()
	screen, terminal, err := clitest.OpenTerminal(columns)
	if err != nil {
		need.Missing(t, "run it where /dev/ptmx exists", "there are no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { _ = screen.Close() })   // it is read to its end
	t.Cleanup(func() { _ = terminal.Close() }) // some tests close it
	return screen, terminal
}

// seen returns what a terminal shows after the program has ended.
func seen(t *testing.T, screen, terminal *os.File) string {
	t.Helper()
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	return clitest.Seen(screen)
}

func TestConsoleDraws(t *testing.T) {
	t.Parallel()
	screen, terminal := openTerminal(t, 20)
	c := newConsole(terminal, func(string) string { return "" })
	if !c.terminal {
		t.Fatal("the pseudo-terminal is taken for none")
	}
	c.draw("a line that is too long for it")
	c.draw("a short line")
	c.Printf("a line of the log that stays, however long\n")
	c.draw("another")
	c.Printf("the end\n")
	diff(t, "screen", "a line that is too "+"\r\x1b[Ka short line"+"\r\x1b[Ka line of the log that stays, however long\r\n"+
		"another"+"\r\x1b[Kthe end\r\n", seen(t, screen, terminal))
}

func TestConsoleOfDumbTerminal(t *testing.T) {
	t.Parallel()
	_, terminal := openTerminal(t, 80)
	for env, want := range map[string]bool{"dumb": false, "xterm": true, "": true} {
		c := newConsole(terminal, func(name string) string { return map[string]string{"TERM": env}[name] })
		if c.terminal != want {
			t.Errorf("with TERM=%q it draws: %v, want %v", env, c.terminal, want)
		}
	}
}

func TestTerminalSize(t *testing.T) {
	t.Parallel()
	_, terminal := openTerminal(t, 132)
	_, unsized := openTerminal(t, 0)
	for _, tt := range []struct {
		name string
		w    io.Writer
		want int
	}{{"a terminal", terminal, 132}, {"a terminal without a size", unsized, 80}, {"not a terminal", &strings.Builder{}, 80}} {
		if got, _ := cli.TerminalSize(tt.w); got != tt.want {
			t.Errorf("%s has %d columns, want %d", tt.name, got, tt.want)
		}
	}
}

func TestRunOnTerminal(t *testing.T) {
	t.Parallel()
	s := startSite(t, site.Config{})
	c := newCrawl(t, at(s, "/p/1"))
	screen, terminal := openTerminal(t, 80)
	code := run(t.Context(), append([]string{"run", "--db", c.db}, inside(s.Port())...), func(string) string { return "" },
		cli.Streams{In: strings.NewReader(""), Out: &strings.Builder{}, Err: terminal})
	got := seen(t, screen, terminal)
	lines := strings.Split(strings.TrimSuffix(got, "\r\n"), "\r\n")
	last := lines[len(lines)-1]
	if i := strings.LastIndex(last, "\x1b[K"); i >= 0 {
		last = last[i+len("\x1b[K"):]
	}
	if code != cli.ExitOK || !strings.HasPrefix(last, "1 completed, 0 failed, 0 retries in ") || !strings.HasSuffix(got, "\r\n") {
		t.Errorf("exit status %d, screen %q, want 0 and the sum in the last line", code, got)
	}
}
