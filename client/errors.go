package client

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
)

// What to do with a fetch that failed, for errors.Is. These are the failure types of the outcome,
// but a transient or rate limited failure that is not retryable is [ErrNotIdempotent], or
// [ErrPermanent] if the service itself has a defect. An [*Error] matches at most one of them.
var (
	// ErrTransient is a failure that may pass by itself: a later fetch may succeed.
	ErrTransient = errors.New("transient")
	// ErrPermanent is a failure that will not pass by itself.
	ErrPermanent = errors.New("permanent")
	// ErrRateLimited means that the target limits the rate, and that a later fetch may succeed; see
	// [Error.RetryAfter].
	ErrRateLimited = errors.New("rate limited")
	// ErrNeedsAuth means that the target requires credentials, or different ones.
	ErrNeedsAuth = errors.New("needs authorization")
	// ErrNotIdempotent means that a POST or PATCH was not sent again, because it may have taken
	// effect. Find out whether it did before you send it once more. An error that is no [*Error]
	// matches it if the service was lost before it reported the outcome of such a request.
	ErrNotIdempotent = errors.New("not sent again, because it may have taken effect")
)

// Error reports that a fetch failed at its target. Errors of the service are gRPC statuses and
// never an Error.
type Error struct {
	// Outcome has all details. It is not nil, and its error is set.
	Outcome *pb.FetchOutcome
}

// Error returns the URL, the class, the rule and the message. The service has escaped the parts
// that it quotes from the origin.
func (e *Error) Error() string {
	f := e.Outcome.GetError()
	text := strings.ToLower(strings.TrimPrefix(f.GetErrorClass().String(), "ERROR_CLASS_"))
	if code := e.StatusCode(); code != 0 {
		text += fmt.Sprintf(", status %d", code)
	}
	url := f.GetUrl()
	if target := e.LocationURL(); target != "" {
		url += ", redirected to " + target
	}
	text = fmt.Sprintf("fetch %s: %s (rule %s, attempt %d): %s", url, text, f.GetClassRule(), e.Outcome.GetAttemptCount(), strings.Replace(f.GetMessage(), callDeadline, "the deadline of the context left ", 1))
	if detail := f.GetDetail(); detail != "" {
		text += "; " + detail
	}
	return text
}

// callDeadline is how the service names the deadline that a call has from its context.
const callDeadline = "the deadline of the call, set by the caller, left "

// Is reports whether target says what to do about the error. A fetch that ran out of time also
// matches [context.DeadlineExceeded].
func (e *Error) Is(target error) bool {
	f := e.Outcome.GetError()
	switch failureType := failureTypes[f.GetFailureType()]; {
	case target == context.DeadlineExceeded:
		return e.Class() == pb.ErrorClass_ERROR_CLASS_DEADLINE
	case MayHaveTakenEffect(f):
		return target == ErrNotIdempotent
	case f.GetRetryable() || failureType != ErrTransient && failureType != ErrRateLimited:
		return failureType == target
	}
	return target == ErrPermanent
}

// MayHaveTakenEffect reports whether a failure means [ErrNotIdempotent].
func MayHaveTakenEffect(f *pb.FetchError) bool {
	passing := f.GetFailureType() == pb.FailureType_FAILURE_TYPE_TRANSIENT || f.GetFailureType() == pb.FailureType_FAILURE_TYPE_RATE_LIMITED
	defect := f.GetErrorClass() == pb.ErrorClass_ERROR_CLASS_INTERNAL && f.GetReason() != "too_many_open_files"
	state := f.GetRequestState()
	unprocessed := state == pb.RequestState_REQUEST_STATE_NOT_SENT || state == pb.RequestState_REQUEST_STATE_NOT_PROCESSED
	return passing && !f.GetRetryable() && !defect && !unprocessed
}

var failureTypes = map[pb.FailureType]error{
	pb.FailureType_FAILURE_TYPE_TRANSIENT:    ErrTransient,
	pb.FailureType_FAILURE_TYPE_PERMANENT:    ErrPermanent,
	pb.FailureType_FAILURE_TYPE_RATE_LIMITED: ErrRateLimited,
	pb.FailureType_FAILURE_TYPE_NEEDS_AUTH:   ErrNeedsAuth,
}

// Timeout reports whether a time limit was exceeded, as [net.Error] does.
func (e *Error) Timeout() bool {
	switch e.Class() {
	case pb.ErrorClass_ERROR_CLASS_DEADLINE, pb.ErrorClass_ERROR_CLASS_ATTEMPT_TIMEOUT, pb.ErrorClass_ERROR_CLASS_CONNECT_TIMEOUT,
		pb.ErrorClass_ERROR_CLASS_RESPONSE_TIMEOUT, pb.ErrorClass_ERROR_CLASS_WRITE_TIMEOUT, pb.ErrorClass_ERROR_CLASS_BODY_TIMEOUT:
		return true
	}
	return false
}

// Retryable reports whether a later fetch of the same request may succeed.
func (e *Error) Retryable() bool { return e.Outcome.GetError().GetRetryable() }

// RequestState returns whether a request of the fetch may have been processed.
func (e *Error) RequestState() pb.RequestState { return e.Outcome.GetError().GetRequestState() }

// Class returns the cause. Later versions may add values: for an unknown one use the failure
// type.
func (e *Error) Class() pb.ErrorClass { return e.Outcome.GetError().GetErrorClass() }

// Reason returns a finer cause in lower_snake_case, such as too_many_redirects. It may be
// empty, and later versions may add values.
func (e *Error) Reason() string { return e.Outcome.GetError().GetReason() }

// ClassRule returns the number of the rule that classified the failure, such as "H2".
func (e *Error) ClassRule() string { return e.Outcome.GetError().GetClassRule() }

// Policy returns the policy of the service that forbids the target, or a field of a task, and the entry of it that
// decides, such as "*.ads.example". Both are empty for other failures, and the entry may be empty.
func (e *Error) Policy() (name, rule string) {
	f := e.Outcome.GetError()
	return f.GetPolicy(), f.GetPolicyRule()
}

// StatusCode returns the status of the last response, or 0 if none was read.
func (e *Error) StatusCode() int { return int(e.Outcome.GetResponse().GetStatusCode()) }

// LocationURL returns the target of a redirect that was not followed, such as one that the egress policy
// forbids. It is empty if there was none.
func (e *Error) LocationURL() string {
	hops := e.Outcome.GetHops()
	if len(hops) == 0 {
		return ""
	}
	return hops[len(hops)-1].GetLocationUrl()
}

// RetryAfter returns the wait that the target asked for with Retry-After. It returns false if
// the target sent none, or none that is valid.
func (e *Error) RetryAfter() (time.Duration, bool) {
	after := e.Outcome.GetError().GetRetryAfter()
	return after.AsDuration(), after != nil
}

// onceOf returns the method of a request that must not be sent twice, or "".
func onceOf(request *pb.FetchRequest) string {
	method := request.GetMethod()
	if method != http.MethodPost && method != http.MethodPatch || request.GetRetryPolicy().GetAllowNonIdempotent() {
		return ""
	}
	return method
}

// lost returns the error of a fetch that was sent and whose outcome will never come. It matches
// [ErrNotIdempotent] if once, the method, is set.
func lost(once string, err error) error {
	if once == "" {
		return err
	}
	return &lostError{once, err}
}

type lostError struct {
	method string
	cause  error
}

// Error implements error.
func (e *lostError) Error() string {
	return fmt.Sprintf("the %s may have taken effect: find out whether it did before you send it again: %v", e.method, e.cause)
}

// Is implements the interface that [errors.Is] uses.
func (*lostError) Is(target error) bool { return target == ErrNotIdempotent }

// Unwrap implements the interface that [errors.Is] uses.
func (e *lostError) Unwrap() error { return e.cause }

// GRPCStatus returns the status of the call. Codes that callers take as a reason to send the request again
// are UNKNOWN here.
func (e *lostError) GRPCStatus() *status.Status {
	st := status.Convert(e.cause)
	if c := st.Code(); c == codes.Unavailable || c == codes.ResourceExhausted {
		return status.New(codes.Unknown, st.Message())
	}
	return st
}

// isRefusal reports whether a status that is the first answer of a service says that it will not fetch.
// Other codes can come from a connection that broke.
func isRefusal(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.NotFound,
		codes.PermissionDenied, codes.Unauthenticated, codes.ResourceExhausted:
		return true
	}
	return false
}

// reasonQuota is the reason of a refusal by a quota of the caller's policy.
const reasonQuota = "QUOTA"

// refusal returns the wait that a service has asked for when it refused a call. The wait is zero if it asked for none, as
// in any status that gRPC itself has made. quota reports whether a quota of the caller is the reason.
func refusal(err error) (wait time.Duration, quota bool) {
	st := status.Convert(err)
	if st.Code() != codes.ResourceExhausted {
		return 0, false
	}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			wait = d.GetRetryDelay().AsDuration()
		case *errdetails.ErrorInfo:
			quota = d.GetReason() == reasonQuota
		}
	}
	return max(0, wait), quota
}

// waitForQuota waits as long as a quota asks for. It returns false at once if err is no refusal by a quota, or if ctx ends
// before the wait does.
func waitForQuota(ctx context.Context, err error) bool {
	wait, quota := refusal(err)
	if deadline, ok := ctx.Deadline(); !quota || wait == 0 || ok && time.Until(deadline) <= wait {
		return false
	}
	return pause(ctx, wait)
}

// pause waits for d. It returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
