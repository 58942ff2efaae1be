// Package conversion converts messages of the contract to the types of package fetch, and back.
//
// It returns all faults of a request at once, each with its field, value and remedy (spec §12). It
// does no I/O: a fetch calls the stores that a request names.
package conversion

import (
	"crypto/rand"
	"net/http"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/markdown"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
	"fetchd/internal/policies"
)

// Convert validates and converts a request. mode is that of the method. Field
// paths start with prefix. The error is INVALID_ARGUMENT and lists all faults, as far as they fit
// into the trailers.
func Convert(in *pb.FetchRequest, prefix string, mode Mode, limits *Limits, known *Configured) (Prepared, error) {
	c := &conversion{limits: limits, in: in, violations: violations{badrequest.Violations{Prefix: prefix}}}
	profile := enum(&c.violations, "retry_policy.profile", in.GetRetryPolicy().GetProfile(), profiles)
	c.out = fetch.NewRequest(profile)
	c.out.ID = rand.Text()
	c.target()
	c.headers()
	c.precondition()
	c.redirects()
	c.retries(in.GetRetryPolicy())
	c.timeouts()
	c.body(mode)
	c.integrity()
	c.content()
	c.rest()
	c.auth(known.Providers)
	c.store(known.Stores)
	c.record(known.Stores)
	p := Prepared{echo: echoOf(in), Request: c.out, Clamped: c.clamped, Events: c.out.Events, total: c.out.TotalTimeout, mode: mode}
	if onlyURL := 1 + protowire.SizeBytes(len(in.GetUrl())); in.SizeVT() == onlyURL {
		p.defaults = limits
	}
	return p, c.Err()
}

// Prepared is a valid request.
type Prepared struct {
	echo    *echo
	Request *fetch.Request
	Clamped []string // names of fields
	// The effective request reports these. A call may run Request with fewer events and less time.
	Events   fetch.Level
	total    time.Duration
	mode     Mode
	defaults *Limits // of a request that sets nothing but a URL; otherwise nil
}

// Lower lowers the maximum of attempts and of redirects to those of a policy, and records which limits are those of
// the policy. Convert has lowered the time and the size, by its limits.
func (p *Prepared) Lower(to *policies.Request) {
	p.defaults = nil
	policy, by := &p.Request.Policy, &p.Request.SetBy
	if to.MaxAttempts > 0 && policy.MaxAttempts > to.MaxAttempts {
		policy.MaxAttempts, by.MaxAttempts = to.MaxAttempts, fetch.ByPolicy
	}
	if to.MaxRedirects != nil && policy.MaxRedirects > *to.MaxRedirects {
		policy.MaxRedirects, by.MaxRedirects = *to.MaxRedirects, fetch.ByPolicy
	}
	if by.TotalTimeout == fetch.ByServer && p.Request.TotalTimeout == to.MaxTotalTimeout {
		by.TotalTimeout = fetch.ByPolicy
	}
	if by.AttemptTimeout == fetch.ByServer && p.Request.AttemptTimeout == to.MaxTotalTimeout {
		by.AttemptTimeout = fetch.ByPolicy
	}
	if by.HeaderTimeout == fetch.ByServer && p.Request.HeaderTimeout == to.MaxTotalTimeout {
		by.HeaderTimeout = fetch.ByPolicy
	}
	if by.MaxBodyBytes == fetch.ByServer && p.Request.MaxBodyBytes == to.MaxSizeBytes {
		by.MaxBodyBytes = fetch.ByPolicy
	}
}

// Admitted returns the first event of a fetch. end is the time limit of the call; zero means no
// limit. encoded may be nil: see [Encoded.Add].
func (p *Prepared) Admitted(start, end time.Time, encoded *Encoded) *pb.FetchEvent {
	if last := start.Add(p.total); end.IsZero() || last.Before(end) {
		end = last
	}
	all := &struct {
		response pb.FetchEvent
		event    pb.FetchEvent_Admitted
		admitted pb.Admitted
		times    [2]timestamppb.Timestamp
	}{admitted: pb.Admitted{FetchId: p.Request.ID, ClampedFields: p.Clamped}}
	all.admitted.ExpireTime, all.admitted.StartTime = setTime(&all.times[0], end), setTime(&all.times[1], start)
	if !encoded.Add(&all.admitted, p) {
		all.admitted.EffectiveRequest = p.Effective()
	}
	all.event.Admitted = &all.admitted
	all.response.Event = &all.event
	return &all.response
}

func setTime(m *timestamppb.Timestamp, t time.Time) *timestamppb.Timestamp {
	m.Seconds, m.Nanos = t.Unix(), int32(t.Nanosecond())
	return m
}

// echo holds the fields that an effective request copies from the request unchanged. It is nil if
// the request sets none of them, which is the common case. The rest of the request is not kept
// while the fetch runs.
type echo struct {
	resumePoint  *pb.ResumePoint
	store        *pb.StoreDelivery
	precondition *pb.Precondition
	integrity    *pb.Integrity
	content      *pb.ContentPolicy
	labels       map[string]string
	authProvider string
	route        string
	record       *pb.RecordPolicy
}

func echoOf(in *pb.FetchRequest) *echo {
	_, stream := Delivery(in.GetBodyPolicy())
	point, store := stream.GetResumePoint(), in.GetBodyPolicy().GetStore()
	if point == nil && in.GetPrecondition() == nil && in.GetIntegrity() == nil && in.GetContentPolicy() == nil &&
		len(in.GetLabels()) == 0 && in.GetAuthProvider() == "" && in.GetEgressRoute() == "" && store == nil && in.GetRecordPolicy() == nil {
		return nil
	}
	return &echo{point, store, in.GetPrecondition(), in.GetIntegrity(), in.GetContentPolicy(), in.GetLabels(), in.GetAuthProvider(), in.GetEgressRoute(),
		in.GetRecordPolicy()}
}

// Effective returns the request as the server runs it, with every policy field set. Header values
// and the body are left out.
func (p *Prepared) Effective() *pb.FetchRequest {
	e, r, policy := p.echo, p.Request, &p.Request.Policy
	if e == nil {
		e = new(echo)
	}
	all := &effectiveMessages{
		counts: [2]int32{int32(policy.MaxRedirects), int32(r.ErrorBodyBytes)},
		request: pb.FetchRequest{
			Url: r.URL.String(), Method: r.Method, Headers: headerNames(r.Header),
			Precondition: e.precondition, Integrity: e.integrity, Labels: e.labels,
			ContentPolicy: e.content, AuthProvider: e.authProvider, RecordPolicy: e.record, EgressRoute: e.route,
			EventLevel: levels.wire(p.Events), CookieMode: cookieModes.wire(r.Cookies)},
		redirect: pb.RedirectPolicy{
			Follow: &policy.Follow,
			Scope:  scopes.wire(r.Scope), ForbidDowngrade: r.ForbidDowngrade, ForwardCredentials: r.ForwardCredentials},
		body: pb.BodyPolicy{
			MaxSizeBytes: &r.MaxBodyBytes, OversizeAction: truncates.wire(r.Truncate), KeepEncoding: r.KeepEncoding,
			OmitDigest: r.OmitDigest},
		stream: pb.StreamDelivery{MaxHoldBackBytes: &r.HoldBackBytes, Recovery: recoveries.wire(r.Recovery), ResumePoint: e.resumePoint},
	}
	if r.Recovery == fetch.Resume && !r.Resumable() { // with Restart its body starts again
		all.stream.Recovery = pb.BodyRecovery_BODY_RECOVERY_NONE
	}
	all.setDelivery(r.Delivery, e.store)
	if r.Text != markdown.Off {
		all.request.TextPolicy = &pb.TextPolicy{Content: textContents.wire(r.Text)}
	}
	all.redirect.MaxRedirects, all.body.MaxErrorBodyBytes = &all.counts[0], &all.counts[1]
	d, m, t := durations(all.durations[:]), &all.request, &all.timeout
	effectiveRetry(&all.retry, policy, r.IdempotencyKey, &d)
	t.TotalTimeout, t.AttemptTimeout, t.ConnectTimeout = d.of(p.total), d.of(r.AttemptTimeout), d.of(r.ConnectTimeout)
	t.HeaderTimeout, t.IdleTimeout = d.of(r.HeaderTimeout), d.of(r.IdleTimeout)
	m.RedirectPolicy, m.RetryPolicy, m.TimeoutPolicy, m.BodyPolicy = &all.redirect, &all.retry, t, &all.body
	return m
}

// setDelivery sets the delivery of an effective policy.
func (all *effectiveMessages) setDelivery(d fetch.Delivery, store *pb.StoreDelivery) {
	switch m := &all.body; d {
	case fetch.Stream:
		all.streamed.Stream = &all.stream
		m.Delivery = &all.streamed
	case fetch.Auto:
		m.Delivery = &pb.BodyPolicy_Auto{Auto: &all.stream}
	case fetch.Inline:
		m.Delivery = inlineDelivery
	case fetch.Digest:
		m.Delivery = digestDelivery
	case fetch.None:
		m.Delivery = noDelivery
	case fetch.Store:
		m.Delivery = &pb.BodyPolicy_Store{Store: store}
	}
}

// Deliveries without settings. Effective policies share them, and nothing changes them.
var (
	inlineDelivery = &pb.BodyPolicy_Inline{Inline: new(pb.InlineDelivery)}
	digestDelivery = &pb.BodyPolicy_Digest{Digest: new(pb.DigestDelivery)}
	noDelivery     = &pb.BodyPolicy_None{None: new(pb.NoDelivery)}
)

// effectiveMessages holds the messages of an effective request, to make them in one allocation.
// Fields are set in place: assigning a whole message would first build it on the stack, and a
// waiting handler should keep a stack of 8 KiB (decision 17).
type effectiveMessages struct {
	request   pb.FetchRequest
	redirect  pb.RedirectPolicy
	retry     pb.RetryPolicy
	timeout   pb.TimeoutPolicy
	body      pb.BodyPolicy
	stream    pb.StreamDelivery
	streamed  pb.BodyPolicy_Stream
	durations [9]durationpb.Duration // as many as effective sets
	counts    [2]int32
}

// effectiveRetry sets the fields of m.
func effectiveRetry(m *pb.RetryPolicy, p *classify.Policy, key string, d *durations) {
	m.Profile, m.MaxAttempts, m.Multiplier, m.JitterSeed = pb.RetryProfile(p.Profile), new(int32(p.MaxAttempts)), &p.Multiplier, &p.JitterSeed
	m.BaseDelay, m.MaxDelay, m.MaxJitter, m.MaxRetryAfter = d.of(p.BaseDelay), d.of(p.MaxDelay), d.of(p.MaxJitter), d.of(p.MaxRetryAfter)
	m.AdditionalStatusCodes, m.ExcludedStatusCodes = numbers(p.Additional), numbers(p.Excluded)
	m.AllowNonIdempotent, m.IdempotencyKey, m.RetryTlsHandshake = p.RepeatUnsafe, key, &p.RetryTLSHandshake
}

// headerNames returns the lines of a header without their values.
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
