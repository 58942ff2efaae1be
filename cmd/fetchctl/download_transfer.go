package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// transfer is one file on its way.
type transfer struct {
	*downloads
	entry  *entry
	result fileResult
	part   *part // nil: nothing of it is there
	row    *track
	tell   *reporter
	begun  time.Time

	head      *pb.ResponseStarted // whose body has not begun
	resumed   int64               // the fetch under way began here
	startOver bool                // the fetch under way is not the first
}

var (
	// errStartOver says that what an earlier run left does not fit the origin's.
	errStartOver = errors.New("what was there is no part of it: starting over")
	// errAlreadyThere says that the name that the origin gave has its file.
	errAlreadyThere = errors.New("already there")
)

// refusal is why a file is not taken, though the service did its part.
type refusal struct {
	class, text string
	status      int // exit status
}

// Error tells the text.
func (r *refusal) Error() string { return r.text }

func (t *transfer) open() {
	t.begun = time.Now()
	t.row = t.board.add(t.entry.name)
	t.tell = &reporter{out: &cli.Printer{W: t.board}, paint: t.board.paint, brief: true}
	t.tell.indent = t.entry.name + "  "
}

// run brings the file, or says why it cannot.
func (t *transfer) run(ctx context.Context) error {
	if err := t.look(ctx); err != nil {
		return err
	}
	for {
		outcome, err := t.fetch(ctx)
		if err == nil {
			err = t.take(ctx, outcome)
		}
		if !errors.Is(err, errStartOver) {
			return err
		}
		if t.startOver || t.part == nil {
			return err // cannot be: there was nothing to misfit
		}
		t.startOver = true
		t.tell.line("what is there does not fit the origin's: starting over")
		if err := t.part.restart(0, "", -1); err != nil {
			return cli.OutputError(err)
		}
	}
}

// look sees what is there before anything is asked for.
func (t *transfer) look(ctx context.Context) error {
	if err := t.listed(); t.entry.fixed && err != nil {
		return err
	}
	there, err := t.dir.exists(t.entry.name)
	switch {
	case err != nil:
		return cli.OutputError(err)
	case there && !t.force:
		return t.alreadyThere(ctx)
	}
	if t.naming.begun[t.entry.name] == t.entry.url {
		if t.part, err = openPart(t.dir, t.entry.name, t.entry.url, t.force); err != nil {
			return err
		}
		t.result.ResumedAt = t.part.written
	}
	if !t.board.draws {
		where := ""
		if t.result.ResumedAt > 0 {
			where = "at " + size(t.result.ResumedAt)
		}
		t.tell.line("start", cli.Escape(t.entry.url), where)
	}
	return nil
}

// listed refuses a file that the list of digests does not have: an origin that
// chooses the name could pass by the list.
func (t *transfer) listed() error {
	if t.sums != nil && t.sums[t.entry.name] == "" {
		return &refusal{"integrity", "its name is not in the list of digests; give it one in the second column of -i", cli.ExitPermanent}
	}
	return nil
}

// alreadyThere is the end of a file that is there, if it is the right one.
func (t *transfer) alreadyThere(ctx context.Context) error {
	if err := tidy(t.dir, t.entry.name, t.entry.url); err != nil {
		return cli.OutputError(err)
	}
	info, err := t.dir.lstat(t.entry.name)
	if err != nil {
		return cli.OutputError(err)
	}
	t.result.SizeBytes = info.Size()
	want := t.sums[t.entry.name]
	if want == "" {
		return errAlreadyThere
	}
	f, err := t.dir.open(t.entry.name, os.O_RDONLY)
	if err != nil {
		return cli.OutputError(err)
	}
	defer func() { _ = f.Close() }() // it was only read from
	if t.result.SHA256, err = digestOf(ctx, f); err != nil {
		return readError(ctx, err)
	}
	if t.result.SHA256 != want {
		return &refusal{"integrity", "is already there, but not of the digest in the list: remove it, or give --force", cli.ExitPermanent}
	}
	return errAlreadyThere
}

func readError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return cli.OutputError(err)
}

// fetch is one call: from what is there to the end of the body.
func (t *transfer) fetch(ctx context.Context) (*pb.FetchOutcome, error) {
	var outcome *pb.FetchOutcome
	for m, err := range client.Wrap(t.svc).Events(ctx, t.request()) {
		if err != nil {
			return nil, err
		}
		if err := t.event(ctx, m); err != nil {
			return nil, err
		}
		outcome = m.GetOutcome()
	}
	return outcome, nil
}

// request asks for the file, or for the rest of it.
func (t *transfer) request() *pb.FetchRequest {
	none := int64(0)
	req := &pb.FetchRequest{
		Url:         t.entry.url,
		RetryPolicy: &pb.RetryPolicy{Profile: pb.RetryProfile_RETRY_PROFILE_DOWNLOAD, MaxAttempts: &t.attempts},
		BodyPolicy: &pb.BodyPolicy{
			Recovery:      pb.BodyRecovery_BODY_RECOVERY_RESTART,
			HoldBackBytes: &none, // what is not here when we are killed is fetched twice
			OmitDigest:    true,
		},
	}
	t.resumed, t.head = 0, nil
	if t.part != nil && t.part.resumable() {
		t.resumed = t.part.written
		req.BodyPolicy.ResumePoint = &pb.ResumePoint{OffsetBytes: t.part.written, Validator: t.part.said.Validator}
	}
	return req
}

func (t *transfer) event(ctx context.Context, m *pb.FetchResponse) error {
	switch e := m.GetEvent().(type) {
	case *pb.FetchResponse_AttemptStarted:
		t.result.Attempts++
		t.tell.began = m.GetElapsedOffset().AsDuration()
	case *pb.FetchResponse_ResponseStarted:
		t.head = e.ResponseStarted // a failed one has no body for us: nothing is dropped yet
	case *pb.FetchResponse_BodyChunk:
		return t.chunk(ctx, e.BodyChunk)
	case *pb.FetchResponse_AttemptFinished:
		if e.AttemptFinished.GetRetryDecision().GetVerdict() == pb.RetryVerdict_RETRY_VERDICT_RETRY {
			t.tell.attempt(e.AttemptFinished, m.GetElapsedOffset().AsDuration()-t.tell.began)
		}
		t.tell.stopped = e.AttemptFinished.GetRetryDecision().GetRule()
	}
	return nil
}

// body acts on the head of a body that begins, or is empty.
func (t *transfer) body(ctx context.Context) error {
	head := t.head
	if t.head = nil; head == nil {
		return nil
	}
	return t.response(ctx, head.GetResponse(), head.GetBodyOffsetBytes())
}

// response makes room for the body that follows, which begins at the offset.
func (t *transfer) response(ctx context.Context, r *pb.HttpResponse, offset int64) error {
	if offset == 0 && r.GetStatusCode() == http.StatusPartialContent {
		return &refusal{"partial", "the origin sent a part, and was asked for the whole", cli.ExitPermanent}
	}
	total := totalOf(r)
	if t.part == nil {
		if err := t.name(ctx, r, total); err != nil {
			return err
		}
	}
	p := t.part
	switch {
	case offset > p.written || offset < 0:
		return fmt.Errorf("%w: a body begins at %d, behind %d bytes", errContract, offset, p.written)
	case offset > 0 && total >= 0 && p.said.Total >= 0 && total != p.said.Total:
		return errStartOver
	case offset == p.written && offset > 0:
		if p.said.Total < 0 {
			p.said.Total = total
		}
	default:
		validator := p.said.Validator
		if offset == 0 {
			validator = validatorOf(r)
			if p.written > 0 {
				t.tell.line("the origin's file cannot be continued, or has changed: starting over")
			}
		} else {
			total = p.said.Total
		}
		if err := p.restart(offset, validator, total); err != nil {
			return cli.OutputError(err)
		}
	}
	t.row.set(p.written, p.said.Total)
	return nil
}

// name settles the file's name and makes its part.
func (t *transfer) name(ctx context.Context, r *pb.HttpResponse, total int64) error {
	wanted := dispositionName(dispositionOf(r))
	if err := t.naming.settle(t.entry, wanted, total, t.force); err != nil {
		return err
	}
	t.result.Name = t.entry.name
	t.tell.indent = t.entry.name + "  "
	t.row.rename(t.entry.name)
	if err := t.listed(); err != nil {
		return err
	}
	there, err := t.dir.exists(t.entry.name)
	switch {
	case err != nil:
		return cli.OutputError(err)
	case there && !t.force:
		return t.alreadyThere(ctx)
	}
	t.part, err = openPart(t.dir, t.entry.name, t.entry.url, t.force)
	if err == nil && t.part.written > 0 { // it was begun while we waited for the head
		err = t.part.restart(0, "", -1)
	}
	return err
}

func dispositionOf(r *pb.HttpResponse) string {
	for _, h := range r.GetHeaders() {
		if http.CanonicalHeaderKey(h.GetName()) != "Content-Disposition" {
			continue
		}
		if raw := h.GetRawValue(); len(raw) > 0 {
			return string(raw)
		}
		return h.GetValue()
	}
	return ""
}

func (t *transfer) chunk(ctx context.Context, c *pb.BodyChunk) error {
	if err := t.body(ctx); err != nil {
		return err
	}
	if err := t.part.write(c.GetData()); err != nil {
		return cli.OutputError(err)
	}
	t.result.FetchedBytes += int64(len(c.GetData()))
	t.row.set(t.part.written, t.part.said.Total)
	return t.limit.pay(ctx, len(c.GetData())) // what is not read holds up the origin
}
