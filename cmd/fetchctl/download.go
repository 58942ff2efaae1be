package main

import (
	"context"
	"io"

	"fetchd/cmd/fetchctl/download"
	"fetchd/internal/cli"
	"fetchd/stores"

	"google.golang.org/grpc"
)

// downloadCmd is the command "fetchctl download".
type downloadCmd struct {
	URL []string `arg:"" optional:"" help:"Absolute http or https URLs. - reads a list from standard input."`

	Input string `short:"i" group:"What:" placeholder:"FILE" help:"Read a list: one URL per line, optionally followed by a space or tab and a file name. Lines that begin with # are comments. - is standard input."`
	Dir   string `short:"d" default:"." group:"What:" placeholder:"DIR" help:"Directory for the files; created if it does not exist. Default: the current directory."`
	Force bool   `short:"f" group:"What:" help:"Replace existing files. Default: they are kept, and counted."`

	Sums string `name:"sha256sums" group:"What:" placeholder:"FILE" help:"List of digests as sha256sum writes it. A file that is not listed, or has another digest, fails."`

	Jobs       int       `short:"j" default:"4" group:"How:" placeholder:"N" help:"Number of files at once, 1 to 64. Default: ${default}."`
	LimitRate  *byteSize `group:"How:" placeholder:"BYTES" help:"Maximum rate in bytes per second for all files together, such as 500k or 2m; at least 8k. Default: no limit."`
	MaxRetries int32     `short:"r" default:"3" group:"How:" placeholder:"N" help:"Attempts for each file after the first, 0 to 10. Default: ${default}."`

	WARC *string `name:"warc" group:"How:" placeholder:"FILE" help:"Append every request and response to a WARC file. It is compressed if its name ends in .gz. Not with --server."`

	JSON  bool `name:"json" group:"Output:" help:"Write a line of JSON to standard output for each file."`
	Quiet bool `short:"q" group:"Output:" help:"Print only errors."`

	insideFlags
	connection
}

// run downloads and returns the exit code.
func (c *downloadCmd) run(ctx context.Context, a *app) (code int) {
	config := download.Config{URLs: c.URL, Input: c.Input, Stdin: a.In, Dir: c.Dir, Sums: c.Sums, Force: c.Force,
		Jobs: c.Jobs, LimitRate: (*int64)(c.LimitRate), Attempts: c.MaxRetries + 1, AuthProvider: c.provider, Signs: c.Sign.Given(), Text: a.Err, Paint: a.Painter(a.Err)}
	switch {
	case c.Quiet:
		config.Text, config.Paint = io.Discard, false
	case cli.IsTerminal(a.Err) && a.Env("TERM") != "dumb":
		config.TerminalSize = func() (columns, rows int) { return cli.TerminalSize(a.Err) }
	}
	if c.JSON {
		config.JSON = a.Out
	}
	if err := checkWARC(c.WARC, c.Server, "leave out --server and FETCHD_SERVER"); err != nil {
		return a.fail(ctx, c.Server, err)
	}
	if err := c.insideFlags.check(c.Server); err != nil {
		return a.fail(ctx, c.Server, err)
	}
	records := new(stores.Set)
	if c.WARC != nil {
		config.Record = warcStore
		var err error
		if records, err = openWARC(*c.WARC); err != nil {
			return a.fail(ctx, c.Server, err)
		}
		defer func() { code = closeStores(ctx, a, records, code) }()
	}
	d, err := download.New(ctx, config)
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	defer d.Close()
	svc, err := c.connectOut(a, c.insideFlags, "", c.Quiet, records, grpc.WithStaticStreamWindowSize(download.StreamWindow), grpc.WithStaticConnWindowSize(download.ConnWindow))
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	defer svc.Close()
	code, err = d.Fetch(ctx, svc)
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	return code
}
