package main

import (
	"context"
	"io"
	"time"

	"fetchd/client"
	"fetchd/cmd/fetchctl/show"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// getCmd is the command "fetchctl get".
type getCmd struct {
	URL string `arg:"" help:"Absolute http or https URL."`

	Request string   `short:"X" group:"Request:" placeholder:"METHOD" help:"GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS. Default: GET, or POST with --data."`
	Header  []string `short:"H" sep:"none" group:"Request:" placeholder:"NAME: VALUE" help:"Request header. Repeatable."`
	Data    *string  `short:"d" group:"Request:" placeholder:"DATA|@FILE|@-" help:"Request body: the text itself, a file, or standard input, byte for byte, at most 1 MiB. Content-Type is not set."`
	Cookies bool     `group:"Request:" help:"Keep cookies across the redirects and attempts of this fetch. Default: cookies are dropped."`

	MaxRetries         *int32         `short:"r" group:"Retries:" placeholder:"N" help:"Attempts after the first, 0 to 10. Default: 2, with --profile download 3."`
	Profile            string         `enum:"standard,download" default:"standard" group:"Retries:" help:"Retry rules and waits: standard (short waits) or download (longer waits with jitter, retries 408, no time limit). Default: ${default}."`
	IdempotencyKey     string         `group:"Retries:" placeholder:"KEY" help:"Send this Idempotency-Key on every attempt. Default: none."`
	AllowNonIdempotent bool           `group:"Retries:" help:"Allow retries of POST and PATCH; requires --idempotency-key. Default: they are sent once."`
	Timeout            *time.Duration `group:"Retries:" placeholder:"DURATION" help:"Time limit for the whole fetch, including waits, such as 90s. Default: 1m; with --profile download the service's maximum."`

	MaxRedirects *int32 `group:"Redirects:" placeholder:"N" help:"Maximum number of redirects in one attempt, 0 to 20. Default: 5, with --profile download 20."`
	NoFollow     bool   `group:"Redirects:" xor:"follow" help:"Do not follow redirects: a redirect is then the result, with exit code 0."`

	MaxSize *byteSize `group:"Body:" placeholder:"SIZE" help:"Maximum size of the body, in bytes or with a unit: 500kB, 16MiB. Default: 16MiB, with --profile download the service's maximum."`
	SHA256  string    `name:"sha256" group:"Body:" placeholder:"HEX" help:"Fail unless the body has this SHA-256."`

	Store      string `group:"Store:" placeholder:"NAME" help:"Let the service write the body to this store. Standard output stays empty."`
	Key        string `group:"Store:" placeholder:"KEY" help:"Key of the object in the store, such as 2026/report.pdf. An object with that key is replaced. Default: named by its digest, which a store at S3 allows only with --sha256."`
	StoresFile string `name:"stores-file" group:"Store:" placeholder:"FILE" help:"Stores of the service inside fetchctl, as fetchd reads them. Not with --server, whose operator has configured the stores."`

	Output  string `short:"o" group:"Output:" placeholder:"FILE" help:"Write the body to FILE, completely or not at all. Default: standard output."`
	Include bool   `short:"i" group:"Output:" help:"Write the status and the headers before the body."`
	JSON    bool   `name:"json" group:"Output:" xor:"told,lines" help:"Print every event as a line of JSON instead of text."`
	Quiet   bool   `short:"q" group:"Output:" xor:"told" help:"Print nothing about the fetch. Usage and service errors are still printed."`
	Verbose bool   `short:"v" group:"Output:" help:"Print the policy, redirects, headers and timings as well."`

	HAR     string   `name:"har" group:"Record:" placeholder:"FILE" help:"Write every hop of every attempt to FILE as HTTP Archive 1.2, however the fetch ends."`
	HARWith []string `name:"har-with" enum:"body,secrets" group:"Record:" placeholder:"WHAT" help:"Include what --har leaves out: body, secrets (credentials and cookies), or both, separated by a comma."`
	WARC    *string  `name:"warc" group:"Record:" xor:"records" placeholder:"FILE" help:"Append every request and response of the fetch to a WARC file. It is compressed if its name ends in .gz. Not with --server."`
	Record  string   `group:"Record:" xor:"records" placeholder:"NAME" help:"Let the service record every request and response in this store for WARC files. With --server or --stores-file."`
	Trace   bool     `group:"Record:" xor:"lines" help:"Draw attempts, hops and waits to scale on standard error when the fetch has ended."`

	curlFlags
	insideFlags
	connection
}

// deadlineSpare is added to the time limit of the fetch for the call, so that the outcome
// still arrives.
const deadlineSpare = 2 * time.Second

// run fetches and returns the exit code.
func (c *getCmd) run(ctx context.Context, a *app) (code int) {
	a.Streams = splitLines(a.Streams)
	if err := c.curl(ctx); err != nil {
		return a.fail(ctx, "", err)
	}
	req, err := c.request(ctx, a.In)
	if err != nil {
		return a.fail(ctx, "", err)
	}
	bodies, err := c.stores()
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	defer func() { code = closeStores(ctx, a, bodies, code) }()
	svc, err := c.connectOut(a, c.insideFlags, c.URL, c.Quiet, bodies)
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	defer svc.close()
	body, err := c.open(a.Out, req)
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	defer body.discard()
	rec, err := c.record(a, req)
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	defer rec.discard()
	outcome, err := c.fetch(ctx, a, svc, req, body, rec)
	if wrong := rec.end(a); err == nil {
		err = wrong
	}
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	if code = show.ExitCode(outcome); code != cli.ExitOK || body.file == "" || c.Quiet || c.JSON {
		return code
	}
	a.Hintf("written to %s", cli.Escape(body.file))
	return cli.ExitOK
}

// open opens the output for the body. The caller discards it.
func (c *getCmd) open(stdout io.Writer, req *pb.FetchRequest) (*delivery, error) {
	d := &delivery{include: c.Include, stored: c.Store != ""}
	if c.RemoteName {
		d.url = c.URL
		req.BodyPolicy.Recovery = pb.BodyRecovery_BODY_RECOVERY_RESTART
		return d, nil
	}
	if c.Output == "" && cli.IsTerminal(stdout) {
		d.screen = &terminalWriter{w: stdout}
		stdout = d.screen
	}
	var err error
	if d.out, err = cli.OpenOutput(c.Output, stdout); err != nil {
		return nil, err
	}
	if d.out.CanTruncate() {
		req.BodyPolicy.Recovery = pb.BodyRecovery_BODY_RECOVERY_RESTART
	}
	return d, nil
}

// toFile reports whether the body does not go to standard output.
func (c *getCmd) toFile() bool {
	return c.Output != "" && c.Output != "-" || c.Store != "" || c.RemoteName
}

// fetch runs the call, delivers the body and prints the events.
func (c *getCmd) fetch(ctx context.Context, a *app, svc *service, req *pb.FetchRequest, body *delivery, rec *recording) (*pb.FetchOutcome, error) {
	if c.Timeout != nil && *c.Timeout > 0 { // the service refuses others
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *c.Timeout+deadlineSpare)
		defer cancel()
	}
	tell, done := c.teller(a)
	defer done()
	var outcome *pb.FetchOutcome
	for m, err := range client.Wrap(svc).Events(ctx, req) {
		if err != nil {
			return nil, err
		}
		rec.take(m)
		if err := body.take(m); err != nil {
			return nil, err
		}
		if err := tell(m); err != nil {
			return nil, err
		}
		outcome = m.GetOutcome()
	}
	return outcome, nil
}

// teller returns a function that prints an event, and one that ends the output.
func (c *getCmd) teller(a *app) (tell func(*pb.FetchResponse) error, done func()) {
	switch {
	case c.JSON && c.toFile():
		return jsonLines(a.Out), func() {}
	case c.JSON:
		return jsonLines(a.Err), func() {}
	}
	r := &show.Reporter{Out: &cli.Printer{W: a.Err}, Paint: a.Painter(a.Err), Verbose: c.Verbose}
	if c.Quiet {
		return func(m *pb.FetchResponse) error {
			if c.ShowError && m.GetOutcome().GetError() != nil {
				r.Event(m)
			}
			return nil
		}, func() {}
	}
	r.Progress.On = cli.IsTerminal(a.Err) && a.Env("TERM") != "dumb" && (c.toFile() || !cli.IsTerminal(a.Out))
	r.Progress.Out = r.Out
	r.Progress.Columns, _ = cli.TerminalSize(a.Err)
	return func(m *pb.FetchResponse) error { r.Event(m); return nil }, r.Progress.Clear
}
