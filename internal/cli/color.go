package cli

import "io"

// Color is an SGR parameter.
type Color string

// The colors and styles that the programs use.
const (
	Bold   Color = "1"
	Dim    Color = "2"
	Red    Color = "31"
	Green  Color = "32"
	Yellow Color = "33"
)

// Painter colors text if it is true.
type Painter bool

// Painter returns the painter for w. It colors only on a terminal, and respects NO_COLOR
// (https://no-color.org).
func (p *Program) Painter(w io.Writer) Painter {
	return Painter(IsTerminal(w) && p.Env("NO_COLOR") == "" && p.Env("TERM") != "dumb")
}

// Paint returns s in the color c.
func (p Painter) Paint(c Color, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + string(c) + "m" + s + "\x1b[0m"
}
