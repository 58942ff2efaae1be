package download

import (
	"context"

	"fetchd/cmd/fetchctl/service"
	"fetchd/internal/cli"
	"fetchd/internal/reflex"
	"fetchd/stores"

	"google.golang.org/grpc"
)

// Command is the command "fetchctl download".
type Command struct {
	URL []string `arg:"" optional:"" help:"Absolute http or https URLs. - reads a list from standard input."`

	Input string `short:"i" group:"What:" placeholder:"FILE" help:"Read a list: one URL per line, optionally followed by a space or tab and a file name. Lines that begin with # are comments. - is standard input."`
	Dir   string `short:"d" default:"." group:"What:" placeholder:"DIR" help:"Directory for the files; created if it does not exist. Default: the current directory."`
	Force bool   `short:"f" group:"What:" help:"Replace existing files. Default: they are kept, and counted."`

	Sums string `name:"sha256sums" group:"What:" placeholder:"FILE" help:"List of digests as sha256sum writes it. A file that is not listed, or has another digest, fails."`

	Jobs       int           `short:"j" default:"4" group:"How:" placeholder:"N" help:"Number of files at once, 1 to 64. Default: ${default}."`
	LimitRate  *cli.ByteSize `group:"How:" placeholder:"BYTES" help:"Maximum rate in bytes per second for all files together, such as 500k or 2m; at least 8k. Default: no limit."`
	MaxRetries int32         `short:"r" default:"3" group:"How:" placeholder:"N" help:"Attempts for each file after the first, 0 to 10. Default: ${default}."`

	service.Sent

	WARC *string `name:"warc" group:"How:" placeholder:"FILE" help:"Append every request and response to a WARC file. It is compressed if its name ends in .gz. Not with --server."`

	JSON  bool `name:"json" group:"Output:" help:"Write a line of JSON to standard output for each file."`
	Quiet bool `short:"q" group:"Output:" help:"Print only errors."`

	service.Origins
	service.Connection
}

// Run downloads and returns the exit code.
func (c *Command) Run(ctx context.Context, p *cli.Program) (code int) {
	if err := service.CheckWARC(c.WARC, c.Server, "leave out --server and FETCHD_SERVER"); err != nil {
		return service.Fail(ctx, p, c.Server, err)
	}
	if err := c.Origins.Check(c.Server); err != nil {
		return service.Fail(ctx, p, c.Server, err)
	}
	records := new(stores.Set)
	if c.WARC != nil {
		var err error
		if records, err = service.OpenWARC(*c.WARC, c.Secret()...); err != nil {
			return service.Fail(ctx, p, c.Server, err)
		}
		defer func() { code = service.CloseStores(ctx, p, records, code) }()
	}
	d, err := newRun(ctx, c, p)
	if err != nil {
		return service.Fail(ctx, p, c.Server, err)
	}
	defer d.Close()
	svc, err := c.ConnectOut(p, c.Origins, "", c.Quiet, records, grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connWindow))
	if err != nil {
		return service.Fail(ctx, p, c.Server, err)
	}
	defer svc.Close()
	code, err = d.Fetch(ctx, svc)
	if err != nil {
		return service.Fail(ctx, p, c.Server, err)
	}
	return code
}

// Manual says what the flags of wget and curl mean here.
func (c *Command) Manual() cli.Manual {
	return cli.Manual{Tables: reflex.DownloadHelp(), Answers: reflex.DownloadAnswers(), Wrong: reflex.DownloadWrong}
}
