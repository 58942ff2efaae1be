package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/client"
	"fetchd/cmd/fetchctl/service"
	"fetchd/cmd/fetchctl/show"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
	"fetchd/internal/cli"
)

// transfer downloads one file.
type transfer struct {
	*Run
	entry   *entry
	result  Result
	part    *part // nil before the first byte
	row     *track
	tell    *show.Reporter
	started time.Time

	head      *pb.ResponseStarted // of a body that has not started
	resumed   int64               // offset at which the current fetch resumed
	startOver bool                // the current fetch is the second one
}

var (
	// errStartOver reports that the part of an earlier run does not match the origin's file.
	errStartOver = errors.New("the partial file does not match the origin's file: starting over")
	// errAlreadyThere reports that the file exists.
	errAlreadyThere = errors.New("already there")
)

// otherName says what to do about a file that is in the way.
const otherName = "remove it, give another name in the second column of -i, or give --force"

// refusal is the reason why a file is not accepted although the fetch succeeded.
type refusal struct {
	class, text string
	code        int // exit code
}

// Error implements error.
func (r *refusal) Error() string { return r.text }

func (t *transfer) open() {
	t.started = time.Now()
	t.row = t.board.add(t.entry.name)
	t.tell = &show.Reporter{Out: &cli.Printer{W: t.board}, Paint: t.board.paint, Brief: true}
	t.tell.Indent = t.entry.name + "  "
	if t.board.quiet {
		t.tell.Out = &cli.Printer{W: io.Discard}
	}
}

// run downloads the file.
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
			return err // impossible: there was no part
		}
		t.startOver = true
		t.tell.Line("the partial file does not match the origin's file: starting over")
		if err := t.part.restart(0, "", -1); err != nil {
			return cli.OutputError(err)
		}
	}
}

// look looks for an existing file and for an unfinished part, before anything is requested.
func (t *transfer) look(ctx context.Context) error {
	if err := t.listed(); t.entry.fixed && err != nil {
		return err
	}
	there, err := t.dir.exists(t.entry.name)
	switch {
	case err != nil:
		return cli.OutputError(err)
	case there && !t.flags.Force:
		return t.alreadyThere(ctx)
	}
	if t.naming.unfinished[t.entry.name] == t.entry.url {
		if t.part, err = openPart(t.dir, t.entry.name, t.entry.url, t.flags.Force); err != nil {
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

// listed rejects a file that is not in the list of digests. Otherwise an origin could avoid
// the list by choosing another name.
func (t *transfer) listed() error {
	if t.sums != nil && t.sums[t.entry.name] == "" {
		return &refusal{"integrity", "its name is not in the list of digests; name it in the second column of -i", cli.ExitPermanent}
	}
	return nil
}

// alreadyThere ends the transfer of a file that exists. It must have the digest in the list, or else be of the URL.
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
	known := t.dir.urlOf(t.entry.name)
	switch {
	case want != "":
	case known == t.entry.url:
		return errAlreadyThere
	case known != "":
		return &refusal{"output", "exists, and is the file of another URL: " + otherName, cli.ExitOutput}
	default:
		return &refusal{"output", "exists, and " + urlsName + " does not have its URL: list its digest in --sha256sums, " + otherName, cli.ExitOutput}
	}
	f, err := t.dir.open(t.entry.name, os.O_RDONLY)
	if err != nil {
		return cli.OutputError(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	if t.result.SHA256, err = digestOf(ctx, f); err != nil {
		return readError(ctx, err)
	}
	if t.result.SHA256 != want {
		return &refusal{"integrity", "exists, but does not have the digest in the list: remove it, or give --force", cli.ExitPermanent}
	}
	if known != t.entry.url {
		t.dir.record(t.entry.name, t.entry.url)
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

// request returns the request for the file, or for the rest of it.
func (t *transfer) request() *pb.FetchRequest {
	stream := &pb.StreamDelivery{
		Recovery:         pb.BodyRecovery_BODY_RECOVERY_RESTART,
		MaxHoldBackBytes: new(int64(0)), // bytes that are still buffered when we are killed are fetched twice
	}
	req := &pb.FetchRequest{
		Url:         t.entry.url,
		Headers:     t.headers,
		RetryPolicy: &pb.RetryPolicy{Profile: pb.RetryProfile_RETRY_PROFILE_DOWNLOAD, MaxAttempts: new(int32(t.flags.MaxRetries) + 1)},
		BodyPolicy:  &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Stream{Stream: stream}, OmitDigest: true, KeepEncoding: true},

		AuthProvider: t.flags.Provider(t.entry.url),
	}
	if t.flags.WARC != nil {
		req.RecordPolicy = &pb.RecordPolicy{Store: service.WARCStore}
	}
	t.resumed, t.head = 0, nil
	if t.part != nil && t.part.resumable() {
		t.resumed = t.part.written
		stream.ResumePoint = &pb.ResumePoint{OffsetBytes: t.part.written, Validator: t.part.said.Validator}
	}
	return req
}

func (t *transfer) event(ctx context.Context, m *pb.FetchEvent) error {
	switch e := m.GetEvent().(type) {
	case *pb.FetchEvent_AttemptStarted:
		t.result.AttemptCount++
		t.tell.Began = m.GetElapsedOffset().AsDuration()
	case *pb.FetchEvent_ResponseStarted:
		t.head = e.ResponseStarted // a failed response has no body: keep the bytes so far
	case *pb.FetchEvent_BodyChunk:
		return t.chunk(ctx, e.BodyChunk)
	case *pb.FetchEvent_AttemptFinished:
		if e.AttemptFinished.GetRetryDecision().GetRetry() != nil {
			t.tell.Attempt(e.AttemptFinished, m.GetElapsedOffset().AsDuration()-t.tell.Began)
		}
		t.tell.Stopped = e.AttemptFinished.GetRetryDecision().GetRule()
	}
	return nil
}

// body processes the head of a body that begins or is empty.
func (t *transfer) body(ctx context.Context) error {
	head := t.head
	if t.head = nil; head == nil {
		return nil
	}
	return t.response(ctx, head.GetResponse(), head.GetBodyOffsetBytes())
}

// response prepares the part for a body that begins at the offset.
func (t *transfer) response(ctx context.Context, r *pb.HttpResponse, offset int64) error {
	if offset == 0 && r.GetStatusCode() == http.StatusPartialContent {
		return &refusal{"partial", "the origin sent a part, although the request was for the complete file", cli.ExitPermanent}
	}
	total := show.TotalOf(r)
	if t.part == nil {
		if err := t.name(ctx, r); err != nil {
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
				t.tell.Line("the file cannot be continued, or has changed at the origin: starting over")
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

// name determines the name of the file and opens its part.
func (t *transfer) name(ctx context.Context, r *pb.HttpResponse) error {
	wanted := dispositionName(dispositionOf(r))
	if err := t.naming.settle(t.entry, wanted, t.flags.Force); err != nil {
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
	case there && !t.flags.Force:
		return t.alreadyThere(ctx)
	}
	t.part, err = openPart(t.dir, t.entry.name, t.entry.url, t.flags.Force)
	if err == nil && t.part.written > 0 { // another URL created it in the meantime
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
	return t.limit.pay(ctx, len(c.GetData())) // unread data slows down the origin
}

// take finishes the file if the fetch succeeded and the file is complete and correct.
func (t *transfer) take(ctx context.Context, o *pb.FetchOutcome) error {
	t.result.StatusCode = o.GetResponse().GetStatusCode()
	switch o.GetKind() {
	case pb.OutcomeKind_OUTCOME_KIND_SUCCESS:
	case pb.OutcomeKind_OUTCOME_KIND_FAILED:
		if t.misfits(o) && !t.startOver {
			return errStartOver
		}
		if e := o.GetError(); e != nil {
			e.Message = strings.ReplaceAll(e.GetMessage(), "header_timeout 15s, the default of profile download", `header_timeout 15s; "fetchctl get -O --timeout 90s URL" waits longer`)
		}
		return &failure{o}
	default:
		return &refusal{show.Label(o.GetKind()), "the response has no file: " + show.Label(o.GetKind()), cli.ExitPermanent}
	}
	if t.head.GetResponse().GetStatusCode()/100 == 2 { // an empty body
		if err := t.body(ctx); err != nil {
			return err
		}
	}
	if t.part == nil { // a response without a body, such as 204
		if err := t.response(ctx, o.GetResponse(), 0); err != nil {
			return err
		}
	}
	p := t.part
	if want := o.GetBodySummary().GetSizeBytes(); want != p.written {
		return fmt.Errorf("%w: the body has %d bytes, but %d came", client.ErrContract, want, p.written)
	}
	if p.said.Total >= 0 && p.said.Total != p.written {
		return t.wrong(fmt.Sprintf("has %d bytes instead of %d", p.written, p.said.Total))
	}
	if want := t.sums[t.entry.name]; want != "" {
		got, err := digestOf(ctx, p.reader())
		if err != nil {
			return readError(ctx, err)
		}
		if t.result.SHA256 = got; got != want {
			return t.wrong("does not have the digest in the list, but " + got)
		}
	} else if o.GetBodySummary().GetUnrequestedData() {
		if err := t.part.drop(); err != nil {
			return cli.OutputError(err)
		}
		return &refusal{"connection_reset", "may be the body of another response: the origin sent more than was requested; fetch it again", cli.ExitTransient}
	}
	t.result.SizeBytes = p.written
	if err := p.finish(t.flags.Force); err != nil {
		return cli.OutputError(err)
	}
	return nil
}

// wrong drops an incorrect file. If it was continued from an earlier run, it is fetched once
// more from the start.
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

// Error returns the message of the service, and the target of a redirect that was not followed.
func (f *failure) Error() string {
	e := f.outcome.GetError()
	text := e.GetMessage()
	if e.GetDetail() != "" {
		text += "; " + e.GetDetail()
	}
	if target := show.RedirectTarget(f.outcome); target != "" {
		text += "; the redirect leads to " + cli.Escape(target)
	}
	return text
}

// isGone reports whether the origin has the file no more.
func isGone(err error) bool {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		return false
	}
	code := f.outcome.GetResponse().GetStatusCode()
	return code == http.StatusNotFound || code == http.StatusGone
}

// close ends the transfer. It keeps a part that can be continued and is still that of a file, and prints how
// the file ended.
func (t *transfer) close(ctx context.Context, err error) {
	spent := time.Since(t.started)
	t.result.Seconds = spent.Round(time.Millisecond).Seconds()
	kept := ""
	if t.part != nil && !t.part.finished {
		n, leaveErr := int64(0), error(nil)
		if isGone(err) {
			kept, leaveErr = "the partial file is removed, because the origin has the file no more", t.part.drop()
		} else if n, leaveErr = t.part.leave(); n > 0 {
			kept = show.Size(n) + " kept for the next run"
		}
		t.result.SizeBytes = n
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

// told returns a warning if the origin did not announce the length of the file.
func (t *transfer) told() string {
	if t.part.said.Total >= 0 || t.result.SHA256 != "" {
		return ""
	}
	return "the origin sent no length"
}

func rate(n int64, spent time.Duration) string {
	if n == 0 || spent <= 0 {
		return ""
	}
	return show.Size(int64(float64(n)/spent.Seconds())) + "/s"
}

// failed records and prints why there is no file.
func (t *transfer) failed(err error) {
	r := &t.result
	r.Result, r.Message = resultFailed, fmt.Sprint(err)
	t.tell.Out = &cli.Printer{W: t.board} // also if the run is quiet
	mark := t.tell.Paint.Paint(cli.Red, "failed")
	if f, ok := errors.AsType[*failure](err); ok {
		e := f.outcome.GetError()
		r.code = show.ExitCode(f.outcome)
		r.ErrorClass, r.FailureType, r.Retryable = show.Label(e.GetErrorClass()), show.Label(e.GetFailureType()), e.GetRetryable()
		t.tell.Failed(f.outcome, cli.Count(int(r.AttemptCount), "attempt"), show.Took(time.Since(t.started)))
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

// violated returns the fields that the service rejected.
func violated(st *status.Status) string {
	var text strings.Builder
	for _, v := range badrequest.Of(st) {
		text.WriteString("; " + v.GetField() + ": " + v.GetDescription())
	}
	return text.String()
}

// misfits reports whether the origin refused to continue the part of an earlier run.
func (t *transfer) misfits(o *pb.FetchOutcome) bool {
	if t.resumed == 0 {
		return false
	}
	return o.GetError().GetReason() == "resume_mismatch" ||
		o.GetResponse().GetStatusCode() == http.StatusRequestedRangeNotSatisfiable && o.GetResponseAttempt() == o.GetAttemptCount()
}

// serviceCode returns the exit code of a file of which the call failed.
func serviceCode(err error) int {
	if status.Code(err) == codes.InvalidArgument {
		return cli.ExitUsage
	}
	return cli.ExitService
}

// validatorOf returns the validator with which the rest of a body can be requested: a strong
// ETag, or a Last-Modified that is old enough to be strong (RFC 9110 §8.8.2.2). It returns ""
// if the service cannot continue the body either (rule B2).
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

// isStrongValidator reports whether the service accepts v in a resume point.
func isStrongValidator(v string) bool {
	_, err := http.ParseTime(v)
	return err == nil || isStrongTag(v)
}

// isStrongTag reports whether v is a strong entity tag (RFC 9110 §8.8.3).
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
