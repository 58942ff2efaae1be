package main

import (
	"context"
	"io"

	"fetchd/internal/cli"
	"fetchd/internal/download"

	"google.golang.org/grpc"
)

// downloadCmd is "fetchctl download".
type downloadCmd struct {
	URL []string `arg:"" optional:"" help:"Absolute http or https URLs. - reads a list from standard input."`

	Input string `short:"i" group:"What:" placeholder:"FILE" help:"Read a list: a URL a line, then, after a space or tab, a file name if it is to have one of its own. # begins a comment line. - is standard input."`
	Dir   string `short:"d" default:"." group:"What:" placeholder:"DIR" help:"Where the files go; it is made where it is missing. Default: the current directory."`
	Force bool   `short:"f" group:"What:" help:"Replace files that are there already. Default: they are left alone and counted."`

	Sums string `name:"sha256sums" group:"What:" placeholder:"FILE" help:"Digests as sha256sum writes them. A file that is not in the list, or not of its digest, fails."`

	Jobs       int      `short:"j" default:"4" group:"How:" placeholder:"N" help:"Files at once, 1 to 64. Default: ${default}."`
	LimitRate  byteSize `group:"How:" placeholder:"BYTES" help:"Bytes a second, over all files together, such as 500k or 2m; at least 8k. Default: no limit."`
	MaxRetries int32    `short:"r" default:"3" group:"How:" placeholder:"N" help:"Attempts for a file after the first, 0 to 10. Default: ${default}."`

	JSON  bool `name:"json" group:"Output:" help:"Write a line of JSON to standard output for each file that has ended."`
	Quiet bool `short:"q" group:"Output:" help:"Tell nothing on standard error but what this program cannot do."`

	connection
}

// run downloads and returns the exit code.
func (c *downloadCmd) run(ctx context.Context, a *app) int {
	config := download.Config{URLs: c.URL, Input: c.Input, Stdin: a.In, Dir: c.Dir, Sums: c.Sums, Force: c.Force,
		Jobs: c.Jobs, LimitRate: int64(c.LimitRate), Attempts: c.MaxRetries + 1, Text: a.Err, Paint: a.Painter(a.Err)}
	switch {
	case c.Quiet:
		config.Text, config.Paint = io.Discard, false
	case cli.IsTerminal(a.Err) && a.Env("TERM") != "dumb":
		config.TerminalSize = func() (columns, rows int) { return cli.TerminalSize(a.Err) }
	}
	if c.JSON {
		config.JSON = a.Out
	}
	d, err := download.New(ctx, config)
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	defer d.Close()
	svc, err := c.connect(grpc.WithStaticStreamWindowSize(download.StreamWindow), grpc.WithStaticConnWindowSize(download.ConnWindow))
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	defer svc.close()
	code, err := d.Fetch(ctx, svc)
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	return code
}
