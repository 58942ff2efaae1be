package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"fetchd/conformance/kit"
	"fetchd/internal/cli"
	"fetchd/internal/plainjson"
	"fetchd/internal/rules"
	"fetchd/internal/version"
)

// report writes what came of the subjects where the flags say.
func (c *conformanceCmd) report(a *app, reports []kit.Report) error {
	if c.Markdown != "" {
		var page bytes.Buffer
		markdown(&cli.Printer{W: &page}, reports)
		if err := os.WriteFile(c.Markdown, page.Bytes(), 0o644); err != nil {
			return cli.OutputError(err)
		}
	}
	out := &cli.Printer{W: a.Out}
	if c.JSON {
		data, err := json.MarshalIndent(struct {
			Fetchctl string       `json:"fetchctl"`
			Reports  []kit.Report `json:"reports"`
		}{version.Long(), reports}, "", "  ")
		if err != nil {
			return err
		}
		out.Printf("%s\n", plainjson.Escape(data))
	} else {
		for i := range reports {
			told(out, a.painterFor(a.Out), &reports[i])
		}
	}
	if out.Err != nil {
		return cli.OutputError(out.Err)
	}
	return nil
}

// told is the report for a terminal: rules, what did not hold, totals.
func told(out *cli.Printer, p painter, r *kit.Report) {
	out.Printf("%s\n", p.paint(bold, strings.TrimSpace(cli.Escape(r.Subject+"  "+r.Version))))
	table(out, r)
	for i := range r.Results {
		toldResult(out, p, &r.Results[i])
	}
	if why := notRun(r); why != "" {
		out.Printf("\nnot run: %s\n", why)
	}
	vectors, wire := r.Tally(func(x *kit.Result) bool { return x.Vector }), r.Tally(func(x *kit.Result) bool { return !x.Vector })
	if vectors != (kit.Tally{}) {
		out.Printf("\n%s", tallyText("vector", vectors))
	}
	out.Printf("\n%s\n\n", tallyText("wire scenario", wire))
}

// table has a row for each rule.
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

// ruleVerdict sums up what came of a rule.
func ruleVerdict(of ...kit.Tally) string {
	for _, t := range of {
		if t.Failed > 0 {
			return "FAILED"
		}
	}
	return "held"
}

// share is how many of those that were judged held.
func share(t kit.Tally) string {
	if t.Judged() == 0 {
		return "–"
	}
	return fmt.Sprintf("%d of %d", t.Held, t.Judged())
}

func toldResult(out *cli.Printer, p painter, x *kit.Result) {
	if x.Verdict != kit.Failed {
		return
	}
	out.Printf("\n%s  %s  %s\n", p.paint(red, "FAILED"), p.paint(bold, x.Name), p.paint(dim, strings.Join(x.Rules, " ")))
	for _, m := range x.Wrong {
		out.Printf("  %s: expected %s, got %s\n", cli.Escape(m.What), cli.Escape(m.Want), cli.Escape(m.Got))
	}
}

// notRun says why scenarios were not run, each reason once.
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

// markdown is the report as a page: who, a table of rules, a table of scenarios.
func markdown(out *cli.Printer, reports []kit.Report) {
	out.Printf("| subject | version | command | vectors | wire scenarios |\n|---|---|---|---|---|\n")
	for i := range reports {
		r := &reports[i]
		command := ""
		if r.Command != "" {
			command = "`" + strings.ReplaceAll(cell(r.Command), "`", "'") + "`"
		}
		out.Printf("| %s | %s | %s | %s | %s |\n", cell(r.Subject), cell(r.Version), command,
			share(r.Tally(func(x *kit.Result) bool { return x.Vector })), share(r.Tally(func(x *kit.Result) bool { return !x.Vector })))
	}
	markdownRules(out, reports)
	markdownScenarios(out, reports)
}

func heads(out *cli.Printer, first string, reports []kit.Report, last string) {
	out.Printf("\n| %s |", first)
	for i := range reports {
		out.Printf(" %s |", cell(reports[i].Subject))
	}
	out.Printf("%s\n|---|%s%s\n", last, strings.Repeat("---|", len(reports)), strings.Repeat("---|", strings.Count(last, "|")))
}

// markdownRules has a row for each rule by which any subject could be judged.
func markdownRules(out *cli.Printer, reports []kit.Report) {
	heads(out, "rule", reports, " about |")
	for _, rule := range reports[0].Rules() {
		row, judged := "| "+rule+" |", 0
		for i := range reports {
			t := reports[i].Tally(func(x *kit.Result) bool { return slices.Contains(x.Rules, rule) })
			judged += t.Judged()
			row += " " + share(t) + " |"
		}
		if judged > 0 {
			out.Printf("%s %s |\n", row, cell(rules.Sentence(rule)))
		}
	}
}

// markdownScenarios has a row for each scenario that any subject did not hold.
func markdownScenarios(out *cli.Printer, reports []kit.Report) {
	first := true
	for n := range reports[0].Results {
		if !slices.ContainsFunc(reports, func(r kit.Report) bool { return r.Results[n].Verdict == kit.Failed }) {
			continue
		}
		if first {
			heads(out, "not held by all", reports, "")
			first = false
		}
		x := &reports[0].Results[n]
		out.Printf("| %s (%s) |", cell(x.Name), strings.Join(x.Rules, " "))
		for i := range reports {
			out.Printf(" %s |", cell(verdictText(&reports[i].Results[n])))
		}
		out.Printf("\n")
	}
}

// verdictText is the verdict, and the first thing that did not hold.
func verdictText(x *kit.Result) string {
	switch x.Verdict {
	case kit.Held:
		return "✓"
	case kit.Failed:
		return "✗ " + brief(x)
	}
	return "–"
}

// brief is what did not hold, in a few words: of a client what the origin saw.
func brief(x *kit.Result) string {
	if x.Exit == nil {
		return x.First()
	}
	text := fmt.Sprintf("%s, exit %d", cli.Count(x.Requests, "request"), *x.Exit)
	if *x.Exit < 0 {
		text = cli.Count(x.Requests, "request") + ", no end"
	}
	for _, m := range x.Wrong {
		if strings.HasPrefix(m.What, "gap") {
			return text + ", waited " + m.Got
		}
		if m.What == "body" {
			return text + ", wrong body"
		}
		if strings.Contains(m.What, " of request ") {
			return text + ", " + m.What + ": " + m.Got
		}
	}
	return text
}

// cell is text that does not end a cell of a table.
func cell(s string) string { return strings.ReplaceAll(cli.Escape(s), "|", `\|`) }
