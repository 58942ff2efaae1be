package server

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/classify"
	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
)

// effectiveRecovery is NONE where nothing can be continued, whatever was asked for.
func effectiveRecovery(r *fetch.Request) pb.BodyRecovery {
	if !r.Resumable() {
		return pb.BodyRecovery_BODY_RECOVERY_NONE
	}
	return recoveries.wire[r.Recovery]
}

// echo is what an effective request takes from the caller's as it is, nil for nothing,
// as mostly. The rest of that one is not kept while the fetch goes on.
type echo struct {
	resumePoint  *pb.ResumePoint
	precondition *pb.Precondition
	integrity    *pb.Integrity
	content      *pb.ContentPolicy
	labels       map[string]string
	authProvider string
}

func echoOf(in *pb.FetchRequest) *echo {
	point := in.GetBodyPolicy().GetResumePoint()
	if point == nil && in.GetPrecondition() == nil && in.GetIntegrity() == nil && in.GetContentPolicy() == nil &&
		len(in.GetLabels()) == 0 && in.GetAuthProvider() == "" {
		return nil
	}
	return &echo{point, in.GetPrecondition(), in.GetIntegrity(), in.GetContentPolicy(), in.GetLabels(), in.GetAuthProvider()}
}

// effective is the request as it will be carried out: every policy field filled
// in, header values and the body left out.
func effective(e *echo, r *fetch.Request) *pb.FetchRequest {
	if e == nil {
		e = new(echo)
	}
	all := new(effectiveMessages)
	d := durations(all.durations[:])
	all.redirect = pb.RedirectPolicy{
		Follow: &r.Policy.Follow, MaxRedirects: ptr(int32(r.Policy.MaxRedirects)),
		Scope: scopes.wire[r.Scope], ForbidDowngrade: r.ForbidDowngrade, ForwardCredentials: r.ForwardCredentials}
	effectiveRetry(&all.retry, &r.Policy, r.IdempotencyKey, &d)
	all.timeout = pb.TimeoutPolicy{
		TotalTimeout: d.of(r.TotalTimeout), AttemptTimeout: d.of(r.AttemptTimeout),
		ConnectTimeout: d.of(r.ConnectTimeout), HeaderTimeout: d.of(r.HeaderTimeout),
		IdleTimeout: d.of(r.IdleTimeout)}
	all.body = pb.BodyPolicy{
		Delivery: deliveries.wire[r.Delivery], MaxSizeBytes: &r.MaxBodyBytes,
		OversizeAction: truncates.wire[r.Truncate], Recovery: effectiveRecovery(r),
		ResumePoint: e.resumePoint, KeepEncoding: r.KeepEncoding, HoldBackBytes: &r.HoldBackBytes,
		ErrorBodyBytes: ptr(int32(r.ErrorBodyBytes)), OmitDigest: r.OmitDigest}
	all.request = pb.FetchRequest{
		Url: r.URL.String(), Method: r.Method, Headers: headerNames(r.Header),
		RedirectPolicy: &all.redirect, RetryPolicy: &all.retry, TimeoutPolicy: &all.timeout, BodyPolicy: &all.body,
		Precondition: e.precondition, Integrity: e.integrity, Labels: e.labels,
		ContentPolicy: e.content, AuthProvider: e.authProvider,
		EventLevel: levels.wire[r.Events], CookieMode: cookieModes.wire[r.Cookies]}
	return &all.request
}

// effectiveMessages are the messages of an effective request, made in one allocation.
type effectiveMessages struct {
	request   pb.FetchRequest
	redirect  pb.RedirectPolicy
	retry     pb.RetryPolicy
	timeout   pb.TimeoutPolicy
	body      pb.BodyPolicy
	durations [9]durationpb.Duration // as many as are filled in
}

// effectiveRetry fills m in.
func effectiveRetry(m *pb.RetryPolicy, p *classify.Policy, key string, d *durations) {
	*m = pb.RetryPolicy{
		Profile: pb.RetryProfile(p.Profile), MaxAttempts: ptr(int32(p.MaxAttempts)),
		BaseDelay: d.of(p.BaseDelay), MaxDelay: d.of(p.MaxDelay), Multiplier: &p.Multiplier,
		MaxJitter: d.of(p.MaxJitter), JitterSeed: &p.JitterSeed,
		MaxRetryAfter:         d.of(p.MaxRetryAfter),
		AdditionalStatusCodes: numbers(p.Additional), ExcludedStatusCodes: numbers(p.Excluded),
		AllowNonIdempotent: p.RepeatUnsafe, IdempotencyKey: key, RetryTlsHandshake: &p.RetryTLSHandshake,
	}
}

// headerNames are the lines of a header without their values.
func headerNames(h http.Header) []*pb.Header {
	var lines []*pb.Header
	for name, values := range h {
		for range values {
			lines = append(lines, &pb.Header{Name: name})
		}
	}
	slices.SortFunc(lines, byName)
	return lines
}

func numbers(in []int) []int32 {
	var out []int32
	for _, n := range in {
		out = append(out, int32(n))
	}
	return out
}

// randomSeed draws the seed of a fetch that was given none. The jitter is no
// secret, but two fetches begun together should not share it.
func randomSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (Go 1.24)
	return binary.LittleEndian.Uint64(b[:])
}

func indexed(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

func ptr[T any](v T) *T { return &v }
