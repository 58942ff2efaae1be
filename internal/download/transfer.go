package download

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/show"
)

// transfer is one file on its way.
type transfer struct {
	*Run
	entry  *entry
	result Result
	part   *part // nil: nothing of it is there
	row    *track
	tell   *show.Reporter
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
	code        int // exit code
}

// Error tells the text.
func (r *refusal) Error() string { return r.text }

func (t *transfer) open() {
	t.begun = time.Now()
	t.row = t.board.add(t.entry.name)
	t.tell = &show.Reporter{Out: &cli.Printer{W: t.board}, Paint: t.board.paint, Brief: true}
	t.tell.Indent = t.entry.name + "  "
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
		t.tell.Line("what is there does not fit the origin's: starting over")
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
	case there && !t.config.Force:
		return t.alreadyThere(ctx)
	}
	if t.naming.begun[t.entry.name] == t.entry.url {
		if t.part, err = openPart(t.dir, t.entry.name, t.entry.url, t.config.Force); err != nil {
			return err
		}
		t.result.ResumedAt = t.part.written
	}
	if !t.board.draws {
		where := ""
		if t.result.ResumedAt > 0 {
			where = "at " + show.Size(t.result.ResumedAt)
		}
		t.tell.Line("start", cli.Escape(t.entry.url), where)
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
		RetryPolicy: &pb.RetryPolicy{Profile: pb.RetryProfile_RETRY_PROFILE_DOWNLOAD, MaxAttempts: &t.config.Attempts},
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
		t.tell.Began = m.GetElapsedOffset().AsDuration()
	case *pb.FetchResponse_ResponseStarted:
		t.head = e.ResponseStarted // a failed one has no body for us: nothing is dropped yet
	case *pb.FetchResponse_BodyChunk:
		return t.chunk(ctx, e.BodyChunk)
	case *pb.FetchResponse_AttemptFinished:
		if e.AttemptFinished.GetRetryDecision().GetVerdict() == pb.RetryVerdict_RETRY_VERDICT_RETRY {
			t.tell.Attempt(e.AttemptFinished, m.GetElapsedOffset().AsDuration()-t.tell.Began)
		}
		t.tell.Stopped = e.AttemptFinished.GetRetryDecision().GetRule()
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
	total := show.TotalOf(r)
	if t.part == nil {
		if err := t.name(ctx, r, total); err != nil {
			return err
		}
	}
	p := t.part
	switch {
	case offset > p.written || offset < 0:
		return fmt.Errorf("%w: a body begins at %d, behind %d bytes", client.ErrContract, offset, p.written)
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
				t.tell.Line("the origin's file cannot be continued, or has changed: starting over")
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
	if err := t.naming.settle(t.entry, wanted, total, t.config.Force); err != nil {
		return err
	}
	t.result.Name = t.entry.name
	t.tell.Indent = t.entry.name + "  "
	t.row.rename(t.entry.name)
	if err := t.listed(); err != nil {
		return err
	}
	there, err := t.dir.exists(t.entry.name)
	switch {
	case err != nil:
		return cli.OutputError(err)
	case there && !t.config.Force:
		return t.alreadyThere(ctx)
	}
	t.part, err = openPart(t.dir, t.entry.name, t.entry.url, t.config.Force)
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

// take finishes the file where the fetch succeeded and all of it is right.
func (t *transfer) take(ctx context.Context, o *pb.FetchOutcome) error {
	t.result.StatusCode = o.GetResponse().GetStatusCode()
	switch o.GetKind() {
	case pb.OutcomeKind_OUTCOME_KIND_SUCCESS:
	case pb.OutcomeKind_OUTCOME_KIND_FAILED:
		if t.misfits(o) && !t.startOver {
			return errStartOver
		}
		return &failure{o}
	default:
		return &refusal{show.Label(o.GetKind()), "the answer has no file: " + show.Words(o.GetKind()), cli.ExitPermanent}
	}
	if t.head.GetResponse().GetStatusCode()/100 == 2 { // a body without a byte
		if err := t.body(ctx); err != nil {
			return err
		}
	}
	if t.part == nil { // a response that can have no body, such as 204
		if err := t.response(ctx, o.GetResponse(), 0); err != nil {
			return err
		}
	}
	p := t.part
	if want := o.GetBodySummary().GetSizeBytes(); want != p.written {
		return fmt.Errorf("%w: the body has %d bytes, but %d came", client.ErrContract, want, p.written)
	}
	if p.said.Total >= 0 && p.said.Total != p.written {
		return t.wrong(fmt.Sprintf("has %d bytes, and was to have %d", p.written, p.said.Total))
	}
	if want := t.sums[t.entry.name]; want != "" {
		got, err := digestOf(ctx, p.reader())
		if err != nil {
			return readError(ctx, err)
		}
		if t.result.SHA256 = got; got != want {
			return t.wrong("is not of the digest in the list, but " + got)
		}
	}
	t.result.SizeBytes = p.written
	if err := p.finish(t.config.Force); err != nil {
		return cli.OutputError(err)
	}
	return nil
}

// wrong drops a body that is not what it must be. One that was put together from
// two runs is fetched once more, as a whole.
func (t *transfer) wrong(text string) error {
	if t.resumed > 0 && !t.startOver {
		return errStartOver
	}
	if err := t.part.drop(); err != nil {
		return cli.OutputError(err)
	}
	return &refusal{"integrity", text, cli.ExitPermanent}
}

// failure is a fetch that failed.
type failure struct{ outcome *pb.FetchOutcome }

// Error tells the service's text.
func (f *failure) Error() string {
	e := f.outcome.GetError()
	if e.GetDetail() == "" {
		return e.GetMessage()
	}
	return e.GetMessage() + "; " + e.GetDetail()
}

// close ends the transfer: what can be continued is kept, and the end is told.
func (t *transfer) close(ctx context.Context, err error) {
	spent := time.Since(t.begun)
	t.result.Seconds = spent.Round(time.Millisecond).Seconds()
	kept := ""
	if t.part != nil && !t.part.finished {
		n, leaveErr := t.part.leave()
		t.result.SizeBytes = n
		if n > 0 {
			kept = show.Size(n) + " kept: the next run continues there"
		}
		if err == nil || ctx.Err() == nil && leaveErr != nil && !isOutput(err) {
			err = cli.OutputError(leaveErr)
		}
	}
	t.board.remove(t.row)
	switch {
	case err == nil:
		t.result.Result = resultCompleted
		t.tell.Line(t.tell.Paint.Paint(cli.Green, "done"), show.Size(t.result.SizeBytes), show.Took(spent), rate(t.result.FetchedBytes, spent), t.digest(), t.told())
	case errors.Is(err, errAlreadyThere):
		t.result.Result = resultAlreadyThere
		t.tell.Line("already there", t.digest())
	case ctx.Err() != nil:
		t.result.Result = resultInterrupted
		t.tell.Line(t.tell.Paint.Paint(cli.Yellow, "interrupted"), kept)
	default:
		t.failed(err)
		if kept != "" {
			t.tell.Line("  " + kept)
		}
	}
}

func isOutput(err error) bool {
	return cli.CodeOf(err) == cli.ExitOutput
}

func (t *transfer) digest() string {
	if t.result.SHA256 == "" {
		return ""
	}
	return "sha256 ok"
}

// told warns of a body whose end the origin did not announce.
func (t *transfer) told() string {
	if t.part.said.Total >= 0 || t.result.SHA256 != "" {
		return ""
	}
	return "the origin told no length"
}

func rate(n int64, spent time.Duration) string {
	if n == 0 || spent <= 0 {
		return ""
	}
	return show.Size(int64(float64(n)/spent.Seconds())) + "/s"
}

// failed tells why there is no file.
func (t *transfer) failed(err error) {
	r := &t.result
	r.Result, r.Message = resultFailed, fmt.Sprint(err)
	mark := t.tell.Paint.Paint(cli.Red, "failed")
	if f, ok := errors.AsType[*failure](err); ok {
		e := f.outcome.GetError()
		r.code = show.ExitCode(f.outcome)
		r.ErrorClass, r.FailureType, r.Retryable = show.Label(e.GetErrorClass()), show.Label(e.GetFailureType()), e.GetRetryable()
		t.tell.Failed(f.outcome, cli.Count(int(r.Attempts), "attempt"), show.Took(time.Since(t.begun)))
		return
	}
	if f, ok := errors.AsType[*refusal](err); ok {
		r.code, r.ErrorClass = f.code, f.class
		t.tell.Line(mark, f.text)
		return
	}
	if isOutput(err) {
		r.code, r.ErrorClass = cli.ExitOutput, "output"
		t.tell.Line(mark, cli.Escape(r.Message))
		return
	}
	r.code, r.ErrorClass = serviceCode(err), "service"
	if st, ok := status.FromError(err); ok {
		r.Message = st.Message() + violated(st)
	}
	t.tell.Line(mark, cli.Escape(r.Message))
	if stopsAll(err) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.stopLocked(err)
	}
}

// violated are the fields that the service refused.
func violated(st *status.Status) string {
	var text strings.Builder
	for _, detail := range st.Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				text.WriteString("; " + v.GetField() + ": " + v.GetDescription())
			}
		}
	}
	return text.String()
}

// misfits tells that the origin refused to continue what an earlier run left.
func (t *transfer) misfits(o *pb.FetchOutcome) bool {
	if t.resumed == 0 {
		return false
	}
	return o.GetError().GetReason() == "resume_mismatch" ||
		o.GetResponse().GetStatusCode() == http.StatusRequestedRangeNotSatisfiable && o.GetResponseAttempt() == o.GetAttempts()
}

// serviceCode is the exit status of a file whose call failed.
func serviceCode(err error) int {
	if status.Code(err) == codes.InvalidArgument {
		return cli.ExitUsage
	}
	return cli.ExitService
}

// validatorOf is what the rest of a body can be asked for with: a strong tag, or
// a date that is old enough to be strong (RFC 9110 §8.8.2.2). It is "" where the
// body cannot be continued, as the service sees it too (spec B2).
func validatorOf(r *pb.HttpResponse) string {
	h := show.HeadersOf(r)
	if r.GetStatusCode() != http.StatusOK || show.CodingOf(r) != "" || strings.EqualFold(h.Get("Accept-Ranges"), "none") {
		return ""
	}
	if tag := h.Get("Etag"); tag != "" {
		if isStrongTag(tag) {
			return tag
		}
		return ""
	}
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		return ""
	}
	if date, err := http.ParseTime(h.Get("Date")); err != nil || date.Sub(modified) < time.Second {
		return ""
	}
	return h.Get("Last-Modified")
}

// isStrongValidator tells what the service takes for a resume point.
func isStrongValidator(v string) bool {
	_, err := http.ParseTime(v)
	return err == nil || isStrongTag(v)
}

// isStrongTag tells a strong entity tag (RFC 9110 §8.8.3).
func isStrongTag(v string) bool {
	if len(v) < 2 || len(v) > 1024 || v[0] != '"' || v[len(v)-1] != '"' {
		return false
	}
	for i := 1; i < len(v)-1; i++ {
		if c := v[i]; c <= ' ' || c == '"' || c == 0x7f {
			return false
		}
	}
	return true
}
