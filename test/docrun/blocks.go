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
	line int    // line of its fence
	text string // the commands

	want    string // the output that the document shows after it
	hasWant bool

	notRun string   // why it is not run; empty if it is
	needs  []string // programs and files that it needs to be run
	exit   int      // the exit status of its last command
	once   string   // why a second run has other output; empty if it is the same
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

// otherShells are names of shells that docrun does not recognize. They are faults.
var otherShells = map[string]bool{"bash": true, "shell": true, "console": true, "zsh": true, "shellsession": true}

// document is the part of a Markdown file that is run.
type document struct {
	file   string
	blocks []block
	files  map[string]string // files that the document provides, by path in the tree
	faults []string          // as "file:line: fault"
}

// parser reads a document line by line.
type parser struct {
	*document
	marks  []string // comments directly above this line
	shell  *block   // shell block directly above, not counting empty lines
	inList bool
	empty  bool // the line above is empty
}

// parse reads a document.
func parse(file, text string) *document {
	p := &parser{document: &document{file: file, files: make(map[string]string)}}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		fence, language, ok := fenceOf(lines[i])
		if !ok {
			p.prose(i+1, lines[i])
			continue
		}
		begin := i
		var content strings.Builder
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != fence; i++ {
			content.WriteString(strings.TrimPrefix(lines[i], indent(lines[begin])) + "\n")
		}
		if i == len(lines) {
			p.fault(begin+1, "the block has no end")
		}
		p.block(begin+1, language, content.String())
	}
	for i := range p.blocks {
		if b := &p.blocks[i]; b.once != "" && !b.hasWant {
			p.fault(b.line, "a block without its output is run once: remove the mark %q", "once")
		}
	}
	return p.document
}

func (p *parser) fault(line int, format string, args ...any) {
	p.faults = append(p.faults, fmt.Sprintf("%s:%d: ", p.file, line)+fmt.Sprintf(format, args...))
}

// prose reads a line outside blocks.
func (p *parser) prose(n int, line string) {
	if found := comment.FindStringSubmatch(line); found != nil {
		p.marks = append(p.marks, found[1])
		return
	}
	p.marks = nil
	empty := strings.TrimSpace(line) == ""
	switch {
	case empty:
	case listItem.MatchString(line):
		p.inList, p.shell = true, nil
	case !strings.HasPrefix(line, " "):
		p.inList, p.shell = false, nil
	case strings.HasPrefix(line, "    ") && !p.inList && p.empty:
		p.fault(n, "an indented block is never run: put ```sh before it and ``` after it")
	}
	p.empty = empty
}

// block reads a fenced block.
func (p *parser) block(n int, language, content string) {
	marks, shell := p.marks, p.shell
	p.marks, p.shell, p.empty = nil, nil, false
	switch {
	case language == "sh":
		b := block{file: p.file, line: n, text: content}
		for _, mark := range marks {
			if err := b.mark(mark); err != nil {
				p.fault(n, "%v", err)
			}
		}
		p.blocks = append(p.blocks, b)
		p.shell = &p.blocks[len(p.blocks)-1]
	case otherShells[language]:
		p.fault(n, "a block of %s is never run: call it sh", language)
	case language == "text" && shell != nil:
		shell.want, shell.hasWant = strings.TrimSuffix(content, "\n"), true
	default:
		for _, mark := range marks {
			p.asFile(n, mark, content)
		}
	}
}

// asFile records the content of a block whose comment names a file.
func (p *parser) asFile(n int, mark, content string) {
	found := inFile.FindStringSubmatch(mark)
	switch {
	case found != nil && filepath.IsLocal(found[1]):
		p.files[found[1]] = content
	case strings.HasPrefix(mark, "file:"):
		p.fault(n, "the comment %q: want a path within the tree", mark)
	}
}

// fenceOf returns the fence and the language if the line starts a block.
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
		b.exit, _ = strconv.Atoi(found[1]) // digits; a number that is too long is not an exit status
		if b.exit > 0 && b.exit < 256 {
			return nil
		}
	}
	return fmt.Errorf("the comment %q above a shell block: want \"not run: WHY\", \"needs: PROGRAM /FILE ...\", \"once: WHY\" or \"exit N\", N from 1 to 255", text)
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

// shows reports whether got matches the output in a document. In want, … matches any text
// within a line, and a line with only … matches any number of lines.
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
