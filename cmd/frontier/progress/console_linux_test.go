package progress

import (
	"io"
	"os"
	"strings"
	"testing"

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
	c := NewConsole(terminal, func(string) string { return "" })
	if !c.Draws {
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
		c := NewConsole(terminal, func(name string) string { return map[string]string{"TERM": env}[name] })
		if c.Draws != want {
			t.Errorf("with TERM=%q it draws: %v, want %v", env, c.Draws, want)
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
