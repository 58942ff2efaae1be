package admission

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/internal/badrequest"
)

// ErrorDomain is the domain of every google.rpc.ErrorInfo of this service.
const ErrorDomain = "fetchd.v1"

// ReasonMemory is the reason of refusals for want of memory.
const ReasonMemory = "MEMORY"

// minPushback is the shortest time after which a refused caller should retry.
const minPushback = 250 * time.Millisecond

// Refusals counts refused calls, by caller and reason. Its methods return their errors.
type Refusals func(caller, reason string)

// Refuse returns RESOURCE_EXHAUSTED with the reason and with the time after which to retry. It sets
// the metadata that gRPC's own retries use (gRFC A6).
func (count Refusals) Refuse(ctx context.Context, reason, text string) error {
	wait, err := count.Refusal(Caller(ctx), reason, text)
	_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(wait.Milliseconds(), 10))) // fails only outside a call
	return err
}

// Refusal returns RESOURCE_EXHAUSTED, and how long the caller should wait. The time is random, so that
// callers that were refused together do not return together.
func (count Refusals) Refusal(caller, reason, text string) (time.Duration, error) {
	count(caller, reason)
	wait := minPushback + rand.N(minPushback)
	return wait, badrequest.WithDetails(status.Newf(codes.ResourceExhausted, "%s: retry in %s, or call another replica", text, wait.Round(time.Millisecond)),
		&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)},
		&errdetails.ErrorInfo{Reason: reason, Domain: ErrorDomain})
}
