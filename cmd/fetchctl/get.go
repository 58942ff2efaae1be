package main

import (
	"context"
	"time"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/show"
)

// getCmd is "fetchctl get".
type getCmd struct {
	URL string `arg:"" help:"Absolute http or https URL."`

	Request string   `short:"X" group:"Request:" placeholder:"METHOD" help:"GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS. Default: GET, or POST with --data."`
	Header  []string `short:"H" sep:"none" group:"Request:" placeholder:"NAME: VALUE" help:"Request header. Repeatable."`
	Data    *string  `short:"d" group:"Request:" placeholder:"DATA|@FILE|@-" help:"Request body: the text itself, a file, or standard input, byte for byte, at most 1 MiB. No Content-Type is added."`
	Cookies bool     `group:"Request:" help:"Keep cookies across the redirects and attempts of this fetch. Default: none are kept."`

	MaxRetries         *int32         `short:"r" group:"Retries:" placeholder:"N" help:"Attempts after the first, 0 to 10. Default: 2, with --profile download 3."`
	Profile            string         `enum:"standard,download" default:"standard" group:"Retries:" help:"Rules and waits: standard (short waits) or download (longer waits with jitter, 408 retried, no time limit). Default: ${default}."`
	IdempotencyKey     string         `group:"Retries:" placeholder:"KEY" help:"Sent as Idempotency-Key, the same on every attempt. Default: none is sent."`
	AllowNonIdempotent bool           `group:"Retries:" help:"Let POST and PATCH be tried again; needs --idempotency-key. Default: they are sent once."`
	Timeout            *time.Duration `group:"Retries:" placeholder:"DURATION" help:"Longest time for the whole fetch, waits included, such as 90s. Default: 1m; with --profile download the service's maximum."`

	MaxRedirects *int32 `group:"Redirects:" placeholder:"N" help:"Redirects followed in one attempt, 0 to 20; one more is a failure. Default: 5, with --profile download 20."`
	NoFollow     bool   `group:"Redirects:" help:"Follow none: a redirect is then the result, with status 0. Default: they are followed."`

	MaxSize *byteSize `group:"Body:" placeholder:"SIZE" help:"Longest body, in bytes or with a unit: 500kB, 16MiB. Default: 16MiB, with --profile download the service's maximum."`
	SHA256  string    `name:"sha256" group:"Body:" placeholder:"HEX" help:"Fail unless the body has this SHA-256. Default: any."`

	Output  string `short:"o" group:"Output:" placeholder:"FILE" help:"Write the body to FILE, all of it or nothing. Default: standard output."`
	Include bool   `short:"i" group:"Output:" help:"Write status and headers before the body."`
	JSON    bool   `name:"json" group:"Output:" xor:"told,lines" help:"Tell every event as a line of JSON, in place of the readable lines."`
	Quiet   bool   `short:"q" group:"Output:" xor:"told" help:"Tell nothing; the exit status says it. Usage and service errors are still told."`
	Verbose bool   `short:"v" group:"Output:" help:"Tell the policy, redirects as they happen, headers and timings."`

	HAR     string   `name:"har" group:"Record:" placeholder:"FILE" help:"Write every hop of every attempt to FILE, as HTTP Archive 1.2, however the fetch ends."`
	HARWith []string `name:"har-with" enum:"body,secrets" group:"Record:" placeholder:"WHAT" help:"Write into it what is left out else: body, secrets (credentials and cookies), or both with a comma."`
	Trace   bool     `group:"Record:" xor:"lines" help:"Draw attempts, hops and waits to scale when the fetch is over, on standard error."`

	connection
}

// deadlineSpare is how much later than the fetch's own time limit the call ends,
// so that the outcome still arrives.
const deadlineSpare = 2 * time.Second

// run fetches, and returns the exit status.
func (c *getCmd) run(ctx context.Context, a *app) int {
	a.Streams = splitLines(a.Streams)
	req, err := c.request(ctx, a.In)
	if err != nil {
		return a.fail(ctx, "", err)
	}
	svc, err := c.connect()
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	defer svc.close()
	out, err := openOutput(c.Output, a.Out)
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	defer out.discard()
	if out.canTruncate() {
		req.BodyPolicy.Recovery = pb.BodyRecovery_BODY_RECOVERY_RESTART
	}
	rec, err := c.record(a, req)
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	defer rec.discard()
	outcome, err := c.fetch(ctx, a, svc, req, out, rec)
	if wrong := rec.end(a); err == nil {
		err = wrong
	}
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	return show.ExitCode(outcome)
}

// fetch runs the call, delivers the body and tells what happens.
func (c *getCmd) fetch(ctx context.Context, a *app, svc *service, req *pb.FetchRequest, out *output, rec *recording) (*pb.FetchOutcome, error) {
	if c.Timeout != nil && *c.Timeout > 0 { // the service refuses others
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *c.Timeout+deadlineSpare)
		defer cancel()
	}
	tell, done := c.teller(a)
	defer done()
	d := &delivery{out: out, include: c.Include}
	var outcome *pb.FetchOutcome
	for m, err := range client.Wrap(svc).Events(ctx, req) {
		if err != nil {
			return nil, err
		}
		rec.take(m)
		if err := d.take(m); err != nil {
			return nil, err
		}
		if err := tell(m); err != nil {
			return nil, err
		}
		outcome = m.GetOutcome()
	}
	return outcome, nil
}

// teller returns what tells of the events, and what ends it.
func (c *getCmd) teller(a *app) (tell func(*pb.FetchResponse) error, done func()) {
	toFile := c.Output != "" && c.Output != "-"
	switch {
	case c.JSON && toFile:
		return jsonLines(a.Out), func() {}
	case c.JSON:
		return jsonLines(a.Err), func() {}
	case c.Quiet:
		return func(*pb.FetchResponse) error { return nil }, func() {}
	}
	r := &show.Reporter{Out: &cli.Printer{W: a.Err}, Paint: a.Painter(a.Err), Verbose: c.Verbose}
	r.Progress.On = cli.IsTerminal(a.Err) && a.Env("TERM") != "dumb" && (toFile || !cli.IsTerminal(a.Out))
	r.Progress.Out = r.Out
	r.Progress.Columns, _ = cli.TerminalSize(a.Err)
	return func(m *pb.FetchResponse) error { r.Event(m); return nil }, r.Progress.Clear
}
