package conversion

import (
	"encoding/hex"
	"math"
	"mime"
	"net/http"
	"strings"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
)

// Mode says which deliveries a method supports.
type Mode struct {
	unset   fetch.Delivery // if the request sets none
	streams bool           // the method can send chunks
}

// The modes of the methods.
var (
	FetchMode = Mode{fetch.Stream, true}
	UnaryMode = Mode{unset: fetch.Inline}
	ManyMode  = Mode{fetch.Inline, true}
)

func (c *conversion) body(mode Mode) {
	p := c.in.GetBodyPolicy()
	c.out.Delivery = enum(&c.violations, "body_policy.delivery", p.GetDelivery(), deliveries)
	switch p.GetDelivery() {
	case pb.BodyDelivery_BODY_DELIVERY_UNSPECIFIED:
		c.out.Delivery = mode.unset
	case pb.BodyDelivery_BODY_DELIVERY_STREAM, pb.BodyDelivery_BODY_DELIVERY_AUTO:
		if !mode.streams {
			c.Add("body_policy.delivery", "needs a stream, which this call has not: give inline, digest or none, or call Fetch")
		}
	}
	c.out.Truncate = enum(&c.violations, "body_policy.oversize_action", p.GetOversizeAction(), truncates)
	limit, by := c.limits.MaxBodyBytes, fetch.ByServer
	if c.out.Delivery == fetch.Inline && limit > fetch.MaxInlineBytes {
		limit, by = fetch.MaxInlineBytes, fetch.ByService
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
	c.out.HoldBackBytes = clamp(c, "body_policy.hold_back_bytes", badrequest.Integer(&c.Violations, "body_policy.hold_back_bytes", p.HoldBackBytes, c.out.HoldBackBytes, 0, math.MaxInt64), fetch.MaxHoldBackBytes)
	c.out.ErrorBodyBytes = int(badrequest.Integer(&c.Violations, "body_policy.error_body_bytes", p.ErrorBodyBytes,
		int32(c.out.ErrorBodyBytes), 0, fetch.MaxErrorBodyBytes))
	c.out.Recovery = enum(&c.violations, "body_policy.recovery", p.GetRecovery(), recoveries)
	c.resumePoint(p.GetResumePoint())
}

// resumePoint reads where an earlier fetch stopped. Options that need the bytes before that point are
// refused.
func (c *conversion) resumePoint(p *pb.ResumePoint) {
	if p == nil {
		return
	}
	const field = "body_policy.resume_point"
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
	case !c.out.Delivery.Streams():
		c.Add(field, "is set with a delivery other than stream and auto: only a streamed body can be resumed")
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
