package main

import (
	"context"
	"fmt"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// connectedCall is a service of which it is known whether a call of Fetch reached a connection, and
// whether an event came back.
type connectedCall struct {
	pb.FetchServiceClient
	connected, answered bool
}

// Fetch implements pb.FetchServiceClient.
func (c *connectedCall) Fetch(ctx context.Context, in *pb.FetchRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[pb.FetchResponse], error) {
	stream, err := c.FetchServiceClient.Fetch(ctx, in, opts...)
	c.connected = err == nil
	return stream, err
}

// failed returns the error of a call that ended without an outcome. The exit code of a request that
// must not be sent twice, and may have been sent, is [cli.ExitNotIdempotent].
func (c *connectedCall) failed(req *pb.FetchRequest, err error) error {
	once := req.GetMethod() == http.MethodPost || req.GetMethod() == http.MethodPatch
	if !once || req.GetRetryPolicy().GetIdempotencyKey() != "" || !c.connected || !c.answered && isRefusal(err) {
		return err
	}
	cause := err
	if st, ok := status.FromError(err); ok {
		cause = fmt.Errorf("%v: %s", st.Code(), st.Message())
	}
	return &cli.Error{Code: cli.ExitNotIdempotent, Err: fmt.Errorf("the service was lost before it reported the outcome; the %s was %w: %w", req.GetMethod(), client.ErrNotIdempotent, cause),
		Hint: "Find out whether it did before you send it once more. If the origin knows idempotency keys, give --idempotency-key: the same request can then be sent again."}
}

// isRefusal reports whether the first answer of a service says that it will not fetch. Other codes
// can come from a connection that broke.
func isRefusal(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.NotFound,
		codes.PermissionDenied, codes.Unauthenticated, codes.ResourceExhausted:
		return true
	}
	return false
}
