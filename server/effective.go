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
	p := &r.Policy
	all := &effectiveMessages{
		request: pb.FetchRequest{
			Url: r.URL.String(), Method: r.Method, Headers: headerNames(r.Header),
			Precondition: e.precondition, Integrity: e.integrity, Labels: e.labels,
			ContentPolicy: e.content, AuthProvider: e.authProvider,
			EventLevel: levels.wire[r.Events], CookieMode: cookieModes.wire[r.Cookies]},
		redirect: pb.RedirectPolicy{
			Follow: &p.Follow, MaxRedirects: ptr(int32(p.MaxRedirects)),
			Scope: scopes.wire[r.Scope], ForbidDowngrade: r.ForbidDowngrade, ForwardCredentials: r.ForwardCredentials},
		body: pb.BodyPolicy{
			Delivery: deliveries.wire[r.Delivery], MaxSizeBytes: &r.MaxBodyBytes,
			OversizeAction: truncates.wire[r.Truncate], Recovery: effectiveRecovery(r),
			ResumePoint: e.resumePoint, KeepEncoding: r.KeepEncoding, HoldBackBytes: &r.HoldBackBytes,
			ErrorBodyBytes: ptr(int32(r.ErrorBodyBytes)), OmitDigest: r.OmitDigest},
	}
	d, m, t := durations(all.durations[:]), &all.request, &all.timeout
	effectiveRetry(&all.retry, p, r.IdempotencyKey, &d)
	t.TotalTimeout, t.AttemptTimeout, t.ConnectTimeout = d.of(r.TotalTimeout), d.of(r.AttemptTimeout), d.of(r.ConnectTimeout)
	t.HeaderTimeout, t.IdleTimeout = d.of(r.HeaderTimeout), d.of(r.IdleTimeout)
	m.RedirectPolicy, m.RetryPolicy, m.TimeoutPolicy, m.BodyPolicy = &all.redirect, &all.retry, t, &all.body
	return m
}

// effectiveMessages are the messages of an effective request, made in one allocation.
// They are filled in where they lie: a message that is assigned whole is made on the
// stack first, and a handler that waits has 8 KiB (decision 9).
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
	m.Profile, m.MaxAttempts, m.Multiplier, m.JitterSeed = pb.RetryProfile(p.Profile), ptr(int32(p.MaxAttempts)), &p.Multiplier, &p.JitterSeed
	m.BaseDelay, m.MaxDelay, m.MaxJitter, m.MaxRetryAfter = d.of(p.BaseDelay), d.of(p.MaxDelay), d.of(p.MaxJitter), d.of(p.MaxRetryAfter)
	m.AdditionalStatusCodes, m.ExcludedStatusCodes = numbers(p.Additional), numbers(p.Excluded)
	m.AllowNonIdempotent, m.IdempotencyKey, m.RetryTlsHandshake = p.RepeatUnsafe, key, &p.RetryTLSHandshake
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
