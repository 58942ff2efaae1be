package main

import (
	"context"
	"fmt"
	"strings"

	"fetchd/conformance/judge"
	"fetchd/internal/cli"
)

type summaryCmd struct {
	Records []string `arg:"" placeholder:"RECORD" help:"Records of --record."`
}

// run prints a row for each record.
func (c *summaryCmd) run(_ context.Context, a *app) error {
	out := &cli.Printer{W: a.Out}
	for i, path := range c.Records {
		r, err := readRecord("RECORD", path)
		if err != nil {
			return err
		}
		if i == 0 {
			out.Printf("| name | judged as | version |%s\n|---|---|---|%s\n", row(r, func(l *judge.RecordLevel) string { return l.Level }), strings.Repeat("---|", len(r.Levels)))
		}
		out.Printf("| %s | %s | %s |%s\n", cell(r.Subject), cell(r.Way), cell(r.Version), row(r, share))
	}
	return out.End()
}

// row formats a cell for each level.
func row(r *judge.Record, text func(*judge.RecordLevel) string) string {
	var cells strings.Builder
	for i := range r.Levels {
		cells.WriteString(" " + cell(text(&r.Levels[i])) + " |")
	}
	return cells.String()
}

// share returns how many of the judged held, in bold if the level is whole.
func share(l *judge.RecordLevel) string {
	judged := l.Held + l.Failed
	text := fmt.Sprintf("%d/%d", l.Held, judged)
	switch {
	case judged == 0:
		return "–"
	case l.Whole:
		return "**" + text + "**"
	}
	return text
}

// cell escapes text for a cell of a Markdown table.
func cell(s string) string { return strings.ReplaceAll(cli.Escape(s), "|", `\|`) }
