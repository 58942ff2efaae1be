package manifests

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var flagLine = regexp.MustCompile(`(?m)^ +(?:-\w, )?--(?:\[no-\])?([a-z0-9-]+)`)

// flagsOf returns the flags of the fetchd of this tree.
func flagsOf(t *testing.T) []string {
	t.Helper()
	return flagsOfCommand(t, "fetchd")
}

// flagsOfCommand returns the flags of a command of a program of this tree.
func flagsOfCommand(t *testing.T, command ...string) []string {
	t.Helper()
	run := exec.Command("go", append(append([]string{"run", "./cmd/" + command[0]}, command[1:]...), "--help")...)
	run.Dir = root
	help, err := run.Output()
	if err != nil {
		t.Fatalf("%q --help: %v", command, err)
	}
	return flagsIn(string(help))
}

func flagsIn(help string) []string {
	var names []string
	for _, m := range flagLine.FindAllStringSubmatch(help, -1) {
		names = append(names, m[1])
	}
	return names
}

// isVariable reports whether name is the environment variable of a flag.
func isVariable(name string, known []string) bool {
	flag, ok := strings.CutPrefix(name, "FETCHD_")
	return ok && slices.Contains(known, strings.ReplaceAll(strings.ToLower(flag), "_", "-"))
}
