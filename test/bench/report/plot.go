package report

import (
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Chart is a plot with a row for each subject: a stacked bar, or points on a logarithmic scale.
type Chart struct {
	Title, Unit string
	Parts       []string // the names of a row's values, at most four
	Points      bool     // draws points, of values in ascending order, instead of bars
	Rows        []Row
}

// Row is one subject, with a value for each part.
type Row struct {
	Label  string
	Values []float64
}

// The dimensions of a plot, in pixels. Grey text and these colors are readable on light and
// on dark pages.
const (
	plotWidth  = 820
	labelWidth = 300
	valueWidth = 110
	headHeight = 58
	rowHeight  = 24
	barHeight  = 14
	footHeight = 26
)

var colors = [...]string{"#2f81c7", "#d18616", "#57a55a", "#a06cc4"}

// svg builds a picture.
type svg struct{ strings.Builder }

// put appends an element.
func (s *svg) put(format string, values ...any) { s.WriteString(fmt.Sprintf(format, values...)) }

func escape(text string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(text)) // a Builder never fails
	return out.String()
}

// begin writes the title, also for screen readers, and the legend.
func (s *svg) begin(title, unit string, rows int, names []string) {
	height := headHeight + rows*rowHeight + footHeight
	s.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+"\n", plotWidth, height, plotWidth, height, escape(title))
	s.put("<title>%s</title>\n", escape(title))
	s.WriteString("<style>text{font:13px system-ui,sans-serif;fill:#6e7781}.title{font-size:15px;font-weight:600}.line{stroke:#6e7781;stroke-opacity:.4}</style>\n")
	s.put(`<text class="title" x="8" y="20">%s, %s</text>`+"\n", escape(title), escape(unit))
	x := 8
	for i, name := range names {
		s.put(`<rect x="%d" y="33" width="10" height="10" fill="%s"/><text x="%d" y="43">%s</text>`+"\n", x, colors[i%len(colors)], x+15, escape(name))
		x += 40 + 8*len([]rune(name))
	}
}

// label writes the name of a row and returns the y coordinate of the row's middle.
func (s *svg) label(i int, text string) int {
	y := headHeight + i*rowHeight + rowHeight/2
	s.put(`<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", labelWidth-8, y+4, escape(text))
	return y
}

// SVG draws the chart.
func (c *Chart) SVG() string {
	s := new(svg)
	names := c.Parts
	if len(names) == 1 {
		names = nil
	}
	s.begin(c.Title, c.Unit, len(c.Rows), names)
	if c.Points {
		c.points(s)
	} else {
		c.bars(s)
	}
	s.WriteString("</svg>\n")
	return s.String()
}

func (c *Chart) bars(s *svg) {
	most := 0.0
	for _, row := range c.Rows {
		most = max(most, total(row.Values))
	}
	for i, row := range c.Rows {
		y, x := s.label(i, row.Label), float64(labelWidth)
		for part, value := range row.Values {
			width := scaled(value, most)
			s.put(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", x, y-barHeight/2, width, barHeight, colors[part%len(colors)])
			x += width
		}
		s.put(`<text x="%.1f" y="%d">%s</text>`+"\n", x+6, y+4, Number(total(row.Values)))
	}
}

func total(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum
}

// scaled converts a value to a length in pixels. most is the full width.
func scaled(value, most float64) float64 {
	if most <= 0 || value <= 0 {
		return 0
	}
	return value / most * (plotWidth - labelWidth - valueWidth)
}

func (c *Chart) points(s *svg) {
	least, most := math.Inf(1), 0.0
	for _, row := range c.Rows {
		least, most = min(least, max(slices.Min(row.Values), 1)), max(most, slices.Max(row.Values))
	}
	from, to := math.Floor(math.Log10(least)), math.Ceil(math.Log10(max(most, 10)))
	at := func(v float64) float64 {
		return labelWidth + scaled(math.Log10(max(v, 1))-from, max(to-from, 1))
	}
	bottom := headHeight + len(c.Rows)*rowHeight
	for tick := from; tick <= to; tick++ {
		x := at(math.Pow(10, tick))
		s.put(`<line class="line" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			x, headHeight, x, bottom, x, bottom+18, Number(math.Pow(10, tick)))
	}
	for i, row := range c.Rows {
		y, last := s.label(i, row.Label), slices.Max(row.Values)
		s.put(`<line class="line" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`+"\n", at(row.Values[0]), y, at(last), y)
		for point, v := range row.Values {
			s.put(`<circle cx="%.1f" cy="%d" r="5" fill="%s"/>`+"\n", at(v), y, colors[point%len(colors)])
		}
		s.put(`<text x="%.1f" y="%d">%s</text>`+"\n", at(last)+10, y+4, Number(last))
	}
}
