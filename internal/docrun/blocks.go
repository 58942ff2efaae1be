package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// block is a shell block of a document.
type block struct {
	file string
	line int    // of its fence
	text string // the commands

	want    string // the output that the document shows after it
	hasWant bool

	notRun string   // why it is not run; empty: it is run
	needs  []string // the programs without which it is not run
	exit   int      // the exit status of its last command
	once   string   // why a second run shows something else; empty: it shows the same
}

func (b *block) String() string { return fmt.Sprintf("%s:%d", b.file, b.line) }

var (
	comment  = regexp.MustCompile(`^\s*<!--\s*(.*?)\s*-->\s*$`)
	notRun   = regexp.MustCompile(`^not run: (\S.*)$`)
	needs    = regexp.MustCompile(`^needs: (\S.*)$`)
	inFile   = regexp.MustCompile(`^file: ([\w./-]+)$`)
	once     = regexp.MustCompile(`^once: (\S.*)$`)
	exits    = regexp.MustCompile(`^exit ([1-9][0-9]*)$`)
	listItem = regexp.MustCompile(`^\s*([-*+]|[0-9]+[.)])\s`)
)

// otherShells are the names of shell blocks that would not be run as such.
var otherShells = map[string]bool{"bash": true, "shell": true, "console": true, "zsh": true, "shellsession": true}

// document is what of a Markdown file is run.
type document struct {
	file   string
	blocks []block
	files  map[string]string // what the commands find, by its path in the tree
	faults []string          // as "file:line: fault"
}

// parse reads a document.
func parse(file, text string) *document {
	d := &document{file: file, files: make(map[string]string)}
	fault := func(line int, format string, args ...any) {
		d.faults = append(d.faults, fmt.Sprintf("%s:%d: ", file, line)+fmt.Sprintf(format, args...))
	}
	var marks []string // of the comments directly above this line
	var last *block    // the shell block that is directly above, but for empty lines
	inList := false
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		fence, language, ok := fenceOf(line)
		if !ok {
			switch found := comment.FindStringSubmatch(line); {
			case found != nil:
				marks = append(marks, found[1])
				continue
			case strings.TrimSpace(line) == "":
			case listItem.MatchString(line):
				inList, last = true, nil
			case !strings.HasPrefix(line, " "):
				inList, last = false, nil
			case strings.HasPrefix(line, "    ") && !inList && i > 0 && strings.TrimSpace(lines[i-1]) == "":
				fault(i+1, "an indented block is never run: put ```sh before it and ``` after it")
			}
			marks = nil
			continue
		}
		begin := i
		var content []string
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != fence; i++ {
			content = append(content, strings.TrimPrefix(lines[i], indent(line)))
		}
		if i == len(lines) {
			fault(begin+1, "the block has no end")
		}
		switch {
		case language == "sh":
			b := block{file: file, line: begin + 1, text: strings.Join(content, "\n") + "\n"}
			for _, mark := range marks {
				if err := b.mark(mark); err != nil {
					fault(begin+1, "%v", err)
				}
			}
			d.blocks = append(d.blocks, b)
			last = &d.blocks[len(d.blocks)-1]
		case otherShells[language]:
			fault(begin+1, "a block of %s is never run: call it sh", language)
			last = nil
		case language == "text" && last != nil:
			last.want, last.hasWant = strings.Join(content, "\n"), true
			last = nil
		default:
			last = nil
			for _, mark := range marks {
				if found := inFile.FindStringSubmatch(mark); found != nil && filepath.IsLocal(found[1]) {
					d.files[found[1]] = strings.Join(content, "\n") + "\n"
				}
			}
		}
		marks = nil
	}
	for i := range d.blocks {
		if b := &d.blocks[i]; b.once != "" && !b.hasWant {
			fault(b.line, "a block without its output is run once: remove the mark %q", "once")
		}
	}
	return d
}

// fenceOf returns the fence that a line begins a block with, and the language.
func fenceOf(line string) (fence, language string, ok bool) {
	rest := strings.TrimLeft(line, " ")
	if !strings.HasPrefix(rest, "```") {
		return "", "", false
	}
	language = strings.TrimLeft(rest, "`")
	return rest[:len(rest)-len(language)], strings.TrimSpace(language), !strings.Contains(language, "`")
}

func indent(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " "))] }

// mark applies the comment above a block.
func (b *block) mark(text string) error {
	if found := notRun.FindStringSubmatch(text); found != nil {
		b.notRun = found[1]
		return nil
	}
	if found := needs.FindStringSubmatch(text); found != nil {
		b.needs = strings.Fields(found[1])
		return nil
	}
	if found := once.FindStringSubmatch(text); found != nil {
		b.once = found[1]
		return nil
	}
	if found := exits.FindStringSubmatch(text); found != nil {
		b.exit, _ = strconv.Atoi(found[1]) // digits; what is too long is no exit status
		if b.exit > 0 && b.exit < 256 {
			return nil
		}
	}
	return fmt.Errorf("the comment %q above a shell block: want \"not run: WHY\", \"needs: PROGRAM ...\", \"once: WHY\" or \"exit N\", N from 1 to 255", text)
}

// commands returns the lines of the block that are not empty.
func (b *block) commands() []string {
	var commands []string
	for line := range strings.Lines(b.text) {
		if line = strings.TrimSpace(line); line != "" {
			commands = append(commands, line)
		}
	}
	return commands
}

// shows reports whether got is the output that a document shows. In want, … is any
// text within a line, and a line with … alone any number of lines.
func shows(want, got string) bool {
	var pattern strings.Builder
	pattern.WriteString(`^`)
	for line := range strings.Lines(strings.TrimRight(want, "\n") + "\n") {
		if strings.TrimSpace(line) == "…" {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}
		parts := strings.Split(strings.TrimRight(line, " \n"), "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		pattern.WriteString(strings.Join(parts, `.*?`) + `[ ]*\n`)
	}
	pattern.WriteString(`$`)
	return regexp.MustCompile(pattern.String()).MatchString(strings.TrimRight(got, "\n") + "\n")
}
