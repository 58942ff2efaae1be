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

	"fetchd/test/bench/report"
)

var update = flag.Bool("update", false, "write testdata/page.md")

func example() *report.Page {
	return &report.Page{
		Machine: [][]string{{"processor", "one | two"}},
		Command: "go run ./test/bench",
		Goals: [][]string{
			{"unary", "one compared with another", "1.17 [1.10–1.25]", "≤ 1.2", "met", "", "52.1 / 44.4 µs"},
			{"memory", "one alone", "15.9 [15.0–16.0] KiB each", "", "", "", "15.9 KiB each"},
		},
		Lines:   [][]string{{"1 KiB", "a", "12,345", "52.1", "20.0", "18.0", "900", "1,999", "91.0", "11.0", "41.0"}},
		LeftOut: []string{"c: exit status 1\nno module"},
		ByHand:  "What people wrote.\n\n- kept",
		Plots:   []report.Plot{{Title: "CPU", Name: "cpu.svg"}},
	}
}

func TestMarkdown(t *testing.T) {
	const path = "testdata/page.md"
	got := example().Markdown()
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
		t.Errorf("the page differs from %s; go test ./test/bench/report -update writes it (-want +got):\n%s", path, diff)
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
		{"no end mark", "a\n" + begin + "\none\n", "", true},
		{"no begin mark", "one\n" + end + "\n", "", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := report.ByHand(row.page)
			if got != row.want || (err != nil) != row.lost {
				t.Errorf("ByHand(%q) = %q, %v, want %q, an error: %t", row.page, got, err, row.want, row.lost)
			}
		})
	}
}

func TestSummary(t *testing.T) {
	got := example().Summary()
	for _, want := range []string{"| unary | one compared with another | 1.17 [1.10–1.25] | ≤ 1.2 | met |  | 52.1 / 44.4 µs |\n", "\n| 1 KiB | a | 12,345 | ", "left out: c: exit status 1\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the summary does not contain %q:\n%s", want, got)
		}
	}
}

// TestSVG parses each plot, with text that XML must escape and values without a logarithm.
func TestSVG(t *testing.T) {
	const awkward = `"a" <b> & 'c'`
	for _, row := range []struct {
		name, svg string
		shapes    map[string]int // the expected elements
	}{
		{"bars", (&report.Chart{Title: awkward, Unit: "µs", Parts: []string{"service", awkward}, Rows: []report.Row{
			{Label: awkward, Values: []float64{1, 2}}, {Label: "nothing", Values: []float64{0, 0}},
		}}).SVG(), map[string]int{"title": 1, "rect": 2 + 4}},
		{"no bars", (&report.Chart{Title: "none", Parts: []string{"memory"}}).SVG(), map[string]int{"title": 1, "rect": 0}},
		{"ranges", (&report.Chart{Title: awkward, Points: true, Parts: []string{"50 %", "90 %", "99 %"}, Rows: []report.Row{
			{Label: awkward, Values: []float64{120, 500, 9000}}, {Label: "nothing", Values: []float64{0, 0, 0}},
		}}).SVG(), map[string]int{"title": 1, "circle": 6}},
		{"no ranges", (&report.Chart{Title: "none", Points: true}).SVG(), map[string]int{"title": 1, "circle": 0}},
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
				t.Errorf("a dimension is not a number, or negative:\n%s", row.svg)
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

// parsed counts the elements of an XML document and returns its text.
func parsed(t *testing.T, doc string) (map[string]int, string) {
	t.Helper()
	elements, text := make(map[string]int), ""
	for d := xml.NewDecoder(strings.NewReader(doc)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return elements, text
		}
		if err != nil {
			t.Fatalf("the plot is not XML: %v\n%s", err, doc)
		}
		switch token := token.(type) {
		case xml.StartElement:
			elements[token.Name.Local]++
		case xml.CharData:
			text += string(token)
		}
	}
}
