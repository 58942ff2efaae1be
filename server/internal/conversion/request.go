package conversion

import (
	"cmp"
	"encoding/hex"
	"math"
	mathrand "math/rand/v2"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode"

	"golang.org/x/net/http/httpguts"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/auth"
	"fetchd/fetch/urls"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
)

// Limits of spec §12 that package fetch does not need.
const (
	maxLabels     = 16
	MaxLabelBytes = 256
	maxMediaTypes = 64
	maxETags      = 16
	maxStatuses   = 128
	maxDelay      = 5 * time.Minute
	maxJitter     = time.Minute
	maxRetryAfter = 15 * time.Minute
)

// methods holds the methods of spec §12, and whether they may have a body.
var methods = map[string]bool{"GET": false, "HEAD": false, "OPTIONS": false,
	"POST": true, "PUT": true, "PATCH": true, "DELETE": true}

// method validates a method, and reports whether it may have a body.
func (v *violations) method(field, method string) (mayHaveBody, known bool) {
	if mayHaveBody, known = methods[method]; !known {
		v.Add(field, "is %.40q: give GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS, in capitals", method)
	}
	return mayHaveBody, known
}

func (c *conversion) target() {
	u, err := urls.Parse(c.in.GetUrl())
	if err != nil {
		c.Add("url", "%s", err)
	}
	c.out.URL = u
	if m := c.in.GetMethod(); m != "" {
		c.out.Method = m
	}
	mayHaveBody, known := c.method("method", c.out.Method)
	switch {
	case !known: // reported above
	case !mayHaveBody && len(c.in.GetBody()) > 0:
		c.Add("body", "has %d bytes: a %s request has no body, leave it out", len(c.in.GetBody()), c.out.Method)
	case len(c.in.GetBody()) > fetch.MaxRequestBodyBytes:
		c.AddTooLarge("body", len(c.in.GetBody()), fetch.MaxRequestBodyBytes)
	}
	c.out.Body = c.in.GetBody()
}

func (c *conversion) headers() {
	lines := c.in.GetHeaders()
	if len(lines) == 0 && c.in.GetPrecondition() == nil {
		return
	}
	h := make(http.Header)
	c.out.Header = h // set early: precondition adds to it even if a header is refused
	if len(lines) > fetch.MaxHeaderFields {
		c.Add("headers", "has %d fields: give at most %d", len(lines), fetch.MaxHeaderFields)
		return
	}
	size := 0
	for i, line := range lines {
		value := line.GetValue()
		if len(line.GetRawValue()) > 0 {
			if value != "" {
				c.Add(badrequest.Indexed("headers", i), "has both value and raw_value: give one")
			}
			value = string(line.GetRawValue())
		}
		size += len(line.GetName()) + len(value)
		if wrong := fetch.CheckHeader(line.GetName(), value); wrong != "" {
			c.badHeader(i, line, wrong)
			continue
		}
		h.Add(line.GetName(), value)
	}
	if size > fetch.MaxHeaderBytes {
		c.Add("headers", "has %d bytes: give at most %d", size, fetch.MaxHeaderBytes)
	}
}

// badHeader adds the violation of a header line, for its name or its value. An invalid name is not
// quoted: it may be a whole line with its value.
func (c *conversion) badHeader(i int, line *pb.Header, wrong string) {
	field, name := badrequest.Indexed("headers", i), line.GetName()
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		c.Add(field+".name", "%s", wrong)
	case fetch.CheckHeader(name, "") != "":
		c.Add(field+".name", "%.60q %s", name, wrong)
	case len(line.GetRawValue()) > 0:
		c.Add(field+".raw_value", "of %.60q %s", name, wrong)
	default:
		c.Add(field+".value", "of %.60q %s", name, wrong)
	}
}

func (c *conversion) precondition() {
	p := c.in.GetPrecondition()
	if p == nil {
		return
	}
	for _, name := range []string{"If-None-Match", "If-Modified-Since"} {
		if c.out.Header.Get(name) != "" {
			c.Add("precondition", "is set together with a header %s: give one of the two", name)
		}
	}
	if n := len(p.GetEtags()); n > maxETags {
		c.Add("precondition.etags", "has %d entries: give at most %d", n, maxETags)
	}
	for i, tag := range p.GetEtags() {
		if !isETag(tag) {
			c.Add(badrequest.Indexed("precondition.etags", i), `is not an entity tag: give it with its quotes, such as "\"abc\"" (RFC 9110 section 8.8.3)`)
		}
	}
	if len(p.GetEtags()) > 0 {
		c.out.Header.Set("If-None-Match", strings.Join(p.GetEtags(), ", "))
	}
	if t := p.GetLastModifiedTime(); t != nil {
		if t.CheckValid() != nil {
			c.Add("precondition.last_modified_time", "is not a valid time: give seconds of the years 1 to 9999 and nanos of 0 to 999,999,999")
		}
		c.out.Header.Set("If-Modified-Since", t.AsTime().UTC().Format(http.TimeFormat))
	}
}

// isETag reports whether s is an entity-tag = [ "W/" ] DQUOTE *etagc DQUOTE.
func isETag(s string) bool {
	s = strings.TrimPrefix(s, "W/")
	if len(s) < 2 || len(s) > 1024 || s[0] != '"' || s[len(s)-1] != '"' {
		return false
	}
	return !strings.ContainsFunc(s[1:len(s)-1], func(r rune) bool { return r <= ' ' || r == '"' || r == 0x7f })
}

func (c *conversion) redirects() {
	p := c.in.GetRedirectPolicy()
	c.redirectPolicy(p, &c.out.Policy)
	c.out.SetBy.MaxRedirects = setter(p != nil && p.MaxRedirects != nil)
	c.out.Scope = enum(&c.violations, "redirect_policy.scope", p.GetScope(), scopes)
	c.out.ForbidDowngrade = p.GetForbidDowngrade()
	c.out.ForwardCredentials = p.GetForwardCredentials()
}

func (c *conversion) retries(p *pb.RetryPolicy) {
	c.retryPolicy(p, &c.out.Policy)
	c.out.SetBy.MaxAttempts, c.out.SetBy.MaxRetryAfter = setter(p != nil && p.MaxAttempts != nil), setter(p.GetMaxRetryAfter() != nil)
	if p.GetAllowNonIdempotent() && c.limits.ForbidNonIdempotent {
		c.Add("retry_policy.allow_non_idempotent", "is true, but the operator of this service set --non-idempotent-retries=forbid: leave it out, then the request is sent once")
	}
	c.out.IdempotencyKey = p.GetIdempotencyKey()
}

func (c *conversion) timeouts() {
	p := c.in.GetTimeoutPolicy()
	most := c.limits.MaxTotalTimeout
	limit := func(field string, d *durationpb.Duration, fallback, low time.Duration) time.Duration {
		return clamp(c, field, c.Duration(field, d, min(fallback, most), low, math.MaxInt64), most)
	}
	total, attempt := p.GetTotalTimeout(), p.GetAttemptTimeout()
	c.out.SetBy.TotalTimeout = c.timeSetter(total, c.out.TotalTimeout == 0 || c.out.TotalTimeout > most)
	c.out.SetBy.AttemptTimeout = c.timeSetter(attempt, c.out.AttemptTimeout > most)
	c.out.SetBy.HeaderTimeout = c.timeSetter(p.GetHeaderTimeout(), c.out.HeaderTimeout == 0 || c.out.HeaderTimeout > most)
	c.out.TotalTimeout = limit("timeout_policy.total_timeout", total, cmp.Or(c.out.TotalTimeout, most), 1)
	c.out.ConnectTimeout = limit("timeout_policy.connect_timeout", p.GetConnectTimeout(), cmp.Or(c.out.ConnectTimeout, most), 1)
	c.out.HeaderTimeout = limit("timeout_policy.header_timeout", p.GetHeaderTimeout(), cmp.Or(c.out.HeaderTimeout, most), 1)
	c.out.IdleTimeout = limit("timeout_policy.idle_timeout", p.GetIdleTimeout(), cmp.Or(c.out.IdleTimeout, most), 1)
	c.out.AttemptTimeout = limit("timeout_policy.attempt_timeout", attempt, c.out.AttemptTimeout, 0)
}

// timeSetter returns who set a time limit. over reports whether the limit of the profile is over the
// maximum of the server.
func (c *conversion) timeSetter(given *durationpb.Duration, over bool) fetch.Setter {
	if given != nil && given.AsDuration() > c.limits.MaxTotalTimeout || given == nil && over {
		return fetch.ByServer
	}
	return setter(given != nil)
}

func (c *conversion) rest() {
	c.out.Events = enum(&c.violations, "event_level", c.in.GetEventLevel(), levels)
	c.out.TLSDetails = c.out.Events == fetch.All
	c.out.Cookies = enum(&c.violations, "cookie_mode", c.in.GetCookieMode(), cookieModes)
	c.out.Labels = c.in.GetLabels()
	if n := len(c.out.Labels); n > maxLabels {
		c.Add("labels", "has %d entries: give at most %d", n, maxLabels)
	}
	for name, value := range c.out.Labels {
		if len(name) > MaxLabelBytes || len(value) > MaxLabelBytes {
			c.Add("labels", "has a name or value of more than %d bytes: shorten it", MaxLabelBytes)
			break
		}
		if strings.ContainsFunc(name+value, func(r rune) bool { return !unicode.IsPrint(r) }) {
			c.Add("labels", "has a name or value with a character that is not printable: remove it, because labels are logged")
			break
		}
	}
}

// Reasons of violations of auth_provider (spec A1).
const (
	ProviderUnknown = "AUTH_PROVIDER_UNKNOWN" // it is not configured
	ProviderOrigin  = "AUTH_PROVIDER_ORIGIN"  // it does not cover the origin of the URL
	ProviderCaller  = "AUTH_PROVIDER_CALLER"  // it is not for this caller
)

// auth reads auth_provider (spec A1).
func (c *conversion) auth(providers map[string]AuthProvider) {
	name := c.in.GetAuthProvider()
	if name == "" {
		return
	}
	p, known := providers[name]
	switch {
	case !known:
		c.AddReason("auth_provider", ProviderUnknown, "is %.60q, which is not configured on this server: give the name of a configured provider", name)
	case c.out.URL != nil && !p.Covers(c.out.URL):
		c.AddReason("auth_provider", ProviderOrigin, "is %.60q, which does not cover the origin of the URL: use another provider or URL", name)
	default:
		c.out.Credentials = p.Provider
	}
	for _, header := range auth.Headers(p.Provider) {
		if len(c.out.Header.Values(header)) > 0 {
			c.Add("auth_provider", "is %.60q, which sets the header %s: leave that header out", name, header)
		}
	}
}

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
	if out.JitterSeed = p.GetJitterSeed(); p.JitterSeed == nil && out.MaxJitter > 0 {
		out.JitterSeed = mathrand.Uint64() // it is not secret, but two fetches should not share it
	}
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

func (c *conversion) body(mode Mode) {
	p := c.in.GetBodyPolicy()
	c.delivery(p, mode)
	c.textPolicy()
	c.out.Truncate = enum(&c.violations, "body_policy.oversize_action", p.GetOversizeAction(), truncates)
	limit, by := c.limits.MaxBodyBytes, fetch.ByServer
	if most := c.out.MaxDeliveredBytes(); limit > most {
		limit, by = most, fetch.ByService
	}
	if c.out.MaxBodyBytes > limit {
		c.out.MaxBodyBytes, c.out.SetBy.MaxBodyBytes = limit, by
	}
	c.out.KeepEncoding, c.out.OmitDigest = p.GetKeepEncoding(), p.GetOmitDigest()
	if p == nil {
		return
	}
	c.out.MaxBodyBytes = clamp(c, "body_policy.max_size_bytes", badrequest.Integer(&c.Violations, "body_policy.max_size_bytes", p.MaxSizeBytes, c.out.MaxBodyBytes, 0, math.MaxInt64), limit)
	switch {
	case p.GetMaxSizeBytes() > limit:
		c.out.SetBy.MaxBodyBytes = by
	case p.MaxSizeBytes != nil:
		c.out.SetBy.MaxBodyBytes = fetch.ByCaller
	}
	c.out.ErrorBodyBytes = int(badrequest.Integer(&c.Violations, "body_policy.max_error_body_bytes", p.MaxErrorBodyBytes,
		int32(c.out.ErrorBodyBytes), 0, fetch.MaxErrorBodyBytes))
	if _, stream := Delivery(p); stream != nil {
		c.stream(stream)
	}
}

// delivery reads how the body reaches the caller.
func (c *conversion) delivery(p *pb.BodyPolicy, mode Mode) {
	switch p.GetDelivery().(type) {
	case nil:
		c.out.Delivery = mode.unset
	case *pb.BodyPolicy_Stream:
		c.out.Delivery = fetch.Stream
	case *pb.BodyPolicy_Auto:
		c.out.Delivery = fetch.Auto
	case *pb.BodyPolicy_Inline:
		c.out.Delivery = fetch.Inline
	case *pb.BodyPolicy_Digest:
		c.out.Delivery = fetch.Digest
	case *pb.BodyPolicy_None:
		c.out.Delivery = fetch.None
	case *pb.BodyPolicy_Store:
		c.out.Delivery = fetch.Store
	}
	if _, stream := Delivery(p); stream != nil && !mode.streams {
		c.Add(c.streamField(), "needs a stream, which this call has not: give inline, digest, none or store, or call Fetch")
	}
}

// textPolicy reads whether the text of the response is wanted (spec B10). It is in the outcome, so auto is inline.
func (c *conversion) textPolicy() {
	p := c.in.GetTextPolicy()
	if p == nil {
		return
	}
	c.out.Text = enum(&c.violations, "text_policy.content", p.GetContent(), textContents)
	body := c.in.GetBodyPolicy()
	switch name, stream := Delivery(body); {
	case name == "" || name == "inline":
	case name != "auto":
		c.Add("text_policy", "is set with delivery %s, but a text is complete and in the outcome: give inline, or leave the delivery out", name)
	case stream.GetResumePoint() != nil:
		c.Add("text_policy", "is set together with body_policy.auto.resume_point, but a text is made of a whole body: leave resume_point out")
	}
	c.out.Delivery = fetch.Inline
	switch {
	case c.out.Method == http.MethodHead:
		c.Add("text_policy", "is set with method HEAD, whose response has no body: use GET")
	case c.out.Header.Get("Range") != "":
		c.Add("text_policy", "is set together with a header Range, but a text is made of a whole body: leave Range out")
	case body.GetKeepEncoding() || c.out.Header.Get("Accept-Encoding") != "":
		c.Add("text_policy", "is set together with keep_encoding or a header Accept-Encoding, but a text is made of the decoded body: leave both out")
	}
}

// Delivery returns the name of the delivery that a policy sets, or "", and the settings of a streamed body,
// which are nil for the other deliveries.
func Delivery(p *pb.BodyPolicy) (name string, stream *pb.StreamDelivery) {
	switch d := p.GetDelivery().(type) {
	case nil:
		return "", nil
	case *pb.BodyPolicy_Stream:
		return "stream", d.Stream
	case *pb.BodyPolicy_Auto:
		return "auto", d.Auto
	}
	m := p.ProtoReflect()
	return string(m.WhichOneof(m.Descriptor().Oneofs().ByName("delivery")).Name()), nil
}

// streamField returns the path of the settings of a streamed body.
func (c *conversion) streamField() string {
	if c.out.Delivery == fetch.Auto {
		return "body_policy.auto"
	}
	return "body_policy.stream"
}

// stream reads the settings of a streamed body.
func (c *conversion) stream(s *pb.StreamDelivery) {
	hold := c.streamField() + ".max_hold_back_bytes"
	c.out.HoldBackBytes = clamp(c, hold, badrequest.Integer(&c.Violations, hold, s.MaxHoldBackBytes, c.out.HoldBackBytes, 0, math.MaxInt64), fetch.MaxHoldBackBytes)
	c.out.Recovery = enum(&c.violations, c.streamField()+".recovery", s.GetRecovery(), recoveries)
	c.resumePoint(s.GetResumePoint())
}

// resumePoint reads where an earlier fetch stopped. Options that need the bytes before that point are
// refused.
func (c *conversion) resumePoint(p *pb.ResumePoint) {
	if p == nil {
		return
	}
	field := c.streamField() + ".resume_point"
	if p.GetOffsetBytes() < 1 {
		c.Add(field+".offset_bytes", "is %d: give the number of bytes you have, 1 or more", p.GetOffsetBytes())
	}
	if !isStrong(p.GetValidator()) {
		c.Add(field+".validator", `is neither a strong entity tag, such as "\"abc\"", nor a Last-Modified date: give the validator of the earlier response`)
	}
	if p.GetOffsetBytes() > c.out.MaxBodyBytes {
		c.Add(field+".offset_bytes", "is over max_size_bytes, %d: raise that limit", c.out.MaxBodyBytes)
	}
	switch {
	case c.out.Method != http.MethodGet:
		c.Add(field, "is set with method %.10s: only a GET can be resumed", c.out.Method)
	case c.out.Header.Get("Range") != "":
		c.Add(field, "is set together with a header Range: give one of the two")
	case c.in.GetPrecondition() != nil:
		c.Add(field, "is set together with a precondition: leave precondition out")
	case c.in.GetIntegrity().GetSha256() != "":
		c.Add(field, "is set together with integrity.sha256, which needs the bytes before the resume point: leave sha256 out and compare the digest yourself")
	case c.in.GetContentPolicy().GetRequireValidCharset():
		c.Add(field, "is set together with content_policy.require_valid_charset, which needs the bytes before the resume point: leave that out")
	}
	c.out.ResumePoint = fetch.ResumePoint{Offset: p.GetOffsetBytes(), Validator: p.GetValidator()}
}

// isStrong reports whether If-Range allows a validator (RFC 9110 §13.1.5).
func isStrong(validator string) bool {
	if _, err := http.ParseTime(validator); err == nil {
		return true
	}
	return strings.HasPrefix(validator, `"`) && isETag(validator)
}

func (c *conversion) integrity() {
	p := c.in.GetIntegrity()
	if p == nil {
		return
	}
	c.out.Integrity.SHA256 = strings.ToLower(p.GetSha256())
	if raw, err := hex.DecodeString(p.GetSha256()); err != nil || len(raw) != 32 && len(raw) != 0 {
		c.Add("integrity.sha256", "is not a SHA-256 digest: give 64 hexadecimal digits")
	}
	c.out.Integrity.Size = badrequest.Integer(&c.Violations, "integrity.size_bytes", p.SizeBytes, -1, 0, 1<<63-1)
	if c.out.Delivery == fetch.None {
		c.Add("integrity", "is set with delivery none, which reads no body: use digest")
	}
	if c.out.Method == http.MethodHead {
		c.Add("integrity", "is set with method HEAD, whose response has no body: use GET")
	}
}

func (c *conversion) content() {
	p := c.in.GetContentPolicy()
	if n := len(p.GetAcceptedMediaTypes()); n > maxMediaTypes {
		c.Add("content_policy.accepted_media_types", "has %d entries: give at most %d", n, maxMediaTypes)
		return
	}
	for i, t := range p.GetAcceptedMediaTypes() {
		media, params, err := mime.ParseMediaType(t)
		if family, sub, ok := strings.Cut(media, "/"); err != nil || len(params) > 0 || !ok || family == "" || sub == "" {
			c.Add(badrequest.Indexed("content_policy.accepted_media_types", i), `is %.60q: give a media type without parameters, such as "text/html" or "text/*"`, t)
		}
		c.out.Content.MediaTypes = append(c.out.Content.MediaTypes, media)
	}
	c.out.Content.RequireBody = p.GetRequireBody()
	c.out.Content.RequireCharset = p.GetRequireValidCharset()
	if c.out.Delivery == fetch.None && (p.GetRequireBody() || p.GetRequireValidCharset()) {
		c.Add("content_policy", "needs a body, but delivery none reads none: use digest")
	}
}
