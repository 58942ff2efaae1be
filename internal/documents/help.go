package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// versionOf returns NAME VERSION GO PLATFORM.
func versionOf(program string) ([]string, error) {
	version, err := exec.Command(program, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", program, err)
	}
	fields := strings.Fields(string(version))
	if len(fields) < 2 {
		return nil, fmt.Errorf("%s --version prints %q", program, version)
	}
	return fields, nil
}

// readHelp reads the help of a command.
func readHelp(program string, command ...string) (*helpPage, error) {
	cmd := exec.Command(program, append(command, "--help")...)
	cmd.Env = []string{"COLUMNS=100"} // no setting of this machine appears in the text
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s --help: %w", program, strings.Join(command, " "), err)
	}
	return parse(string(out)), nil
}

// helpPage is a help text.
type helpPage struct {
	usage    string
	sections []section
}

type section struct {
	title string
	lines []string
}

var title = regexp.MustCompile(`^(Commands|Arguments|Flags|Exit codes|Examples|[A-Z][a-z]+):$`)

func parse(text string) *helpPage {
	p := new(helpPage)
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if usage, ok := strings.CutPrefix(line, "Usage: "); ok && p.usage == "" {
			p.usage = usage
		} else if m := title.FindStringSubmatch(line); m != nil {
			p.sections = append(p.sections, section{title: m[1]})
		} else if n := len(p.sections); n > 0 {
			p.sections[n-1].lines = append(p.sections[n-1].lines, line)
		}
	}
	return p
}

// items returns what a section explains.
func (p *helpPage) items(title string) []item {
	for _, s := range p.sections {
		if s.title == title {
			return items(s.lines)
		}
	}
	return nil
}

// item is a flag, a command or an exit code.
type item struct{ term, text string }

var term = regexp.MustCompile(`^ {2,6}(\S+(?: \S+)*)(?: {2,}(\S.*))?$`)

// items returns what the lines explain. Lines that continue an explanation are indented to its column,
// which is further right than any term.
func items(lines []string) []item {
	var all []item
	for _, line := range lines {
		if m := term.FindStringSubmatch(line); m != nil {
			all = append(all, item{m[1], m[2]})
		} else if text := strings.TrimSpace(line); text != "" && len(all) > 0 {
			last := &all[len(all)-1]
			last.text = strings.TrimSpace(last.text + " " + text)
		}
	}
	return all
}
