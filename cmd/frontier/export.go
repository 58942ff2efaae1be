package main

import (
	"context"
	"encoding/csv"
	"iter"
	"reflect"
	"strings"

	"fetchd/frontier/store"
	"fetchd/internal/cli"
	"fetchd/internal/jsontext"
)

// exportCmd is "frontier export".
type exportCmd struct {
	database
	Format string `enum:"jsonl,csv" default:"jsonl" help:"jsonl (one JSON object per line) or csv. Default: jsonl."`
	What   string `enum:"urls,fetches" default:"urls" help:"urls (each URL with its state) or fetches (each recorded fetch). Default: urls."`
	Output string `short:"o" placeholder:"FILE" help:"Write to FILE instead of standard output. FILE appears when it is complete."`
}

func (c *exportCmd) run(ctx context.Context, a *app) int {
	return c.with(ctx, a, readOnly, func(s store.Store) error {
		out, err := cli.OpenOutput(c.Output, a.Out)
		if err != nil {
			return err
		}
		defer out.Discard()
		if c.What == "fetches" {
			err = export(out, c.Format, s.Fetches(ctx), fetchRowOf)
		} else {
			err = export(out, c.Format, s.URLs(ctx), urlRowOf)
		}
		if err != nil {
			return err
		}
		return out.Keep()
	})
}

// export writes all rows in a format.
func export[S, R any](out *cli.Output, format string, all iter.Seq2[S, error], rowOf func(S) R) error {
	write := jsontext.NewEncoder(out).Encode
	w := csv.NewWriter(out)
	if format == "csv" {
		if err := w.Write(columnsOf(reflect.TypeFor[R]())); err != nil {
			return err
		}
		write = func(row any) error { return w.Write(tame(cellsOf(row))) }
	}
	for s, err := range all {
		if err != nil {
			return err
		}
		if err := write(rowOf(s)); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// tame makes cells safe for a terminal, and adds ' to what a spreadsheet would read as a formula,
// in place. A leading tab or line end has been escaped by then.
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
