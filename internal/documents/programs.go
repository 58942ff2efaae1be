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
		version, err := exec.Command(filepath.Join(folder, name), "--version").Output() // NAME VERSION GO PLATFORM
		if err != nil {
			return nil, fmt.Errorf("%s --version: %w", name, err)
		}
		of, err := commandLines(folder, nil, name)
		if err != nil {
			return nil, err
		}
		for _, line := range of {
			lines = append(lines, strings.ReplaceAll(line, "/"+strings.Fields(string(version))[1], "/VERSION"))
		}
	}
	return lines, nil
}

// commandLines returns what the help of a command shows, and that of the commands below it. Flags that a command above
// it has are left out.
func commandLines(folder string, above []string, command ...string) (lines []string, _ error) {
	run := exec.Command(filepath.Join(folder, command[0]), append(command[1:], "--help")...)
	run.Env = []string{"COLUMNS=100"}
	text, err := run.Output()
	if err != nil {
		return nil, fmt.Errorf("%v --help: %w", command, err)
	}
	h, name := parse(string(text), len(command)), strings.Join(command, " ")
	lines = append(lines, h.usage)
	for _, f := range h.flags {
		if slices.Contains(above, f.form) {
			continue
		}
		above = append(above, f.form)
		line := name + " " + f.form
		if m := variable.FindStringSubmatch(f.text); m != nil {
			line += " $" + m[1]
		}
		lines = append(lines, line)
	}
	lines = append(lines, name+" exits with "+strings.Join(h.exits, " "))
	for _, child := range h.commands {
		of, err := commandLines(folder, slices.Clone(above), append(command, child)...)
		if err != nil {
			return nil, err
		}
		lines = append(lines, of...)
	}
	return lines, nil
}

// help is the help of a command.
type help struct {
	usage           string
	flags           []flag
	exits, commands []string
}

type flag struct{ form, text string }

var (
	section  = regexp.MustCompile(`^([A-Z][A-Za-z ]*):$`)
	flagHelp = regexp.MustCompile(`^ {2,6}((?:-[\w#], )?--\S.*?)(?: {2,}(.*))?$`)
	variable = regexp.MustCompile(`\$([A-Z_]+)`)
	exitCode = regexp.MustCompile(`^  (\d+) `)
	// commandHelp is the path of a command, without that of the program.
	commandHelp = regexp.MustCompile(`^  ([a-z-]+(?: [a-z-]+)*)  `)
)

// parse reads the help of a command, whose name has the given number of words.
func parse(text string, words int) (h help) {
	in := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if m := section.FindStringSubmatch(line); m != nil {
			in = m[1]
			continue
		}
		switch in {
		case "":
			if usage, ok := strings.CutPrefix(line, "Usage: "); ok {
				h.usage = usage
			}
		case "Exit codes":
			if m := exitCode.FindStringSubmatch(line); m != nil {
				h.exits = append(h.exits, m[1])
			}
		case "Commands":
			if m := commandHelp.FindStringSubmatch(line); m != nil {
				h.commands = append(h.commands, strings.Fields(m[1])[words-1])
			}
		case "Equivalents", "Examples", "Arguments":
		default: // groups of flags
			if m := flagHelp.FindStringSubmatch(line); m != nil {
				h.flags = append(h.flags, flag{m[1], m[2]})
			} else if n := len(h.flags); n > 0 {
				h.flags[n-1].text += " " + strings.TrimSpace(line)
			}
		}
	}
	return h
}
