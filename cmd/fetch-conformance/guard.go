package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"fetchd/conformance"
	"fetchd/conformance/guardrun"
	"fetchd/conformance/kit"
	"fetchd/internal/cli"
	"fetchd/internal/version"
)

type guardCmd struct {
	Limit   time.Duration `placeholder:"DURATION" default:"30s" help:"Stop a client that runs longer. Default: ${default}."`
	Only    []string      `placeholder:"CATEGORY|NAME" group:"What is run:" help:"Run only the rows of this category or with this name. Repeatable."`
	Name    string        `placeholder:"NAME" group:"Report:" help:"Name of the client in the report. Default: that of its program."`
	Record  string        `placeholder:"FILE" group:"Report:" help:"Also write the results to this file, as JSON. The same results give the same bytes, so that records can be kept and compared."`
	Command []string      `arg:"" passthrough:"" placeholder:"CMD" help:"The client and its arguments. {url} is replaced by the URL, {out} by a file for the body. Without {url} the URL is appended, and without {out} the body is read from standard output."`
}

func (c *guardCmd) run(ctx context.Context, a *app) error {
	rows, err := c.choose()
	if err != nil {
		return err
	}
	cmd := kit.NewCommand(c.Name, c.Command)
	cmd.Limit, cmd.Env = c.Limit, os.Environ()
	results, err := guardrun.Run(ctx, &cmd, rows)
	switch {
	case errors.Is(err, guardrun.ErrNoNetwork):
		return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: "Run it on Linux as root, in a container with CAP_SYS_ADMIN and CAP_NET_ADMIN."}
	case err != nil:
		return cli.AboutFlag("CMD", err)
	}
	record, err := guardrun.Record(version.Long(), &cmd, results)
	if err != nil {
		return err
	}
	out, p := &cli.Printer{W: a.Out}, a.Painter(a.Out)
	out.Printf("%s\n\n", p.Paint(cli.Bold, cli.Escape(cmd.Name)))
	for i := range record.Results {
		for _, failure := range record.Results[i].Failures {
			out.Printf("%s %s\n  %s\n", p.Paint(cli.Red, "FAILED"), record.Results[i].Name, cli.Escape(failure))
		}
	}
	if err := out.End(); err != nil {
		return err
	}
	return conclude(a, record, "category", c.Record)
}

// choose returns the rows to run.
func (c *guardCmd) choose() ([]conformance.GuardRow, error) {
	rows, err := conformance.GuardRows()
	if err != nil || len(c.Only) == 0 {
		return rows, err
	}
	used := make(map[string]bool)
	rows = slices.DeleteFunc(rows, func(r conformance.GuardRow) bool {
		used[r.Name], used[r.Category] = true, true
		return !slices.Contains(c.Only, r.Name) && !slices.Contains(c.Only, r.Category)
	})
	for _, word := range c.Only {
		if !used[word] {
			return nil, cli.UsageError("--only", `"`+word+`" is neither a category nor a row`)
		}
	}
	return rows, nil
}
