package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

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
		return &refusal{label(o.GetKind()), "the answer has no file: " + words(o.GetKind()), cli.ExitPermanent}
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
		return fmt.Errorf("%w: the body has %d bytes, but %d came", errContract, want, p.written)
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
	if err := p.finish(t.force); err != nil {
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
			kept = size(n) + " kept: the next run continues there"
		}
		if err == nil || ctx.Err() == nil && leaveErr != nil && !isOutput(err) {
			err = cli.OutputError(leaveErr)
		}
	}
	t.board.remove(t.row)
	switch {
	case err == nil:
		t.result.Result = resultCompleted
		t.tell.line(t.tell.paint.Paint(cli.Green, "done"), size(t.result.SizeBytes), took(spent), rate(t.result.FetchedBytes, spent), t.digest(), t.told())
	case errors.Is(err, errAlreadyThere):
		t.result.Result = resultAlreadyThere
		t.tell.line("already there", t.digest())
	case ctx.Err() != nil:
		t.result.Result = resultInterrupted
		t.tell.line(t.tell.paint.Paint(cli.Yellow, "interrupted"), kept)
	default:
		t.failed(err)
		if kept != "" {
			t.tell.line("  " + kept)
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
	return size(int64(float64(n)/spent.Seconds())) + "/s"
}

// failed tells why there is no file.
func (t *transfer) failed(err error) {
	r := &t.result
	r.Result, r.Message = resultFailed, fmt.Sprint(err)
	mark := t.tell.paint.Paint(cli.Red, "failed")
	if f, ok := errors.AsType[*failure](err); ok {
		e := f.outcome.GetError()
		r.status = outcomeStatus(f.outcome)
		r.ErrorClass, r.FailureType, r.Retryable = label(e.GetErrorClass()), label(e.GetFailureType()), e.GetRetryable()
		t.tell.failed(f.outcome, cli.Count(int(r.Attempts), "attempt"), took(time.Since(t.begun)))
		return
	}
	if f, ok := errors.AsType[*refusal](err); ok {
		r.status, r.ErrorClass = f.status, f.class
		t.tell.line(mark, f.text)
		return
	}
	if isOutput(err) {
		r.status, r.ErrorClass = cli.ExitOutput, "output"
		t.tell.line(mark, cli.Escape(r.Message))
		return
	}
	r.status, r.ErrorClass = serviceStatus(err), "service"
	if st, ok := status.FromError(err); ok {
		r.Message = st.Message() + violated(st)
	}
	t.tell.line(mark, cli.Escape(r.Message))
	if stopsAll(err) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.stop(err)
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

// serviceStatus is the exit status of a file whose call failed.
func serviceStatus(err error) int {
	if status.Code(err) == codes.InvalidArgument {
		return cli.ExitUsage
	}
	return cli.ExitService
}
