package report

import (
	"fmt"
	"strings"
)

// The marks around the part of the page that people write.
const (
	byHandBegin = "<!-- by hand: begin -->"
	byHandEnd   = "<!-- by hand: end -->"
)

// ByHand is what stands between the marks of an earlier page; empty where there is
// none. The error is that of a page with one mark: what was written by hand would be
// lost.
func ByHand(page string) (string, error) {
	_, after, began := strings.Cut(page, byHandBegin)
	text, _, ended := strings.Cut(after, byHandEnd)
	if began && !ended || !began && strings.Contains(page, byHandEnd) {
		return "", fmt.Errorf("the page has one of the marks %s and %s: give both", byHandBegin, byHandEnd)
	}
	return strings.Trim(text, "\n"), nil
}

const introduction = `# Benchmarks

Written by ` + "`go run ./bench`" + `. What stands between the marks "by hand" is kept; the rest is replaced by the next run.
`

const method = `
## How it is measured

- Origin, fetchd, relay and caller are processes of their own on one machine and speak over loopback. The origin is a plain net/http server. fetchd is the program that ships, with its defaults: guard,
  metrics, and a log line for each fetch, written to a file. Only loopback and the origin's ports are opened for it.
- The bare relay is a server of the same contract in at most 150 lines ([bench/relay](../bench/relay/relay.go)): one net/http request, its answer handed on, the same transport and gRPC settings, and nothing else.
- A load is a closed loop: so many fetches are open, and one that ends is followed by the next. Every answer must be a 200 with a body of the right length; a fetch that fails ends the run, save where faults are
  asked for.
- The subjects of a case are measured in turn, forwards in one round and backwards in the next. Each round gives a ratio; the table has their median, least and greatest.
- CPU is read from the kernel's clock of each process when the measured time begins and ends, and divided by the fetches that ended between. Times are those that the caller saw. Memory is resident memory: for those
  that wait, what the process holds with 10,000 of them less what it held before, three seconds after the last has come, by the collector's defaults.
- All programs share the machine's cores, so that a rate is one of everything together. The ratios of CPU do not depend on that.
`

// Markdown is the page. Pictures are taken from the folder benchmarks beside it.
func (p *Page) Markdown(pictures []Picture) string {
	var out strings.Builder
	out.WriteString(introduction)
	fmt.Fprintf(&out, "\n<!-- not run: takes some minutes with nothing else running -->\n```sh\n%s\n```\n\n", p.Command)
	table(&out, []string{"machine", ""}, p.Machine, func(f Fact) []string { return []string{f.Name, f.Value} })
	fmt.Fprintf(&out, "\n%s\n%s\n%s\n", byHandBegin, p.ByHand, byHandEnd)
	out.WriteString("\n## Goals\n\n")
	table(&out, []string{"what", "ratio, or figure", "goal", "", "", "beside"}, p.Rows, func(r Row) []string {
		verdict := r.Verdict()
		if strings.HasPrefix(verdict, "missed") {
			verdict = "**" + verdict + "**"
		}
		return []string{r.What, r.text(), r.Goal.String(), verdict, r.Of.text(), r.Beside.text()}
	})
	for _, picture := range pictures {
		fmt.Fprintf(&out, "\n![%s](benchmarks/%s)\n", picture.Title, picture.Name)
	}
	out.WriteString("\n## Absolute figures\n\nMedians of the rounds. CPU in µs a fetch, times in µs, memory in MiB at its most; allocations and memory are those of the service, or of the caller where there is none.\n\n")
	table(&out, []string{"case", "subject", "fetches/s", "service CPU", "caller CPU", "origin CPU", "p50", "p90", "p99", "allocations", "KiB allocated", "memory"}, p.Lines, Line.cells)
	if len(p.Held) > 0 {
		out.WriteString("\n## Memory of what waits\n\n")
		table(&out, []string{"subject", "open", "KiB each"}, p.Held, func(h Held) []string {
			each := Spread{h.Each.Median / 1024, h.Each.Min / 1024, h.Each.Max / 1024}
			return []string{h.Subject, number(float64(h.Open)), fmt.Sprintf("%s [%s–%s]", number(each.Median), number(each.Min), number(each.Max))}
		})
	}
	if len(p.LeftOut) > 0 {
		out.WriteString("\n## Left out\n\n")
		for _, why := range p.LeftOut {
			fmt.Fprintf(&out, "- %s\n", plain(why))
		}
	}
	out.WriteString(method)
	return out.String()
}

// Picture is a plot under the name of its file.
type Picture struct{ Title, Name, SVG string }

func (l Line) cells() []string {
	cells := []string{l.Case, l.Subject}
	for _, v := range []float64{l.Rate, l.Service, l.Caller, l.Origin, l.P50, l.P90, l.P99, l.Allocs, l.AllocBytes / (1 << 10), l.Peak / (1 << 20)} {
		cell := ""
		if v != 0 {
			cell = number(v)
		}
		cells = append(cells, cell)
	}
	return cells
}

// table writes a table of Markdown with a row for each of all.
func table[T any](out *strings.Builder, head []string, all []T, cells func(T) []string) {
	line := func(cells []string) {
		for i, cell := range cells {
			cells[i] = plain(cell)
		}
		fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
	}
	line(head)
	line(strings.Split(strings.Repeat("---,", len(head)-1)+"---", ","))
	for _, one := range all {
		line(cells(one))
	}
}

// plain is text that does not break a table.
func plain(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text)
}
