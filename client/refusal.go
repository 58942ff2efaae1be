package client

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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
