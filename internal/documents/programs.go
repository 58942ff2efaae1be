package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// programLines returns the commands and flags of the programs that are published. They are built if there is no folder
// with them.
func programLines(folder string) (lines []string, err error) {
	if folder == "" {
		if folder, err = os.MkdirTemp("", "surface"); err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", folder+"/", "./cmd/...").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go build: %w\n%s", err, out)
		}
	}
	for _, name := range []string{"fetchd", "fetchctl", "frontier"} {
		version, err := versionOf(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		of, err := commandLines(folder, nil, name)
		if err != nil {
			return nil, err
		}
		for _, line := range of {
			lines = append(lines, strings.ReplaceAll(line, "/"+version[1], "/VERSION"))
		}
	}
	return lines, nil
}

// commandLines returns what the help of a command shows, and that of the commands below it. Flags that a command above
// it has are left out.
func commandLines(folder string, above []string, command ...string) (lines []string, _ error) {
	h, err := readHelp(filepath.Join(folder, command[0]), command[1:]...)
	if err != nil {
		return nil, err
	}
	name := strings.Join(command, " ")
	lines = append(lines, h.usage)
	for _, s := range h.sections {
		if slices.Contains([]string{"Commands", "Details", "Exit codes", "Equivalents", "Examples", "Arguments"}, s.title) {
			continue
		}
		for _, f := range items(s.lines) {
			if !strings.HasPrefix(f.term, "-") || slices.Contains(above, f.term) { // a group of flags has a description
				continue
			}
			above = append(above, f.term)
			line := name + " " + f.term
			if m := variable.FindStringSubmatch(f.text); m != nil {
				line += " $" + m[1]
			}
			lines = append(lines, line)
		}
	}
	exits := name + " exits with"
	for _, e := range h.items("Exit codes") {
		exits += " " + e.term
	}
	lines = append(lines, exits)
	for _, child := range h.items("Commands") {
		of, err := commandLines(folder, slices.Clone(above), append(command, strings.Fields(child.term)[len(command)-1])...)
		if err != nil {
			return nil, err
		}
		lines = append(lines, of...)
	}
	return lines, nil
}

var variable = regexp.MustCompile(`\$([A-Z_]+)`)
