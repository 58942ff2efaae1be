package server

import (
	"strings"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
)

// Limits of the policy fields (spec §12).
const (
	maxDelay      = 5 * time.Minute
	maxJitter     = time.Minute
	maxRetryAfter = 15 * time.Minute
)

// redirectPolicy sets the fields of the request over the defaults of the profile.
func (v *violations) redirectPolicy(p *pb.RedirectPolicy, out *classify.Policy) {
	if p == nil {
		return
	}
	out.Follow = p.Follow == nil || p.GetFollow()
	out.MaxRedirects = int(badrequest.Integer(&v.Violations, "redirect_policy.max_redirects", p.MaxRedirects, int32(out.MaxRedirects), 0, 20))
}

// retryPolicy sets the fields of the request over the defaults of the profile.
func (v *violations) retryPolicy(p *pb.RetryPolicy, out *classify.Policy) {
	if p == nil {
		return
	}
	out.MaxAttempts = int(badrequest.Integer(&v.Violations, "retry_policy.max_attempts", p.MaxAttempts, int32(out.MaxAttempts), 1, 11))
	out.BaseDelay = v.Duration("retry_policy.base_delay", p.GetBaseDelay(), out.BaseDelay, 0, maxDelay)
	out.MaxDelay = v.Duration("retry_policy.max_delay", p.GetMaxDelay(), out.MaxDelay, 0, maxDelay)
	if p.BaseDelay == nil {
		out.BaseDelay = min(out.BaseDelay, out.MaxDelay) // max_delay alone may shorten the waits
	}
	if out.BaseDelay > out.MaxDelay {
		v.Add("retry_policy.base_delay", "is %s, longer than max_delay %s: raise max_delay too", out.BaseDelay, out.MaxDelay)
	}
	if m := p.Multiplier; m != nil {
		if out.Multiplier = *m; !(*m >= 1 && *m <= 10) { // this form refuses NaN
			v.Add("retry_policy.multiplier", "is %v: give 1 to 10", *m)
		}
	}
	out.MaxJitter = v.Duration("retry_policy.max_jitter", p.GetMaxJitter(), out.MaxJitter, 0, maxJitter)
	out.JitterSeed = p.GetJitterSeed()
	out.MaxRetryAfter = v.Duration("retry_policy.max_retry_after", p.GetMaxRetryAfter(), out.MaxRetryAfter, 0, maxRetryAfter)
	if p.RetryTlsHandshake != nil {
		out.RetryTLSHandshake = p.GetRetryTlsHandshake()
	}
	v.statuses(p, out)
	v.idempotency(p, out)
}

// statuses reads the two lists (spec §3, S2 §2.3).
func (v *violations) statuses(p *pb.RetryPolicy, out *classify.Policy) {
	for field, n := range map[string]int{"excluded": len(p.GetExcludedStatusCodes()), "additional": len(p.GetAdditionalStatusCodes())} {
		if n > maxStatuses {
			v.Add("retry_policy."+field+"_status_codes", "has %d entries: give at most %d", n, maxStatuses)
			return
		}
	}
	excluded := make(map[int32]bool)
	for i, s := range p.GetExcludedStatusCodes() {
		if s != 408 && s != 429 && (s < 500 || s > 599) {
			v.Add(badrequest.Indexed("retry_policy.excluded_status_codes", i), "is %d: give 408, 429 or 500 to 599", s)
		}
		excluded[s] = true
		out.Excluded = append(out.Excluded, int(s))
	}
	for i, s := range p.GetAdditionalStatusCodes() {
		field := badrequest.Indexed("retry_policy.additional_status_codes", i)
		switch s {
		case 400, 401, 403, 404, 409, 410, 422, 451:
			v.Add(field, "is %d, which is never retried: leave it out", s)
		default:
			if s < 400 || s > 499 {
				v.Add(field, "is %d: give a 4xx status", s)
			}
		}
		if excluded[s] {
			v.Add(field, "is %d, which is excluded too: give it in one list", s)
		}
		out.Additional = append(out.Additional, int(s))
	}
}

func (v *violations) idempotency(p *pb.RetryPolicy, out *classify.Policy) {
	key := p.GetIdempotencyKey()
	if len(key) > fetch.MaxIdempotencyBytes {
		v.Add("retry_policy.idempotency_key", "has %d bytes: give at most %d", len(key), fetch.MaxIdempotencyBytes)
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r < '!' || r > '~' }) {
		v.Add("retry_policy.idempotency_key", "has a character that is not visible ASCII: use characters from ! to ~")
	}
	if p.GetAllowNonIdempotent() && key == "" {
		v.Add("retry_policy.allow_non_idempotent", "is true without idempotency_key: give a key, so that the origin can recognize a repeated request")
	}
	out.RepeatUnsafe = p.GetAllowNonIdempotent() && key != ""
}
