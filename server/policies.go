package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
	"fetchd/internal/budget"
	"fetchd/internal/policies"
	"fetchd/internal/rejections"
	"fetchd/server/internal/admission"
	"fetchd/server/internal/conversion"
)

// callerPolicy is the policy that the caller of a call has when it begins. Policy is nil if there are no policies.
type callerPolicy struct {
	*policies.Policy
	// now returns the policy that the caller has later. Each target of a fetch is judged by that too, so it looks
	// the caller up only after a reload.
	now func() *policies.Policy
}

// policyOf returns the policy of the caller of a call.
func (s *service) policyOf(ctx context.Context) callerPolicy {
	set := s.policies.Load()
	if set == nil {
		return callerPolicy{}
	}
	name, address := admission.Name(ctx), netip.Addr{}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil && name == "" {
		if at, err := netip.ParseAddrPort(p.Addr.String()); err == nil {
			address = at.Addr()
		}
	}
	policy := set.Of(name, address)
	return callerPolicy{policy, func() *policies.Policy {
		if now := s.policies.Load(); now != set {
			return now.Of(name, address)
		}
		return policy
	}}
}

// applyPolicy checks a request against the policy of its caller, and sets the judge of the targets of its fetch. The error is PERMISSION_DENIED with every field that the policy forbids.
func (s *service) applyPolicy(ctx context.Context, policy callerPolicy, in *pb.FetchRequest, p *conversion.Prepared, prefix string) error {
	if policy.Policy == nil {
		if v := (badrequest.Violations{Prefix: prefix}); in.GetEgressRoute() != "" {
			v.Add(policies.EgressRoute, "is %.60q: this service has no policies, and so no routes: leave it out", in.GetEgressRoute())
			return v.As(codes.PermissionDenied, "the request names an egress route")
		}
		return nil
	}
	caller, req := admission.Caller(ctx), p.Request
	judge := policies.NewJudge(policy.Policy, policy.now, func(d policies.Denial) {
		s.observe.Denied(d.Policy, d.Reason, d.Reported)
		if d.Reported {
			s.denials.Add(deniedTo{caller, d}, struct{}{})
		}
	})
	judge.Grow = func(bytes int64) bool { return req.Memory.Grow(budget.Request, bytes) } // req gets its memory later
	v := badrequest.Violations{Prefix: prefix}
	first := ""
	for _, d := range denials(policy.Policy, in, p) {
		if judge.Deny(d.reason, req.URL.Hostname()) {
			first = cmp.Or(first, d.reason)
			v.Add(d.field, "%s: the policy %s", d.is, d.permits)
		}
	}
	err := v.As(codes.PermissionDenied, fmt.Sprintf("the policy %q of this caller forbids the request", policy.Name),
		&errdetails.ErrorInfo{Reason: reasonPolicy, Domain: admission.ErrorDomain, Metadata: map[string]string{"policy": policy.Name, "reason": first}})
	if err != nil {
		s.observe.Refused(caller, reasonPolicy)
		return err
	}
	route, _ := policy.Route(in.GetEgressRoute())
	if route != nil {
		judge.Route = route.Name
	}
	p.Request.Egress, p.Request.HideForbidden, p.Request.CallerPolicy, p.Request.Route = judge, true, policy.Name, route
	if !policy.Report {
		p.Lower(&policy.Request)
	}
	return nil
}

// shareOf returns what a policy leaves to its caller, or nil if it has no share.
func (s *service) shareOf(policy *policies.Policy) *admission.Share {
	if policy == nil || policy.Share == (policies.Share{}) {
		return nil
	}
	share := policy.Share
	return &admission.Share{Policy: policy.Name, Report: policy.Report, Fetches: share.FetchesInFlight, PerSecond: share.FetchesPerSecond, Burst: share.Burst,
		Memory: s.Budget.Limit() / 100 * int64(share.MemoryPercent)}
}

// reportQuota reports the quota that would have refused an admitted fetch.
func reportQuota(p *conversion.Prepared, t *admission.Ticket) {
	if judge, ok := p.Request.Egress.(*policies.Judge); ok && t.Over() != "" {
		judge.Deny(policies.QuotaReason(t.Over()), p.Request.URL.Hostname())
	}
}

// run runs a fetch, and reports what it has used beyond the limits of a policy that only reports.
func (s *service) run(ctx context.Context, req *fetch.Request, sink fetch.Sink) *fetch.Outcome {
	out := s.client.Fetch(ctx, req, sink)
	if judge, ok := req.Egress.(*policies.Judge); ok {
		judge.End(policies.Used{Time: out.Total, Bytes: max(out.Body.Size, out.Body.EncodedSize), Attempts: out.Attempts, Redirects: out.Redirects}, req.URL.Hostname())
	}
	return out
}

// deniedTo is a line of the log: what a policy that only reports would deny to a caller.
type deniedTo struct {
	caller string
	policies.Denial
}

// newDenials returns the lines "policy would deny". If there are too many, those of further hosts and callers share one
// for each policy and reason.
func newDenials(logger *slog.Logger) *rejections.Sums[deniedTo, struct{}] {
	return rejections.NewSums(
		func(d deniedTo) deniedTo {
			return deniedTo{rejections.Other, policies.Denial{Policy: d.Policy, Reason: d.Reason, Reported: true}}
		},
		func(a, b deniedTo) int {
			return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Target, b.Target), cmp.Compare(a.caller, b.caller))
		},
		func(d deniedTo, count int, _ struct{}) {
			logger.LogAttrs(context.Background(), slog.LevelInfo, "policy would deny", slog.String("caller", d.caller), slog.String("policy", d.Policy),
				slog.String("reason", d.Reason), slog.String("policy_rule", d.Rule), slog.String("host", d.Host), slog.String("target", d.Target), slog.Int("count", count))
		})
}

// reasonPolicy is the reason of an ErrorInfo: the policy of the caller forbids the request.
const reasonPolicy = "POLICY"

// deniedBy returns the policy that an error of applyPolicy is about, and the kind of the first field that it forbids.
// Both are empty for other errors.
func deniedBy(err error) (policy, reason string) {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetReason() == reasonPolicy {
			return info.GetMetadata()["policy"], info.GetMetadata()["reason"]
		}
	}
	return "", ""
}

// limitsFor returns the limits of requests under a policy. They lower the defaults; a request that sets more is
// denied.
func limitsFor(l *conversion.Limits, policy *policies.Policy) *conversion.Limits {
	if policy == nil || policy.Report {
		return l
	}
	narrowed := *l
	if most := policy.Request.MaxTotalTimeout; most > 0 {
		narrowed.MaxTotalTimeout = min(l.MaxTotalTimeout, most)
	}
	if most := policy.Request.MaxSizeBytes; most > 0 {
		narrowed.MaxBodyBytes = min(l.MaxBodyBytes, most)
	}
	return &narrowed
}

// denied is a field of a request that a policy forbids.
type denied struct{ field, reason, is, permits string }

// noLimit is the least max_size_bytes that means no limit but that of the service: the client libraries set this
// value, the largest integer that JavaScript has, or the largest of 64 bits.
const noLimit = 1<<53 - 1

// noTime is the least total_timeout that means no limit but that of the service: the adapters of the Python package set
// more, because their guests have no such limit.
const noTime = 365 * 24 * time.Hour

// allRedirects is the most that max_redirects may be. It means as many as are permitted: the Node client sets it, because
// fetch follows as many.
const allRedirects = 20

// denials returns the fields of a valid request that a policy forbids.
func denials(policy *policies.Policy, in *pb.FetchRequest, p *conversion.Prepared) (found []denied) {
	rules := &policy.Request
	if policy.Nothing {
		found = append(found, denied{"url", "name_not_allowed", "is forbidden", "permits nothing"})
	}
	one := func(field, reason, value string, permitted []string) {
		if permitted != nil && value != "" && !slices.Contains(permitted, value) {
			found = append(found, denied{field, reason, fmt.Sprintf("is %q", value), "permits " + orNone(permitted)})
		}
	}
	most := func(field, reason string, set, over bool, value, limit any) {
		if set && over {
			found = append(found, denied{field, reason, fmt.Sprintf("is %v", value), fmt.Sprintf("permits at most %v", limit)})
		}
	}
	one("method", "method", p.Request.Method, rules.Methods)
	one("auth_provider", "auth_provider", in.GetAuthProvider(), rules.Providers)
	one("body_policy.store.store", "store", in.GetBodyPolicy().GetStore().GetStore(), rules.Stores)
	one("record_policy.store", "record_store", in.GetRecordPolicy().GetStore(), rules.Records)
	if name := in.GetEgressRoute(); name != "" {
		if _, ok := policy.Route(name); !ok {
			found = append(found, denied{policies.EgressRoute, policies.EgressRoute, fmt.Sprintf("is %.60q", name), "permits " + orNone(policy.RouteNames())})
		}
	}
	for _, label := range rules.Labels {
		if _, ok := in.GetLabels()[label]; !ok {
			found = append(found, denied{"labels", "label", fmt.Sprintf("lacks %q", label), "requires it"})
		}
	}
	total, size := in.GetTimeoutPolicy().GetTotalTimeout(), in.GetBodyPolicy()
	most("timeout_policy.total_timeout", "total_timeout", total.AsDuration() < noTime && rules.MaxTotalTimeout > 0, total.AsDuration() > rules.MaxTotalTimeout, total.AsDuration(), rules.MaxTotalTimeout)
	asked := size != nil && size.MaxSizeBytes != nil && size.GetMaxSizeBytes() < noLimit
	most("body_policy.max_size_bytes", "max_size_bytes", asked && rules.MaxSizeBytes > 0, size.GetMaxSizeBytes() > rules.MaxSizeBytes, size.GetMaxSizeBytes(), rules.MaxSizeBytes)
	retry, redirect := in.GetRetryPolicy(), in.GetRedirectPolicy()
	most("retry_policy.max_attempts", "max_attempts", retry != nil && retry.MaxAttempts != nil && rules.MaxAttempts > 0, int(retry.GetMaxAttempts()) > rules.MaxAttempts, retry.GetMaxAttempts(), rules.MaxAttempts)
	if rules.MaxRedirects != nil {
		most("redirect_policy.max_redirects", "max_redirects", redirect.GetMaxRedirects() < allRedirects, int(redirect.GetMaxRedirects()) > *rules.MaxRedirects, redirect.GetMaxRedirects(), *rules.MaxRedirects)
	}
	if rules.ForbidNonIdempotent && retry.GetAllowNonIdempotent() {
		found = append(found, denied{"retry_policy.allow_non_idempotent", "non_idempotent_retries", "is true", "forbids it"})
	}
	return found
}

// orNone returns a list for people.
func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
