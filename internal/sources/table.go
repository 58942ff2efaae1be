package sources

import (
	"errors"
	"regexp"
	"strings"
)

// none stands in a cell that has nothing to name.
const none = "–"

// Row is one statement of a table.
type Row struct {
	Line      int // in the file, from 1
	Statement string
	Rules     []string // such as "H1", or "§9" for a whole section
	Symbols   []string // such as "classify.Decide" or "fetch.(*Client).Fetch"
	Tests     []string // such as "classify.TestDecide" or "fetch.TestFetch/row name"
}

// ErrNoTable says that no table of the text has the columns Statement, Rule,
// Symbol and Test.
var ErrNoTable = errors.New("no table with the columns Statement, Rule, Symbol and Test")

// Parse reads every Markdown table whose header has the columns Statement,
// Rule, Symbol and Test, in any order and among others. Where a cell names
// several things, they are separated by commas. A dash in a cell means none.
func Parse(markdown string) ([]Row, error) {
	var rows []Row
	var columns map[string]int
	found := false
	for n, line := range strings.Split(markdown, "\n") {
		cells := cellsOf(line)
		switch {
		case cells == nil:
			columns = nil
		case columns == nil:
			columns = headerOf(cells)
			found = found || columns["Statement"] > 0
		case columns["Statement"] > 0 && !ruler.MatchString(line):
			rows = append(rows, rowOf(n+1, cells, columns))
		}
	}
	if !found {
		return nil, ErrNoTable
	}
	return rows, nil
}

// ruler is the line between a table's header and its rows.
var ruler = regexp.MustCompile(`^[\s|:-]+$`)

// cellsOf splits a table's line; the first cell is empty, so that columns
// count from 1. It returns nil for a line that belongs to no table.
func cellsOf(line string) []string {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "|") {
		return nil
	}
	const bar = "\x00" // stands in for an escaped bar while the line is split
	line = strings.TrimSuffix(strings.ReplaceAll(line, `\|`, bar), "|")
	cells := strings.Split(line, "|")
	for i, cell := range cells {
		cells[i] = strings.TrimSpace(strings.ReplaceAll(cell, bar, "|"))
	}
	return cells
}

// headerOf returns where each column stands, and an empty map for a table that
// lacks one of the four.
func headerOf(cells []string) map[string]int {
	columns := map[string]int{}
	for i, cell := range cells {
		columns[cell] = i
	}
	for _, name := range []string{"Statement", "Rule", "Symbol", "Test"} {
		if columns[name] == 0 {
			return map[string]int{}
		}
	}
	return columns
}

func rowOf(line int, cells []string, columns map[string]int) Row {
	cell := func(name string) string {
		if i := columns[name]; i < len(cells) {
			return cells[i]
		}
		return ""
	}
	return Row{
		Line:      line,
		Statement: cell("Statement"),
		Rules:     items(cell("Rule")),
		Symbols:   items(cell("Symbol")),
		Tests:     items(cell("Test")),
	}
}

// items splits a cell at its commas, save those inside backquotes.
func items(cell string) []string {
	quoted := false
	parts := strings.FieldsFunc(cell, func(r rune) bool {
		if r == '`' {
			quoted = !quoted
		}
		return r == ',' && !quoted
	})
	var found []string
	for _, part := range parts {
		part = strings.Trim(part, "` ")
		if part != "" && part != none && part != "-" {
			found = append(found, part)
		}
	}
	return found
}
