package judge

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"fetchd/conformance/kit"
	"fetchd/internal/cli"
	"fetchd/internal/rules"
)

// Text writes a report for a terminal: the rules, what failed, the totals.
func Text(w io.Writer, p cli.Painter, r *kit.Report) error {
	out := &cli.Printer{W: w}
	out.Printf("%s\n", p.Paint(cli.Bold, strings.TrimSpace(cli.Escape(r.Subject+"  "+r.Version))))
	table(out, r)
	for i := range r.Results {
		writeFailure(out, p, &r.Results[i])
	}
	if why := notRun(r); why != "" {
		out.Printf("\nnot run: %s\n", why)
	}
	vectors, wire := r.Tally(func(x *kit.Result) bool { return x.Vector }), r.Tally(func(x *kit.Result) bool { return !x.Vector })
	if vectors != (kit.Tally{}) {
		out.Printf("\n%s", tallyText("vector", vectors))
	}
	if wire != (kit.Tally{}) {
		out.Printf("\n%s", tallyText("wire scenario", wire))
	}
	out.Printf("\n\n")
	return out.End()
}

// table writes a row for each rule.
func table(out io.Writer, r *kit.Report) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	rows := &cli.Printer{W: t}
	var unseen []string
	rows.Printf("\nrule\tresult\tvectors\tscenarios\tabout\n")
	for _, rule := range r.Rules() {
		about := func(vector bool) kit.Tally {
			return r.Tally(func(x *kit.Result) bool { return x.Vector == vector && slices.Contains(x.Rules, rule) })
		}
		vectors, wire := about(true), about(false)
		if vectors.Judged()+wire.Judged() == 0 {
			unseen = append(unseen, rule)
			continue
		}
		rows.Printf("%s\t%s\t%s\t%s\t%s\n", rule, ruleVerdict(vectors, wire), share(vectors), share(wire), rules.Sentence(rule))
	}
	if len(unseen) > 0 {
		rows.Printf("\nn/a: %s\n", strings.Join(unseen, " "))
	}
	_ = t.Flush() // out keeps the error
}

// ruleVerdict returns "FAILED" if a scenario or vector of the rule failed.
func ruleVerdict(tallies ...kit.Tally) string {
	for _, t := range tallies {
		if t.Failed > 0 {
			return "FAILED"
		}
	}
	return "held"
}

// share formats how many of the judged held.
func share(t kit.Tally) string {
	if t.Judged() == 0 {
		return "–"
	}
	return fmt.Sprintf("%d of %d", t.Held, t.Judged())
}

func writeFailure(out *cli.Printer, p cli.Painter, x *kit.Result) {
	if x.Verdict != kit.Failed {
		return
	}
	out.Printf("\n%s  %s  %s\n", p.Paint(cli.Red, "FAILED"), p.Paint(cli.Bold, x.Name), p.Paint(cli.Dim, strings.Join(x.Rules, " ")))
	for _, m := range x.Wrong {
		out.Printf("  %s: expected %s, got %s\n", cli.Escape(m.What), cli.Escape(m.Want), cli.Escape(m.Got))
	}
}

// notRun returns the reasons why scenarios were not run, each one once.
func notRun(r *kit.Report) string {
	var reasons []string
	for i := range r.Results {
		if why := r.Results[i].Why; why != "" && !slices.Contains(reasons, why) {
			reasons = append(reasons, why)
		}
	}
	return strings.Join(reasons, "; ")
}

func tallyText(noun string, t kit.Tally) string {
	text := fmt.Sprintf("%s: %d held, %d failed", cli.Count(t.Judged(), noun), t.Held, t.Failed)
	if t.Other > 0 {
		text += fmt.Sprintf(" (%d more not judged)", t.Other)
	}
	return text
}
