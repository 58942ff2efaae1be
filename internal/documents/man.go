package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// man returns the man page of a program of this project, from its --help, so that the page is always that of
// the program.
func man(program, date string) (string, error) {
	overview, err := readHelp(80, program)
	if err != nil {
		return "", err
	}
	fields, err := versionOf(program)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	_, _ = fmt.Fprintf(&out, ".TH %s 1 %s \"%s %s\"\n", strings.ToUpper(fields[0]), date, fields[0], fields[1])
	_, _ = fmt.Fprintf(&out, ".SH NAME\n%s \\- %s\n", filepath.Base(program), escape(overview.first()))
	_, _ = out.WriteString(".nh\n.ad l\n") // names of flags are not divided
	overview.write(&out, ".SH", "", nil)
	for _, i := range overview.items("Commands") {
		command := strings.Fields(i.term)[0]
		p, err := readHelp(80, program, command)
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(&out, ".SH %s\n", strings.ToUpper("command "+command))
		p.write(&out, ".SS", command+": ", overview.explained())
	}
	return out.String(), nil
}

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

// readHelp reads the help of a command in lines of so many columns.
func readHelp(columns int, program string, command ...string) (*helpPage, error) {
	cmd := exec.Command(program, append(command, "--help")...)
	cmd.Env = []string{fmt.Sprintf("COLUMNS=%d", columns)} // no setting of this machine appears in the page
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s --help: %w", program, strings.Join(command, " "), err)
	}
	return parse(string(out)), nil
}

// helpPage is a help text.
type helpPage struct {
	usage    string
	about    []string // lines before the first section
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
		} else {
			p.about = append(p.about, line)
		}
	}
	return p
}

// first returns the first sentence, for the index of man pages.
func (p *helpPage) first() string {
	text, _, _ := strings.Cut(strings.TrimSpace(strings.Join(p.about, " ")), ".")
	return strings.ToLower(text[:min(1, len(text))]) + text[min(1, len(text)):]
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

// explained returns everything that the page explains.
func (p *helpPage) explained() map[item]bool {
	all := make(map[item]bool)
	for _, s := range p.sections {
		for _, i := range items(s.lines) {
			all[i] = true
		}
	}
	return all
}

// write writes the page with headings of a level, without items that another page explains.
func (p *helpPage) write(out *strings.Builder, level, prefix string, known map[item]bool) {
	heading := func(text string) {
		if level == ".SH" {
			text = strings.ToUpper(text)
		}
		_, _ = fmt.Fprintf(out, "%s %s\n", level, escape(prefix+text))
	}
	heading("Synopsis")
	_, _ = fmt.Fprintf(out, ".nf\n%s\n.fi\n", escape(p.usage))
	heading("Description")
	paragraphs(out, p.about)
	for _, s := range p.sections {
		if s.title == "Examples" {
			heading(s.title)
			_, _ = fmt.Fprintf(out, ".nf\n%s\n.fi\n", escape(strings.Trim(strings.Join(s.lines, "\n"), "\n")))
			continue
		}
		if s.title == "Details" {
			heading(s.title)
			paragraphs(out, s.lines)
			continue
		}
		own := slices.DeleteFunc(items(s.lines), func(i item) bool { return known[i] })
		if len(own) > 0 {
			heading(s.title)
		}
		for _, i := range own {
			_, _ = fmt.Fprintf(out, ".TP\n.B %s\n%s\n", escape(i.term), escape(i.text))
		}
	}
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

// paragraphs writes prose. Indented lines are examples and keep their lines.
func paragraphs(out *strings.Builder, lines []string) {
	verbatim := false
	for _, line := range lines {
		if indented := strings.HasPrefix(line, "  "); indented != verbatim && line != "" {
			verbatim = indented
			_, _ = out.WriteString(map[bool]string{true: ".nf\n", false: ".fi\n"}[verbatim])
		}
		if line == "" {
			line = ".PP"
		} else {
			line = escape(line)
		}
		_, _ = out.WriteString(line + "\n")
	}
	if verbatim {
		_, _ = out.WriteString(".fi\n")
	}
}

// escape returns text that roff prints as it is.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
