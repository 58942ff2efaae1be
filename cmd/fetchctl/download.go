package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"fetchd/internal/cli"

	"google.golang.org/grpc"
)

// downloadCmd is "fetchctl download".
type downloadCmd struct {
	URL []string `arg:"" optional:"" help:"Absolute http or https URLs. - reads a list from standard input."`

	Input string `short:"i" group:"What:" placeholder:"FILE" help:"Read a list: a URL a line, then, after a space or tab, a file name if it is to have one of its own. # begins a comment line. - is standard input."`
	Dir   string `short:"d" default:"." group:"What:" placeholder:"DIR" help:"Where the files go; it is made where it is missing. Default: the current directory."`
	Force bool   `short:"f" group:"What:" help:"Replace files that are there already. Default: they are left alone and counted."`

	Sums string `name:"sha256sums" group:"What:" placeholder:"FILE" help:"Digests as sha256sum writes them. A file that is not in the list, or not of its digest, fails."`

	Jobs       int       `short:"j" default:"4" group:"How:" placeholder:"N" help:"Files at once, 1 to 64. Default: ${default}."`
	LimitRate  *byteSize `group:"How:" placeholder:"BYTES" help:"Bytes a second, over all files together, such as 500k or 2m; at least 8k. Default: no limit."`
	MaxRetries int32     `short:"r" default:"3" group:"How:" placeholder:"N" help:"Attempts for a file after the first, 0 to 10. Default: ${default}."`

	JSON  bool `name:"json" group:"Output:" help:"Write a line of JSON to standard output for each file that has ended."`
	Quiet bool `short:"q" group:"Output:" help:"Tell nothing on standard error but what this program cannot do."`

	connection
}

const (
	maxJobs = 64
	// streamWindow is how far the service may be ahead of what was written here:
	// with what is not yet noted it stays below the 1 MiB that a killed run may
	// fetch twice.
	streamWindow = 512 << 10
	// connWindow does not hold up the streams that share a connection.
	connWindow = 16 << 20
	// slowest is what each file gets of a limited rate at least. gRPC tells the
	// service that something was read after a quarter of the window, and the
	// service waits for that 30 s.
	slowest = 8 << 10
)

// run downloads, and returns the exit status.
func (c *downloadCmd) run(ctx context.Context, a *app) int {
	if err := c.check(); err != nil {
		return a.fail(ctx, c.Server, err)
	}
	entries, err := c.entries(ctx, a.In)
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	sums, err := readSums(ctx, c.Sums)
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	dir, err := openFolder(c.Dir)
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	defer dir.close()
	naming, err := newNaming(dir, entries, sums)
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	svc, err := c.connect(grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connWindow))
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	defer svc.close()
	d := &downloads{svc: svc, dir: dir, naming: naming, sums: sums, force: c.Force, attempts: c.MaxRetries + 1,
		server: c.Server, app: a, board: c.board(a, len(entries))}
	if c.LimitRate != nil {
		d.limit = &limiter{rate: int64(*c.LimitRate)}
	}
	if c.JSON {
		d.json = a.Out
	}
	return d.run(ctx, entries, c.jobs())
}

// check refuses flags that are out of their range.
func (c *downloadCmd) check() error {
	switch {
	case c.Jobs < 1 || c.Jobs > maxJobs:
		return cli.UsageError("--jobs", fmt.Sprintf("is %d: give 1 to %d", c.Jobs, maxJobs))
	case c.MaxRetries < 0 || c.MaxRetries > maxRetries:
		return cli.UsageError("--max-retries", fmt.Sprintf("is %d: give 0 to %d", c.MaxRetries, maxRetries))
	case c.LimitRate != nil && *c.LimitRate < slowest:
		return cli.UsageError("--limit-rate", fmt.Sprintf("is %d bytes a second: give %d or more", *c.LimitRate, slowest))
	}
	return nil
}

// jobs is how many files are fetched at once: no more than a limited rate can
// serve.
func (c *downloadCmd) jobs() int {
	if c.LimitRate == nil {
		return c.Jobs
	}
	return max(1, int(min(int64(c.Jobs), int64(*c.LimitRate)/slowest)))
}

// board is where the run is told of.
func (c *downloadCmd) board(a *app, files int) *board {
	out := a.Err
	if c.Quiet {
		out = io.Discard
	}
	b := &board{out: &cli.Printer{W: out}, paint: a.Painter(out), files: files, begun: time.Now()}
	if cli.IsTerminal(out) && a.Env("TERM") != "dumb" {
		b.draws, b.size = true, func() (int, int) { return columns(out), rows(out) }
	}
	return b
}
