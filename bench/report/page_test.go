package report_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/bench/report"
)

var update = flag.Bool("update", false, "write testdata/page.md")

func example() *report.Page {
	return &report.Page{
		Machine: []report.Fact{{Name: "processor", Value: "one | two"}},
		Command: "go run ./bench",
		Rows: []report.Row{
			{Name: "unary", What: "one beside another", Value: report.Spread{Median: 1.174, Min: 1.1, Max: 1.25}, Goal: report.AtMost(1.2),
				Of:     report.Figure{Name: "a", Spread: report.Spread{Median: 52.13}, Unit: "µs"},
				Beside: report.Figure{Name: "b", Spread: report.Spread{Median: 44.4}, Unit: "µs"}},
			{Name: "rate", What: "one that is missed", Value: report.Spread{Median: 4, Min: 3, Max: 6}, Goal: report.AtLeast(5),
				Of:     report.Figure{Name: "a", Spread: report.Spread{Median: 12345}, Unit: "fetches/s"},
				Beside: report.Figure{Name: "b", Spread: report.Spread{Median: 3086}, Unit: "fetches/s"}},
			{Name: "memory", What: "one alone, without a goal", Value: report.Spread{Median: 15.95, Min: 15, Max: 16}, Unit: "KiB each",
				Of: report.Figure{Name: "a", Spread: report.Spread{Median: 15.95}, Unit: "KiB each"}},
		},
		Lines: []report.Line{
			{Case: "1 KiB", Subject: "a", Rate: 12345, Service: 52.1, Caller: 20, Origin: 18, P50: 900, P90: 1200, P99: 1999, Allocs: 91, AllocBytes: 11 << 10, Peak: 41 << 20},
			{Case: "1 KiB", Subject: "b", Rate: 3086, Caller: 0.05},
		},
		Held:    []report.Held{{Subject: "a", Open: 10_000, Each: report.Spread{Median: 15.5 * 1024, Min: 15 * 1024, Max: 16 * 1024}}},
		LeftOut: []string{"c: exit status 1\nno module"},
		ByHand:  "What people wrote.\n\n- kept",
	}
}

func TestMarkdown(t *testing.T) {
	const path = "testdata/page.md"
	got := example().Markdown([]report.Picture{{Title: "CPU", Name: "cpu.svg"}})
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the page is not that of %s; go test ./bench/report -update writes it (-want +got):\n%s", path, diff)
	}
	kept, err := report.ByHand(got)
	if err != nil || kept != example().ByHand {
		t.Errorf("ByHand of the page = %q, %v, want %q", kept, err, example().ByHand)
	}
}

func TestByHand(t *testing.T) {
	const begin, end = "<!-- by hand: begin -->", "<!-- by hand: end -->"
	for _, row := range []struct {
		name, page, want string
		lost             bool
	}{
		{"no page", "", "", false},
		{"a page without marks", "# Benchmarks\n", "", false},
		{"nothing between them", "a\n" + begin + "\n" + end + "\nb", "", false},
		{"some lines", "a\n" + begin + "\n\none\n\ntwo\n" + end + "\nb", "one\n\ntwo", false},
		{"the end is gone", "a\n" + begin + "\none\n", "", true},
		{"the begin is gone", "one\n" + end + "\n", "", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := report.ByHand(row.page)
			if got != row.want || (err != nil) != row.lost {
				t.Errorf("ByHand(%q) = %q, %v, want %q, an error: %t", row.page, got, err, row.want, row.lost)
			}
		})
	}
}

func TestWriteTable(t *testing.T) {
	var out strings.Builder
	if err := example().WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	want := `case    value                       goal                    of               beside
unary   1.17 [1.10–1.25]            ≤ 1.2  met              52.1 µs          44.4 µs
rate    4.00 [3.00–6.00]            ≥ 5    missed by 1.00   12,345 fetches/s  3,086 fetches/s
memory  15.9 [15.0–16.0] KiB each                           15.9 KiB each
left out: c: exit status 1
no module
`
	squeezed := func(text string) []string { return strings.Fields(text) } // the columns' widths are no matter
	if diff := cmp.Diff(squeezed(want), squeezed(out.String())); diff != "" {
		t.Errorf("the table (-want +got):\n%s", diff)
	}
}

// TestSVG has each plot parsed, with text that XML must escape and values that have
// no logarithm.
func TestSVG(t *testing.T) {
	const awkward = `"a" <b> & 'c'`
	for _, row := range []struct {
		name, svg string
		shapes    map[string]int // elements that there must be
	}{
		{"bars", (&report.Bars{Title: awkward, Unit: "µs", Parts: []string{"service", awkward}, Bars: []report.Bar{
			{Label: awkward, Values: []float64{1, 2}}, {Label: "nothing", Values: []float64{0, 0}},
		}}).SVG(), map[string]int{"title": 1, "rect": 2 + 4}},
		{"no bars", (&report.Bars{Title: "none", Parts: []string{"memory"}}).SVG(), map[string]int{"title": 1, "rect": 0}},
		{"ranges", (&report.Ranges{Title: awkward, Points: [3]string{"50 %", "90 %", "99 %"}, Ranges: []report.Range{
			{Label: awkward, Values: [3]float64{120, 500, 9000}}, {Label: "nothing", Values: [3]float64{0, 0, 0}},
		}}).SVG(), map[string]int{"title": 1, "circle": 6}},
		{"no ranges", (&report.Ranges{Title: "none"}).SVG(), map[string]int{"title": 1, "circle": 0}},
	} {
		t.Run(row.name, func(t *testing.T) {
			elements, text := parsed(t, row.svg)
			for name, want := range row.shapes {
				if elements[name] != want {
					t.Errorf("%d elements %s, want %d, in\n%s", elements[name], name, want, row.svg)
				}
			}
			if elements["svg"] != 1 {
				t.Errorf("%d elements svg, want 1", elements["svg"])
			}
			if strings.Contains(row.svg, "NaN") || strings.Contains(row.svg, "Inf") || strings.Contains(row.svg, `="-`) {
				t.Errorf("a measure is no number, or below zero:\n%s", row.svg)
			}
			if strings.Contains(row.name, "no ") {
				return
			}
			if !strings.Contains(text, awkward) {
				t.Errorf("the text %q does not hold %q", text, awkward)
			}
		})
	}
}

// parsed counts the elements of an XML document, and joins its text.
func parsed(t *testing.T, doc string) (map[string]int, string) {
	t.Helper()
	elements, text := make(map[string]int), ""
	for d := xml.NewDecoder(strings.NewReader(doc)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return elements, text
		}
		if err != nil {
			t.Fatalf("the picture is no XML: %v\n%s", err, doc)
		}
		switch token := token.(type) {
		case xml.StartElement:
			elements[token.Name.Local]++
		case xml.CharData:
			text += string(token)
		}
	}
}
