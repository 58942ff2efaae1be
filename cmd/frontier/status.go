package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"fetchd/cmd/frontier/show"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// watchEvery is the time between two readings of status --watch.
const watchEvery = 2 * time.Second

// statusCmd is "frontier status".
type statusCmd struct {
	database
	JSON    bool `name:"json" help:"Print one line of JSON."`
	Watch   bool `help:"Repeat every 2 s until interrupted: redraw on a terminal, print a line elsewhere."`
	Classes bool `help:"Also count failed URLs by error class. This reads the whole table row by row; not with --watch."`
}

func (c *statusCmd) run(ctx context.Context, a *app) int {
	if c.Watch && c.Classes {
		return a.end(ctx, cli.UsageError("--classes", "reads the whole table each time: remove --watch"))
	}
	return c.with(ctx, a, readOnly, func(s store.Store) error {
		if c.Watch {
			return c.watch(ctx, a.Out, s, cli.IsTerminal(a.Out))
		}
		n, err := show.ReadStatus(ctx, s, c.Classes)
		if err != nil {
			return err
		}
		out := &cli.Printer{W: a.Out}
		if c.JSON {
			writeJSON(out, n)
		} else {
			out.Printf("%s", n.Table())
		}
		return out.End()
	})
}

// watch prints counts until ctx ends or the reader goes away. On a terminal it replaces the
// previous table.
func (c *statusCmd) watch(ctx context.Context, w io.Writer, s store.Store, terminal bool) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	out := &cli.Printer{W: w}
	for drawn := 0; ; {
		n, err := show.ReadStatus(ctx, s, c.Classes)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			return err
		case c.JSON:
			writeJSON(out, n)
		case terminal:
			table := n.Table()
			out.Printf("%s%s", erase(drawn), table)
			drawn = strings.Count(table, "\n")
		default:
			out.Printf("%s %s\n", show.Stamp(time.Now()), n.Line())
		}
		if err := out.End(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return cli.PrintedError(cli.ExitInterrupted, "interrupted") // the usual end of a watch
		}
	}
}

// erase returns the control sequence that removes lines of a terminal.
func erase(lines int) string {
	if lines == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\r\x1b[J", lines)
}
