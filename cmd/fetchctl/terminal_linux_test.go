package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"

	"fetchd/test/clitest"
)

// onTerminal runs a shell command on a separate terminal: terminal [-type FILE] COMMAND. The file is
// typed before it starts. What the terminal shows becomes the file screen. testscript's own ttyin
// closes the terminal when the command ends, whether or not its output was read.
func onTerminal(ts *testscript.TestScript, neg bool, args []string) {
	typed := ""
	if len(args) == 3 && args[0] == "-type" {
		typed, args = ts.ReadFile(args[1]), args[2:]
	}
	if len(args) != 1 {
		ts.Fatalf("usage: terminal [-type FILE] COMMAND")
	}
	screen, terminal, err := clitest.OpenTerminal(80)
	ts.Check(err)
	defer screen.Close()
	if typed != "" {
		_, err = screen.WriteString(typed)
		ts.Check(err)
	}
	var out bytes.Buffer
	cmd := exec.Command("/bin/sh", "-c", args[0])
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = ts.MkAbs("."), terminal, &out, &out
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "HTTP", "HTTPS", "NO_COLOR", "TERM", "SSL_CERT_FILE", "GORACE"} {
		if value := ts.Getenv(name); value != "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	terminal.Close()
	ts.Check(err)
	shown := clitest.Seen(screen)
	err = cmd.Wait()
	ts.Logf("%s%s", out.String(), shown)
	ts.Check(os.WriteFile(ts.MkAbs("screen"), []byte(strings.ReplaceAll(shown, "\r\n", "\n")), 0o600))
	switch {
	case err == nil && neg:
		ts.Fatalf("unexpected success")
	case err != nil && !neg:
		ts.Fatalf("%v", err)
	}
}
