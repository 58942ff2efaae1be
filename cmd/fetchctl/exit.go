package main

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/dial"
)

// The exit statuses. Scripts stand on them.
const (
	exitOK          = 0
	exitUsage       = 1
	exitNotHeld     = 2
	exitTransient   = 10
	exitPermanent   = 11
	exitRateLimited = 12
	exitNeedsAuth   = 13
	exitService     = 20
	exitOutput      = 21
	exitInterrupted = 130
)

// usageError says that a flag or an argument is not usable.
type usageError struct {
	field string // as the user wrote it: a flag or an argument
	text  string
}

// Error tells both.
func (e *usageError) Error() string { return e.field + ": " + e.text }

// outputError says that what was fetched or told could not be written.
type outputError struct{ err error }

// Error tells the cause.
func (e *outputError) Error() string { return "write: " + e.err.Error() }

// Unwrap returns the cause.
func (e *outputError) Unwrap() error { return e.err }

// errContract says that the service broke the contract.
var errContract = errors.New("the service broke its contract")

// fail tells why a command could not do its work and returns the exit status.
// server is the address that was asked, empty for the service inside.
func (a *app) fail(ctx context.Context, server string, err error) int {
	if ctx.Err() != nil {
		a.errorf("interrupted")
		return exitInterrupted
	}
	if flag, ok := errors.AsType[*dial.FlagError](err); ok {
		err = &usageError{flag.Flag, flag.Text}
	}
	if usage, ok := errors.AsType[*usageError](err); ok {
		a.errorf("%s", escape(fmt.Sprint(usage)))
		return exitUsage
	}
	if output, ok := errors.AsType[*outputError](err); ok {
		a.errorf("%s", escape(fmt.Sprint(output)))
		return exitOutput
	}
	st, ok := status.FromError(err)
	if !ok {
		a.errorf("%s", escape(fmt.Sprint(err)))
		return exitService
	}
	if st.Code() == codes.InvalidArgument {
		a.violations(st)
		return exitUsage
	}
	a.errorf("%v: %s", st.Code(), escape(st.Message()))
	a.hintf("%s", remedy(st.Code(), server))
	return exitService
}

// violations tells every fault of a request that was refused, a line each.
func (a *app) violations(st *status.Status) {
	told := false
	for _, detail := range st.Details() {
		bad, ok := detail.(*errdetails.BadRequest)
		if !ok {
			continue
		}
		for _, v := range bad.GetFieldViolations() {
			if !told {
				a.errorf("the request is not usable")
			}
			told = true
			a.hintf("%s: %s", escape(v.GetField()), escape(v.GetDescription()))
		}
	}
	if !told {
		a.errorf("%s", escape(st.Message()))
	}
}

// remedy says what a user can do about a service that failed.
func remedy(code codes.Code, server string) string {
	if server == "" {
		return "The service inside fetchctl failed; that is a defect. Try it with a running fetchd and --server."
	}
	switch code {
	case codes.Unavailable:
		return fmt.Sprintf("Does fetchd run at %s? Start it, or leave out --server and FETCHD_SERVER: then the service runs inside.", escape(server))
	case codes.Unimplemented:
		return fmt.Sprintf("What answers at %s does not offer fetchd.v1.FetchService. Is it the gRPC port of fetchd?", escape(server))
	case codes.DeadlineExceeded:
		return "The service did not answer in time. Give a longer --timeout, or look at its log."
	case codes.ResourceExhausted:
		return "The service is over a limit. Try again a little later."
	case codes.PermissionDenied, codes.Unauthenticated:
		return "The service does not let you do this. Ask who runs it."
	case codes.Aborted:
		return "The output was not read for too long. Read faster, or write it to a file with -o."
	}
	return "Its log says more."
}

// outcomeStatus is the exit status of a fetch that ended. A failure type that
// this program does not know is told by whether trying again may help.
func outcomeStatus(out *pb.FetchOutcome) int {
	switch out.GetKind() {
	case pb.OutcomeKind_OUTCOME_KIND_SUCCESS, pb.OutcomeKind_OUTCOME_KIND_NOT_MODIFIED, pb.OutcomeKind_OUTCOME_KIND_REDIRECT:
		return exitOK
	}
	switch out.GetError().GetFailureType() {
	case pb.FailureType_FAILURE_TYPE_TRANSIENT:
		return exitTransient
	case pb.FailureType_FAILURE_TYPE_PERMANENT:
		return exitPermanent
	case pb.FailureType_FAILURE_TYPE_RATE_LIMITED:
		return exitRateLimited
	case pb.FailureType_FAILURE_TYPE_NEEDS_AUTH:
		return exitNeedsAuth
	}
	if out.GetError().GetRetryable() {
		return exitTransient
	}
	return exitPermanent
}
