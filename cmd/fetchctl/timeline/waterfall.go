package timeline

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"fetchd/cmd/fetchctl/show"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// Waterfall draws a fetch: a line for each hop with its phases as a bar, and a line for each
// wait, all on one scale.
type Waterfall struct {
	Out     *cli.Printer
	Paint   cli.Painter
	Columns int
	Plain   bool // only ASCII
}

// The parts of a line: label, bar in its frame, time.
const (
	mostLabel = 48
	leastBar  = 10
	timeWidth = 9
)

func (w *Waterfall) labelWidth() int { return min(w.Columns*2/5, mostLabel) }

// barWidth returns 0 if the terminal is too narrow for bars.
func (w *Waterfall) barWidth() int {
	n := w.Columns - w.labelWidth() - timeWidth - 4
	if n < leastBar {
		return 0
	}
	return n
}

// Draw draws the whole fetch.
func (w *Waterfall) Draw(f *Fetch) {
	w.Out.Printf("%s\n", w.Paint.Paint(cli.Bold, w.fit("trace "+f.URL, w.Columns)))
	w.axis(f.End)
	for i := range f.Attempts {
		w.attempt(f, i)
	}
	w.outcome(f)
	w.legend(f)
}

// axis draws the scale above the bars.
func (w *Waterfall) axis(end time.Duration) {
	n := w.barWidth()
	if n == 0 {
		return
	}
	w.Out.Printf("%s  0%*s\n", strings.Repeat(" ", w.labelWidth()), n-1, w.text(show.Took(end)))
}

// attempt draws one attempt, and the wait after it.
func (w *Waterfall) attempt(f *Fetch, i int) {
	a := &f.Attempts[i]
	title := fmt.Sprintf("attempt %d", a.Number)
	if s := a.Status(); s != 0 {
		title += "  " + show.StatusLine(int32(s))
	}
	if e := a.Error; e != nil {
		title += "  " + w.Paint.Paint(cli.Red, w.text(show.Label(e.GetErrorClass())+" ("+e.GetClassRule()+")"))
	}
	w.Out.Printf("%s\n", title)
	for j := range a.Hops {
		w.hop(f, &a.Hops[j])
	}
	switch {
	case a.Decision.GetStopReason() == pb.StopReason_STOP_REASON_NO_FAILURE:
	case a.Decision.GetRetry() != nil:
		end := f.End
		if i+1 < len(f.Attempts) {
			end = f.Attempts[i+1].Start
		}
		w.line(f, "  "+strings.Replace(a.Next(), "retry in", "wait", 1), a.End, end, func(time.Duration, time.Duration) rune { return w.glyphs().gap }, cli.Yellow)
	default:
		w.Out.Printf("  %s\n", w.text(a.Next()))
	}
}

func (w *Waterfall) hop(f *Fetch, h *Hop) {
	status := "---"
	if h.Status != 0 {
		status = strconv.Itoa(h.Status)
	}
	ink := cli.Color("")
	if h.Error != nil {
		ink = cli.Red
	}
	w.line(f, fmt.Sprintf("  %d %s %s %s", h.Number, h.Method, status, shortURL(f.URL, h.URL)), h.Start, h.End,
		func(from, to time.Duration) rune { return w.glyphs().phases[longest(h, from, to)] }, ink)
}

// shortURL drops the origin of a URL if it is that of the fetch.
func shortURL(first, raw string) string {
	a, err1 := url.Parse(first)
	b, err2 := url.Parse(raw)
	if err1 != nil || err2 != nil || a.Scheme != b.Scheme || a.Host != b.Host {
		return raw
	}
	return b.RequestURI()
}

// longest returns the phase with the largest share of a time span, or the longest phase of all
// if none has a share.
func longest(h *Hop, from, to time.Duration) Kind {
	kind, most := Blocked, time.Duration(0)
	whole, all := Blocked, time.Duration(-1)
	for _, p := range h.Phases {
		if part := min(to, p.Start+p.Duration) - max(from, p.Start); part > most {
			kind, most = p.Kind, part
		}
		if p.Duration > all {
			whole, all = p.Kind, p.Duration
		}
	}
	if most == 0 {
		return whole
	}
	return kind
}

// line draws a label, a bar from start to end, and the duration. glyph returns the character
// for a time span.
func (w *Waterfall) line(f *Fetch, label string, start, end time.Duration, glyph func(from, to time.Duration) rune, ink cli.Color) {
	label = w.fit(label, w.labelWidth())
	label += strings.Repeat(" ", max(w.labelWidth()-utf8.RuneCountInString(label), 0))
	spent := w.text(show.Took(end - start))
	n := w.barWidth()
	if n == 0 {
		w.Out.Printf("%s %*s\n", label, timeWidth, spent)
		return
	}
	before, bar := w.bar(f.End, start, end, glyph)
	after := strings.Repeat(" ", n-before-utf8.RuneCountInString(bar))
	if ink != "" {
		bar = w.Paint.Paint(ink, bar)
	}
	frame := string(w.glyphs().frame)
	w.Out.Printf("%s %s%s%s%s%s%*s\n", label, frame, strings.Repeat(" ", before), bar, after, frame, timeWidth, spent)
}

// bar returns the number of cells before a bar, and the bar. It has at least one cell, and
// fits the width.
func (w *Waterfall) bar(whole, start, end time.Duration, glyph func(from, to time.Duration) rune) (before int, bar string) {
	n := time.Duration(w.barWidth())
	whole = max(whole, 1)
	first := min(start*n/whole, n-1)
	last := min(max((end*n+whole-1)/whole, first+1), n)
	var cells strings.Builder
	for i := first; i < last; i++ {
		cells.WriteRune(glyph(i*whole/n, (i+1)*whole/n))
	}
	return int(first), cells.String()
}

// outcome prints how the fetch ended, and by which rule.
func (w *Waterfall) outcome(f *Fetch) {
	o := f.Outcome
	if o == nil {
		w.Out.Printf("%s  %s\n", w.Paint.Paint(cli.Yellow, "no outcome"), w.text(show.Took(f.End)))
		return
	}
	ink, why := cli.Green, ""
	if e := o.GetError(); e != nil {
		ink = cli.Red
		why = fmt.Sprintf("  %s (%s)  stopped: %s", show.Label(e.GetErrorClass()), e.GetClassRule(), show.Label(e.GetStopReason()))
	}
	w.Out.Printf("%s%s  %s  %s  %s\n", w.Paint.Paint(ink, w.text(show.Label(o.GetKind())+" ("+o.GetDecisionRule()+")")), w.text(why),
		cli.Count(int(o.GetAttemptCount()), "attempt"), cli.Count(int(o.GetExchangeCount()), "exchange"), w.text(show.Took(o.GetTotalDuration().AsDuration())))
}

// legend explains the characters in the bars.
func (w *Waterfall) legend(f *Fetch) {
	if w.barWidth() == 0 {
		return
	}
	var there [Kinds]bool
	for _, a := range f.Attempts {
		for _, h := range a.Hops {
			for _, p := range h.Phases {
				there[p.Kind] = true
			}
		}
	}
	g := w.glyphs()
	var parts []string
	for k, yes := range there {
		if yes {
			parts = append(parts, string(g.phases[k])+" "+Kind(k).String())
		}
	}
	if len(f.Attempts) > 1 {
		parts = append(parts, string(g.gap)+" wait between attempts")
	}
	w.Out.Printf("%s\n", w.Paint.Paint(cli.Dim, strings.Join(parts, "  ")))
}

// glyphs are the characters of the bars.
type glyphs struct {
	phases     [Kinds]rune
	gap, frame rune
}

func (w *Waterfall) glyphs() glyphs {
	if w.Plain {
		return glyphs{phases: [Kinds]rune{Blocked: 'b', Resolve: 'r', Connect: 'c', TLS: 't',
			Send: 's', Wait: '-', Receive: '='}, gap: '.', frame: '|'}
	}
	return glyphs{phases: [Kinds]rune{Blocked: '░', Resolve: '▁', Connect: '▃', TLS: '▅',
		Send: '▞', Wait: '━', Receive: '█'}, gap: '·', frame: '│'}
}

// text makes text safe for the terminal, and converts it to ASCII if necessary.
func (w *Waterfall) text(s string) string {
	s = cli.Escape(s)
	if !w.Plain {
		return s
	}
	s = strings.NewReplacer("µ", "u", "…", "...").Replace(s)
	var out []byte
	for _, r := range s {
		if r < utf8.RuneSelf {
			out = append(out, byte(r))
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		out = append(out, quoted[1:len(quoted)-1]...)
	}
	return string(out)
}

// fit shortens text to width characters.
func (w *Waterfall) fit(s string, width int) string {
	s = w.text(s)
	end := "…"
	if w.Plain {
		end = "..."
	}
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:max(width-utf8.RuneCountInString(end), 0)]) + end
}
