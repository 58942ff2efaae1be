package main

import (
	"fmt"
	"slices"
	"strings"
)

// page is everything that is written.
type page struct {
	URLs    int      `json:"urls"`
	Seed    uint64   `json:"seed"`
	Mix     []share  `json:"mix"`
	Rows    []*row   `json:"clients"`
	LeftOut []string `json:"left_out"`
}

// share is a kind of URL and its number.
type share struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
	Right string `json:"right"`
}

// row holds the runs of a client.
type row struct {
	client
	Runs []*result `json:"runs"`
}

// count returns a count of all runs: a number, or the smallest and the largest.
func (r *row) count(of func(*result) int) string {
	low, high := of(r.Runs[0]), of(r.Runs[0])
	for _, run := range r.Runs[1:] {
		low, high = min(low, of(run)), max(high, of(run))
	}
	if low == high {
		return fmt.Sprint(low)
	}
	return fmt.Sprintf("%d to %d", low, high)
}

// median returns the median of all runs.
func (r *row) median(of func(*result) float64) float64 {
	var values []float64
	for _, run := range r.Runs {
		values = append(values, of(run))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// columns are the counts of the table.
var columns = []struct {
	name string
	of   func(*result) int
}{
	{"right", func(r *result) int { return r.Verdicts[rightBody] + r.Verdicts[rightFailure] }},
	{"wrong bodies", func(r *result) int { return r.Verdicts[wrongBody] }},
	{"lost", func(r *result) int { return r.Verdicts[lost] }},
	{"no answer", func(r *result) int { return r.Verdicts[unanswered] }},
	{"POSTs sent twice", func(r *result) int { return r.Verdicts[postedTwice] }},
	{"requests", func(r *result) int { return r.Requests }},
	{"too early", func(r *result) int { return sum(r.Early) }},
	{"for nothing", func(r *result) int { return sum(r.Repeated) }},
}

// markdown returns the tables.
func (p *page) markdown() string {
	var b strings.Builder
	b.WriteString("| client | lines | CPU s |")
	for _, c := range columns {
		b.WriteString(" " + c.name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(columns)+2) + "\n")
	for _, r := range p.Rows {
		cpu := fmt.Sprintf("%.2f", r.median(func(r *result) float64 { return r.CPU }))
		if r.fetchd {
			cpu += fmt.Sprintf(" + %.2f", r.median(func(r *result) float64 { return r.ServiceCPU }))
		}
		fmt.Fprintf(&b, "| %s | %d | %s |", r.Name, r.Lines, cpu)
		for _, c := range columns {
			fmt.Fprintf(&b, " %s |", r.count(c.of))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n| client | versions | CPU s to start | wrong about |\n|---|---|---:|---|\n")
	for _, r := range p.Rows {
		fmt.Fprintf(&b, "| %s | %s | %.2f | %s |\n", r.Name, r.With, r.median(func(r *result) float64 { return r.StartCPU }), r.faults())
	}
	b.WriteString("\n| URLs | what the origin does | what is right |\n|---:|---|---|\n")
	for _, s := range p.Mix {
		fmt.Fprintf(&b, "| %d | %s | %s |\n", s.Count, s.Name, s.Right)
	}
	for _, why := range p.LeftOut {
		fmt.Fprintf(&b, "\nLeft out: %s\n", why)
	}
	return b.String()
}

// faults lists what the client was wrong about in the first run, in the order of the kinds.
func (r *row) faults() string {
	var all []string
	for i := range kinds {
		found := r.Runs[0].Faults[kinds[i].name]
		for _, v := range []verdict{wrongBody, lost, unanswered, postedTwice} {
			if found[v] > 0 {
				all = append(all, fmt.Sprintf("%s: %d %s", kinds[i].name, found[v], v))
			}
		}
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, "; ")
}

// judge returns an error if fetchd was wrong about a URL, or asked too early or for nothing.
func (p *page) judge() error {
	judged := 0
	for _, r := range p.Rows {
		if !r.fetchd {
			continue
		}
		judged++
		for _, run := range r.Runs {
			if right := run.Verdicts[rightBody] + run.Verdicts[rightFailure]; right != p.URLs || sum(run.Early)+sum(run.Repeated) > 0 {
				return fmt.Errorf("%s was wrong: %v", r.Name, run)
			}
		}
	}
	if judged == 0 {
		return fmt.Errorf("fetchd was not run: %s", strings.Join(p.LeftOut, "; "))
	}
	return nil
}
