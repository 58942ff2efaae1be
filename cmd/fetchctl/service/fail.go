package service

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/internal/address"
	"fetchd/internal/badrequest"
	"fetchd/internal/cli"
)

// Fail prints why a command failed and returns the exit code. server is the address of
// the service, empty for the service inside fetchctl.
func Fail(ctx context.Context, p *cli.Program, server string, err error) int {
	if _, ok := errors.AsType[*cli.Error](err); ok || err == nil {
		return p.Exit(ctx, err)
	}
	e := &cli.Error{Code: cli.ExitService, Err: err}
	if st, ok := status.FromError(err); ok {
		e.Err, e.Hint = fmt.Errorf("%v: %s", st.Code(), st.Message()), remedy(st.Code(), server)
		if other := address.Remedy(st.Message()); other != "" {
			e.Err, e.Hint = fmt.Errorf("%v: %s", st.Code(), strings.TrimSuffix(st.Message(), "; "+other)), "At "+cli.Escape(server)+", "+other+"."
		}
		if st.Code() == codes.InvalidArgument {
			e = badRequest(st)
		}
	}
	return p.Exit(ctx, e)
}

// badRequest returns the error for a request that the service refused, with one line for
// each violation.
func badRequest(st *status.Status) *cli.Error {
	var violations []string
	for _, v := range badrequest.Of(st) {
		violations = append(violations, cli.Escape(v.GetField())+": "+cli.Escape(v.GetDescription()))
	}
	if violations == nil {
		return &cli.Error{Code: cli.ExitUsage, Err: errors.New(st.Message())}
	}
	return &cli.Error{Code: cli.ExitUsage, Err: errors.New("the request is not usable"), Hint: strings.Join(violations, "\n  ")}
}

// remedy returns what a user can do about a service that failed.
func remedy(code codes.Code, server string) string {
	if server == "" {
		return "The service inside fetchctl failed; this is a bug. Try a running fetchd with --server."
	}
	switch code {
	case codes.Unavailable:
		return fmt.Sprintf("Is fetchd running at %s? Start it, or use neither --server nor FETCHD_SERVER: the service then runs inside fetchctl.", cli.Escape(server))
	case codes.Unimplemented:
		return fmt.Sprintf("The server at %s does not offer fetchd.v1.FetchService. Is it the gRPC port of fetchd?", cli.Escape(server))
	case codes.DeadlineExceeded:
		return "The service did not answer in time. Give a longer --timeout, or look at its log."
	case codes.ResourceExhausted:
		return "The service is over a limit. Try again a little later."
	case codes.PermissionDenied, codes.Unauthenticated:
		return "The service does not allow this. Ask its operator."
	case codes.Aborted:
		return "The output was not read for too long. Read faster, or write it to a file with -o."
	}
	return "The log of the service says more."
}
