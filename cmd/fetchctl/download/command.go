package download

import (
	"context"

	"fetchd/cmd/fetchctl/service"
	"fetchd/internal/cli"
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
		if records, err = service.OpenWARC(*c.WARC); err != nil {
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

// Help implements kong.HelpProvider.
func (c *Command) Help() string {
	return `The name of a file is the second column of the list. If there is none, it is the name that the origin gives with Content-Disposition, or else the last segment of the URL without its query. Names are made safe: no separators, no leading dots or dashes, no control characters, no device names of Windows, at most 240 bytes. If two URLs want the same name, the name of the second one gets a suffix made from its URL. Existing files are not changed. If the name is known in advance, no request is made for them.

An unfinished file is called NAME.part, and NAME.part.json records how far it has come. The next run with the same URL continues there, however this run ended. That requires a strong ETag or a Last-Modified date, and the same file on the origin; otherwise the file starts again. A file gets its name when it is complete and, with --sha256sums, has the listed digest.

Retries follow the service's "download" profile: longer waits with jitter, and 408 is retried. A body that breaks is continued if the origin allows it, and fetched again from the start if not.

--warc records every request and response in one WARC file, also those of failed attempts. A part that is continued has its own exchange: the record of its 206 response has the rest of the file, and an earlier record has the beginning.

--sign-key and --sign-agent sign the requests for https URLs, as "fetchctl get" does. http URLs are fetched without a signature, and a line says how many they are. With --server, --auth-provider names a provider of that service; a URL that the provider does not cover fails.

The last line counts the files, and the retries: all attempts except the first one of each file, and how many files needed them.

If files failed in several ways, the exit code is the first of 21, 20, 2, 11, 13, 12, 10. After 10, the same command may succeed a little later.`
}

// Manual lists the exit codes and examples of the command.
func (c *Command) Manual() cli.Manual {
	return cli.Manual{Exits: cli.Codes(cli.ExitTransient, cli.ExitPermanent, cli.ExitRateLimited, cli.ExitNeedsAuth, cli.ExitService, cli.ExitOutput, cli.ExitInterrupted).
		With(cli.ExitOK, "all files are there"), Examples: `
  fetchctl download https://example.org/image.iso
  fetchctl download -d images -j 8 --limit-rate 2m -i urls.txt
  fetchctl download -d release --sha256sums SHA256SUMS -i urls.txt
  grep -o 'https://[^"]*pdf' page.html | fetchctl download -d papers -
  fetchctl download --json -q -i urls.txt | jq -r 'select(.result == "failed") | .url'
`}
}
