package report

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// Bars is a plot with one stacked bar per subject.
type Bars struct {
	Title string
	Unit  string
	// Parts names the parts of a bar, from the left. There are at most four.
	Parts []string
	Bars  []Bar
}

// Bar is one subject, with a value for each part.
type Bar struct {
	Label  string
	Values []float64
}

// Ranges is a plot with three points per subject on a logarithmic scale.
type Ranges struct {
	Title  string
	Unit   string
	Points [3]string // the names of the points, in ascending order
	Ranges []Range
}

// Range is one subject.
type Range struct {
	Label  string
	Values [3]float64
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

// SVG draws the plot.
func (b *Bars) SVG() string {
	s := new(svg)
	names := b.Parts
	if len(names) == 1 {
		names = nil
	}
	s.begin(b.Title, b.Unit, len(b.Bars), names)
	most := 0.0
	for _, bar := range b.Bars {
		most = max(most, total(bar.Values))
	}
	for i, bar := range b.Bars {
		y, x := s.label(i, bar.Label), float64(labelWidth)
		for part, value := range bar.Values {
			width := scaled(value, most)
			s.put(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", x, y-barHeight/2, width, barHeight, colors[part%len(colors)])
			x += width
		}
		s.put(`<text x="%.1f" y="%d">%s</text>`+"\n", x+6, y+4, Number(total(bar.Values)))
	}
	return s.end()
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

// SVG draws the plot.
func (r *Ranges) SVG() string {
	s := new(svg)
	s.begin(r.Title, r.Unit, len(r.Ranges), r.Points[:])
	least, most := math.Inf(1), 0.0
	for _, one := range r.Ranges {
		least, most = min(least, max(one.Values[0], 1)), max(most, one.Values[2])
	}
	from, to := math.Floor(math.Log10(least)), math.Ceil(math.Log10(max(most, 10)))
	at := func(v float64) float64 {
		return labelWidth + scaled(math.Log10(max(v, 1))-from, max(to-from, 1))
	}
	bottom := headHeight + len(r.Ranges)*rowHeight
	for tick := from; tick <= to; tick++ {
		x := at(math.Pow(10, tick))
		s.put(`<line class="line" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			x, headHeight, x, bottom, x, bottom+18, Number(math.Pow(10, tick)))
	}
	for i, one := range r.Ranges {
		y := s.label(i, one.Label)
		s.put(`<line class="line" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`+"\n", at(one.Values[0]), y, at(one.Values[2]), y)
		for point, v := range one.Values {
			s.put(`<circle cx="%.1f" cy="%d" r="5" fill="%s"/>`+"\n", at(v), y, colors[point])
		}
		s.put(`<text x="%.1f" y="%d">%s</text>`+"\n", at(one.Values[2])+10, y+4, Number(one.Values[2]))
	}
	return s.end()
}

func (s *svg) end() string {
	s.WriteString("</svg>\n")
	return s.String()
}
