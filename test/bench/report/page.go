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

// ByHand returns the text between the marks of an earlier page. It is empty if the page
// has no marks. A page with only one of the marks is an error, because replacing it would
// lose what people wrote.
func ByHand(page string) (string, error) {
	_, after, began := strings.Cut(page, byHandBegin)
	text, _, ended := strings.Cut(after, byHandEnd)
	if began && !ended || !began && strings.Contains(page, byHandEnd) {
		return "", fmt.Errorf("the page has one of the marks %s and %s: give both", byHandBegin, byHandEnd)
	}
	return strings.Trim(text, "\n"), nil
}

// Page is the content of docs/benchmarks.md. Its tables are rows of cells.
type Page struct {
	Machine [][]string // where it was measured
	Command string     // repeats the measurement
	Goals   [][]string // the comparisons; see goalsHead
	Lines   [][]string // the absolute figures; see linesHead
	LeftOut []string   // what could not be measured, and why
	ByHand  string     // the part that people write; see [ByHand]
	Plots   []Plot
}

// Plot is a picture and the name of its file.
type Plot struct{ Title, Name, SVG string }

// The headings of the tables.
var (
	goalsHead = []string{"case", "what", "ratio or figure", "goal", "", "ratio to the relay with fetchd's heap rule", "of / compared with"}
	linesHead = []string{"case", "subject", "fetches/s", "service CPU", "caller CPU", "origin CPU", "p50", "p99", "allocations", "KiB allocated", "memory"}
)

const introduction = `# Benchmarks

Written by ` + "`go run ./test/bench`" + `, which also prints the rate, the latencies and the memory of each subject. The text between the marks "by hand" is kept; the next run replaces the rest.
`

const method = `
## How it is measured

- The origin (a plain net/http server), fetchd, the relay and the caller are separate processes on one machine and use loopback. fetchd is the released program with its defaults: guard, metrics, and a log line for each fetch.
- The bare relay is a server of the same API in at most 150 lines ([test/bench/relay](../test/bench/relay/relay.go)). It makes one net/http request and returns the response, with the same transport and gRPC settings.
  Its heap stays at 4 MiB, so Go collects garbage often. The second ratio is to the same relay with fetchd's rule for the heap.
- A load is a closed loop: a fixed number of fetches are in flight, and each one that ends is followed by the next. A failed fetch ends the run, except in the cases with faults.
- The subjects of a case are measured in turn, forwards in one round and backwards in the next. Each round gives a ratio. The table shows the median, minimum and maximum.
- CPU time is read from the kernel's clock of each process, and divided by the number of fetches that ended. Latencies are those that the caller saw. Memory is resident memory. For waiting fetches it is what the process holds with 10,000 of them minus what it held before.
- All programs share the cores of the machine, so rates are those of the whole system. The ratios of CPU time do not depend on that.
`

// Summary returns the comparisons and the absolute figures, for a terminal.
func (p *Page) Summary() string {
	var out strings.Builder
	table(&out, goalsHead, p.Goals)
	out.WriteString("\nMedians. CPU in µs per fetch, latencies in µs, peak memory in MiB, allocations and memory of the service, or of the caller without one:\n\n")
	table(&out, linesHead, p.Lines)
	for _, why := range p.LeftOut {
		fmt.Fprintf(&out, "left out: %s\n", why)
	}
	return out.String()
}

// Markdown returns the page. It links its plots in the folder benchmarks.
func (p *Page) Markdown() string {
	var out strings.Builder
	out.WriteString(introduction)
	fmt.Fprintf(&out, "\n<!-- not run: takes some minutes with nothing else running -->\n```sh\n%s\n```\n\n", p.Command)
	table(&out, []string{"machine", ""}, p.Machine)
	fmt.Fprintf(&out, "\n%s\n%s\n%s\n\n## Goals\n\n", byHandBegin, p.ByHand, byHandEnd)
	table(&out, goalsHead, p.Goals)
	for _, plot := range p.Plots {
		fmt.Fprintf(&out, "\n![%s](benchmarks/%s)\n", plot.Title, plot.Name)
	}
	if len(p.LeftOut) > 0 {
		out.WriteString("\n## Left out\n\n")
		for _, why := range p.LeftOut {
			fmt.Fprintf(&out, "- %s\n", strings.ReplaceAll(why, "\n", " "))
		}
	}
	out.WriteString(method)
	return out.String()
}

// table writes a Markdown table.
func table(out *strings.Builder, head []string, rows [][]string) {
	escape := strings.NewReplacer("|", `\|`, "\n", " ", "\x00", " | ")
	line := func(cells []string) { fmt.Fprintf(out, "| %s |\n", escape.Replace(strings.Join(cells, "\x00"))) }
	line(head)
	line(strings.Split(strings.Repeat("---,", len(head)-1)+"---", ","))
	for _, cells := range rows {
		line(cells)
	}
}
