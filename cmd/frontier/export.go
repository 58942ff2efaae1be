package main

import (
	"context"
	"encoding/csv"
	"iter"
	"strings"

	"fetchd/frontier/store"
	"fetchd/internal/cli"
	"fetchd/internal/plainjson"
)

// exportCmd is "frontier export".
type exportCmd struct {
	database
	Format string `enum:"jsonl,csv" default:"jsonl" help:"jsonl (a JSON object a line) or csv. Default: jsonl."`
	What   string `enum:"urls,fetches" default:"urls" help:"urls, each with what became of it; or fetches, each that was recorded. Default: urls."`
	Output string `short:"o" placeholder:"FILE" help:"Write there instead of standard output. FILE appears when it is whole."`
}

func (c *exportCmd) run(ctx context.Context, a *app) int {
	return c.with(ctx, a, existing, func(s store.Store) error {
		out, err := openOutput(c.Output, a.Out)
		if err != nil {
			return err
		}
		defer out.discard()
		rows := exported(s.URLs(ctx), urlRowOf)
		if c.What == "fetches" {
			rows = exported(s.Fetches(ctx), fetchRowOf)
		}
		if c.Format == "csv" {
			err = writeCSV(out, rows, columnsOf(c.What))
		} else {
			err = writeLines(out, rows)
		}
		if err != nil {
			return err
		}
		return out.keep()
	})
}

// row is what is exported: as a JSON object, or as cells in the order of its columns.
type row interface{ cells() []string }

// exported turns what the store yields into rows.
func exported[S any, R row](all iter.Seq2[S, error], rowOf func(S) R) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		for s, err := range all {
			if !yield(rowOf(s), err) {
				return
			}
		}
	}
}

func writeLines(out *output, rows iter.Seq2[row, error]) error {
	enc := plainjson.NewEncoder(out)
	for r, err := range rows {
		if err != nil {
			return err
		}
		if err := enc.Encode(r); err != nil {
			return cli.OutputError(err)
		}
	}
	return nil
}

func writeCSV(out *output, rows iter.Seq2[row, error], columns []string) error {
	w := csv.NewWriter(out)
	if err := w.Write(columns); err != nil {
		return cli.OutputError(err)
	}
	for r, err := range rows {
		if err != nil {
			return err
		}
		if err := w.Write(tame(r.cells())); err != nil {
			return cli.OutputError(err)
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return cli.OutputError(err)
	}
	return nil
}

// tame makes cells fit for a terminal and puts ' before what a spreadsheet would
// take for a formula, in place. A tab or line end that comes first is escaped by then.
// https://owasp.org/www-community/attacks/CSV_Injection
func tame(cells []string) []string {
	for i, cell := range cells {
		cells[i] = cli.Escape(cell)
		if cell != "" && strings.IndexByte("=+-@", cell[0]) >= 0 {
			cells[i] = "'" + cells[i]
		}
	}
	return cells
}
