package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"fetchd/client"
	"fetchd/cmd/fetchctl/inside"
	"fetchd/cmd/fetchctl/show"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// deadlineSpare is added to the time limit of the fetch for the call, so that the outcome
// still arrives.
const deadlineSpare = 2 * time.Second

// run fetches and returns the exit code.
func (c *getCmd) run(ctx context.Context, a *app) (code int) {
	a.Streams = splitLines(a.Streams)
	if err := c.curl(ctx, a.In); err != nil {
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
	defer svc.Close()
	body, err := c.open(a.Out, req)
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	defer body.discard()
	rec := c.record()
	outcome, err := c.fetch(ctx, a, svc, req, body, rec)
	rec.end(a)
	if err == nil {
		err = c.writeOut(a, &written{outcome, c.URL, cmp.Or(body.file, c.Output)})
	}
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	if code = show.ExitCode(outcome); code != cli.ExitOK || body.file == "" || c.Quiet || c.JSON.events {
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
		req.BodyPolicy.Delivery = restartable()
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
		req.BodyPolicy.Delivery = restartable()
	}
	return d, nil
}

// restartable is the delivery of a body that may start again if it cannot be continued.
func restartable() *pb.BodyPolicy_Stream {
	return &pb.BodyPolicy_Stream{Stream: &pb.StreamDelivery{Recovery: pb.BodyRecovery_BODY_RECOVERY_RESTART}}
}

// fetch runs the call, delivers the body and prints the events.
func (c *getCmd) fetch(ctx context.Context, a *app, svc *inside.Service, req *pb.FetchRequest, body *delivery, rec *recording) (*pb.FetchOutcome, error) {
	user := ctx
	if c.Timeout != nil && *c.Timeout > 0 { // the service refuses others
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *c.Timeout+deadlineSpare)
		defer cancel()
	}
	tell, progress := c.teller(a)
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
		rec.take(m)
		if err := body.take(m); err != nil {
			return nil, err
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
func (c *getCmd) teller(a *app) (tell func(*pb.FetchEvent) error, progress *show.Progress) {
	switch {
	case c.JSON.events && c.toFile():
		return jsonLines(a.Out), nil
	case c.JSON.events:
		return jsonLines(a.Err), nil
	}
	r := &show.Reporter{Out: &cli.Printer{W: a.Err}, Paint: a.Painter(a.Err), Verbose: c.Verbose}
	if c.Quiet {
		return func(m *pb.FetchEvent) error {
			if c.ShowError && m.GetOutcome().GetError() != nil {
				r.Event(m)
			}
			return nil
		}, nil
	}
	r.Progress.Waits = cli.IsTerminal(a.Err) && a.Env("TERM") != "dumb"
	r.Progress.On = r.Progress.Waits && (c.toFile() || !cli.IsTerminal(a.Out))
	r.Progress.Out = r.Out
	r.Progress.Columns, _ = cli.TerminalSize(a.Err)
	return func(m *pb.FetchEvent) error { r.Event(m); return nil }, &r.Progress
}
