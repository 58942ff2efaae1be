// Package get fetches one URL and prints what happens. It is what "fetchctl get" does.
package get

import (
	"cmp"
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"time"

	"fetchd/client"
	"fetchd/cmd/fetchctl/service"
	"fetchd/cmd/fetchctl/show"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// deadlineSpare is added to the time limit of the fetch for the call, so that the outcome
// still arrives.
const deadlineSpare = 2 * time.Second

// usualHeaderTimeout is how long a service waits for the response head unless the request says more.
const usualHeaderTimeout = 15 * time.Second

// ownWords replaces fields of a request in the messages of a service by flags.
var ownWords = strings.NewReplacer("leave text_policy out", "leave --markdown out",
	"header_timeout 15s, the default", "header_timeout 15s (a longer --timeout raises it), the default")

// glob matches what curl expands to several URLs.
var glob = regexp.MustCompile(`\[\w+-[\w:]+\]|\{[^{}]*,[^{}]*\}`)

// Run fetches and returns the exit code.
func (c *Command) Run(ctx context.Context, p *cli.Program) (code int) {
	p.Streams = splitLines(p.Streams)
	if err := c.curl(ctx, p.In); err != nil {
		return service.Fail(ctx, p, "", err)
	}
	req, err := c.request(ctx, p.In)
	if err != nil {
		return service.Fail(ctx, p, "", err)
	}
	if g := glob.FindString(c.URL); g != "" && !c.Quiet && !c.JSON.events {
		p.Hintf("%s is sent as it is: fetchctl download fetches several URLs", cli.Escape(g))
	}
	bodies, err := c.stores()
	if err != nil {
		return service.Fail(ctx, p, c.Server, err)
	}
	defer func() { code = service.CloseStores(ctx, p, bodies, code) }()
	svc, err := c.ConnectOut(p, c.Origins, c.URL, c.Quiet, bodies)
	if err != nil {
		return service.Fail(ctx, p, c.Server, err)
	}
	defer svc.Close()
	body, err := c.open(p.Out, req)
	if err != nil {
		return service.Fail(ctx, p, c.Server, err)
	}
	defer body.discard()
	outcome, err := c.fetch(ctx, p, svc, req, body)
	if err == nil {
		err = c.writeOut(p, &written{outcome, c.URL, cmp.Or(body.file, c.Output)})
	}
	if err != nil {
		return service.Fail(ctx, p, c.Server, err)
	}
	if code = show.ExitCode(outcome); code != cli.ExitOK || body.file == "" || c.Quiet || c.JSON.events {
		return code
	}
	p.Hintf("written to %s", cli.Escape(body.file))
	return cli.ExitOK
}

// open opens the output for the body. The caller discards it.
func (c *Command) open(stdout io.Writer, req *pb.FetchRequest) (*delivery, error) {
	d := &delivery{include: c.Include, failed: c.FailWithBody, stored: c.Store != ""}
	if c.RemoteName {
		d.url = c.URL
		c.restart(req)
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
	if d.out.CanTruncate() && c.Store == "" {
		c.restart(req)
	}
	return d, nil
}

// restart lets a body start again if it cannot be continued. A text comes at once.
func (c *Command) restart(req *pb.FetchRequest) {
	if req.TextPolicy == nil {
		req.BodyPolicy.Delivery = &pb.BodyPolicy_Stream{Stream: &pb.StreamDelivery{Recovery: pb.BodyRecovery_BODY_RECOVERY_RESTART}}
	}
}

// fetch runs the call, delivers the body and prints the events.
func (c *Command) fetch(ctx context.Context, p *cli.Program, svc *service.Service, req *pb.FetchRequest, body *delivery) (*pb.FetchOutcome, error) {
	user := ctx
	if c.Timeout != nil && *c.Timeout > 0 { // the service refuses others
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *c.Timeout+deadlineSpare)
		defer cancel()
	}
	tell, progress := c.teller(p)
	defer progress.Clear()
	stop, past := func() {}, new(history)
	var outcome *pb.FetchOutcome
	defer func() { stop() }()
	for m, err := range client.Wrap(svc).Events(ctx, req) {
		stop()
		if err != nil && user.Err() != nil {
			return nil, past.interrupted((c.Quiet || c.JSON.events) && !c.ShowError, errors.Is(err, client.ErrNotIdempotent))
		}
		if err != nil {
			return nil, lost(err)
		}
		past.take(m)
		if e := m.GetOutcome().GetError(); e != nil {
			e.Message = ownWords.Replace(e.GetMessage())
		}
		if err := body.take(m); err != nil && m.GetOutcome().GetError() == nil {
			return nil, err
		} else if err != nil { // the exit code is that of the failure
			service.Fail(ctx, p, c.Server, err)
		}
		if err := tell(m); err != nil {
			return nil, err
		}
		stop = progress.Wait(m)
		outcome = m.GetOutcome()
	}
	return outcome, nil
}

// lost returns the error of a call that ended without an outcome. If the request may have taken effect and
// must not be sent twice, the exit code is [cli.ExitNotIdempotent].
func lost(err error) error {
	if !errors.Is(err, client.ErrNotIdempotent) {
		return err
	}
	return &cli.Error{Code: cli.ExitNotIdempotent, Err: err,
		Hint: "If the origin knows idempotency keys, give --idempotency-key: the same request can then be sent again."}
}

// teller returns a function that prints an event, and the line of progress. It is nil if there is none.
func (c *Command) teller(p *cli.Program) (tell func(*pb.FetchEvent) error, progress *show.Progress) {
	switch {
	case c.JSON.events && c.toFile():
		return jsonLines(p.Out), nil
	case c.JSON.events:
		return jsonLines(p.Err), nil
	}
	r := &show.Reporter{Out: &cli.Printer{W: p.Err}, Paint: p.Painter(p.Err), Verbose: c.Verbose}
	switch {
	case c.Quiet && c.Verbose: // curl's -sv prints the heads
		return func(m *pb.FetchEvent) error { r.Event(m); return nil }, nil
	case c.Quiet:
		return func(m *pb.FetchEvent) error {
			if c.ShowError && m.GetOutcome().GetError() != nil {
				r.Event(m)
			}
			return nil
		}, nil
	}
	r.Progress.Waits = cli.IsTerminal(p.Err) && p.Env("TERM") != "dumb"
	r.Progress.On = r.Progress.Waits && (c.toFile() || !cli.IsTerminal(p.Out))
	r.Progress.Out = r.Out
	r.Progress.Columns, _ = cli.TerminalSize(p.Err)
	return func(m *pb.FetchEvent) error { r.Event(m); return nil }, &r.Progress
}
