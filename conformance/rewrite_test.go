package conformance_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// typeOf returns the type of an expression as its file would write it. Untyped values have their
// default type.
func (m *mutator) typeOf(n ast.Expr) string {
	typ := m.info.TypeOf(n)
	if typ == nil {
		return ""
	}
	name := types.TypeString(types.Default(typ), func(p *types.Package) string {
		if p == m.pkg {
			return ""
		}
		return p.Name()
	})
	if name == "time.Duration" {
		return "mutantDuration"
	}
	return name
}

// add makes a mutant that replaces the expression by now.
func (m *mutator) add(n ast.Expr, typ, now string) {
	m.alternative(n, typ, m.mutant(n.Pos(), string(m.text(n)), now), now)
}

func (m *mutator) alternative(n ast.Expr, typ string, id int, now string) {
	at := span{m.offset(n.Pos()), m.offset(n.End())}
	c := m.changes[at]
	if c == nil {
		c = &change{typ: typ}
		m.changes[at] = c
	}
	c.ids, c.text = append(c.ids, id), append(c.text, now)
}

// mutant numbers a change. Equal changes in a declaration get a count, so that each has a unique
// key.
func (m *mutator) mutant(pos token.Pos, was, now string) int {
	was, now = strings.Join(strings.Fields(was), " "), strings.Join(strings.Fields(now), " ")
	key := fmt.Sprintf("%s %s: %s => %s", m.file, m.within, was, now)
	if m.seen[key]++; m.seen[key] > 1 {
		key = fmt.Sprintf("%s (%d)", key, m.seen[key])
	}
	id := len(m.mutants) + 1
	m.mutants = append(m.mutants, mutant{id: id, file: m.file, line: m.fset.Position(pos).Line, key: key, was: was, now: now})
	return id
}

// render returns the text of a span with its changes and those inside it.
func (m *mutator) render(whole span) []byte {
	var out bytes.Buffer
	for at := whole.from; at < whole.to; {
		out.WriteString(m.insert[at])
		inner, c := m.longestAt(at, whole)
		if c == nil {
			out.WriteByte(m.src[at])
			at++
			continue
		}
		out.WriteString(c.wrap(m.renderInside(inner)))
		at = inner.to
	}
	return out.Bytes()
}

// renderInside is like render without the change of the span itself.
func (m *mutator) renderInside(at span) string {
	c := m.changes[at]
	delete(m.changes, at)
	text := m.render(at)
	m.changes[at] = c
	return string(text)
}

// longestAt returns the outermost change that starts at an offset.
func (m *mutator) longestAt(offset int, within span) (span, *change) {
	best := span{offset, offset}
	for at := range m.changes {
		if at.from == offset && at.to <= within.to && at.to > best.to {
			best = at
		}
	}
	return best, m.changes[best]
}

// wrap puts the alternatives around an expression, which may have changes inside.
func (c *change) wrap(inner string) string {
	if c.typ == "var" {
		return c.typ
	}
	for i, id := range c.ids {
		if c.typ == "" {
			inner = fmt.Sprintf("(mutant == %d && (%s) || mutant != %d && (%s))", id, c.text[i], id, inner)
		} else {
			inner = fmt.Sprintf("pick[%s](%d, %s, %s)", c.typ, id, c.text[i], inner)
		}
	}
	return inner
}

func (m *mutator) offset(p token.Pos) int { return m.fset.Position(p).Offset }

func (m *mutator) text(n ast.Node) []byte { return m.src[m.offset(n.Pos()):m.offset(n.End())] }
