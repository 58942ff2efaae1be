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
	command := exec.Command("go", "run", "./cmd/fetchd", "--help")
	command.Dir = root
	help, err := command.Output()
	if err != nil {
		t.Fatalf("fetchd --help: %v", err)
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
