package server

import (
	"encoding/hex"
	"mime"
	"net/http"
	"strings"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
)

func (c *conversion) body(fallback fetch.Delivery) {
	p := c.in.GetBodyPolicy()
	c.out.Delivery = enum(&c.violations, "body_policy.delivery", p.GetDelivery(), deliveries)
	if p.GetDelivery() == pb.BodyDelivery_BODY_DELIVERY_UNSPECIFIED {
		c.out.Delivery = fallback
	} else if fallback != fetch.Stream && p.GetDelivery() == pb.BodyDelivery_BODY_DELIVERY_STREAM {
		c.add("body_policy.delivery", "is BODY_DELIVERY_STREAM: this call has no stream, give INLINE, DIGEST or NONE, or call Fetch")
	}
	c.out.Truncate = enum(&c.violations, "body_policy.oversize_action", p.GetOversizeAction(), truncates)
	most, by := c.limits.MaxBodyBytes, fetch.ByServer
	if c.out.Delivery == fetch.Inline && most > fetch.MaxInlineBytes {
		most, by = fetch.MaxInlineBytes, fetch.ByService
	}
	if c.out.MaxBodyBytes > most {
		c.out.MaxBodyBytes, c.out.SetBy.MaxBodyBytes = most, by
	}
	c.out.KeepEncoding, c.out.OmitDigest = p.GetKeepEncoding(), p.GetOmitDigest()
	if p == nil {
		return
	}
	c.out.MaxBodyBytes = c.size("body_policy.max_size_bytes", p.MaxSizeBytes, c.out.MaxBodyBytes, most)
	switch {
	case p.GetMaxSizeBytes() > most:
		c.out.SetBy.MaxBodyBytes = by
	case p.MaxSizeBytes != nil:
		c.out.SetBy.MaxBodyBytes = fetch.ByCaller
	}
	c.out.HoldBackBytes = c.size("body_policy.hold_back_bytes", p.HoldBackBytes, c.out.HoldBackBytes, fetch.MaxHoldBackBytes)
	c.out.ErrorBodyBytes = int(integer(&c.violations, "body_policy.error_body_bytes", p.ErrorBodyBytes,
		int32(c.out.ErrorBodyBytes), 0, fetch.MaxErrorBodyBytes))
	c.out.Recovery = enum(&c.violations, "body_policy.recovery", p.GetRecovery(), recoveries)
	c.resumePoint(p.GetResumePoint())
}

// resumePoint reads where an earlier fetch stopped. What needs the bytes before it
// cannot be asked for.
func (c *conversion) resumePoint(p *pb.ResumePoint) {
	if p == nil {
		return
	}
	const field = "body_policy.resume_point"
	if p.GetOffsetBytes() < 1 {
		c.add(field+".offset_bytes", "is %d: give the number of bytes you have, 1 or more", p.GetOffsetBytes())
	}
	if !isStrong(p.GetValidator()) {
		c.add(field+".validator", `is neither a strong entity tag, such as "\"abc\"", nor a Last-Modified date: give the one of the earlier response`)
	}
	if p.GetOffsetBytes() > c.out.MaxBodyBytes {
		c.add(field+".offset_bytes", "is past max_size_bytes, %d", c.out.MaxBodyBytes)
	}
	switch {
	case c.out.Method != http.MethodGet:
		c.add(field, "is set with method %.10s: only GET can be continued", c.out.Method)
	case c.out.Delivery != fetch.Stream:
		c.add(field, "is set with a delivery that is not STREAM: only a streamed body can be continued")
	case c.out.Header.Get("Range") != "":
		c.add(field, "stands beside a header Range: give one of the two")
	case c.in.GetPrecondition() != nil:
		c.add(field, "stands beside a precondition: leave that out")
	case c.in.GetIntegrity().GetSha256() != "":
		c.add(field, "stands beside integrity.sha256, which needs the bytes before it: compare the digest yourself")
	case c.in.GetContentPolicy().GetRequireValidCharset():
		c.add(field, "stands beside content_policy.require_valid_charset, which needs the bytes before it")
	}
	c.out.ResumePoint = fetch.ResumePoint{Offset: p.GetOffsetBytes(), Validator: p.GetValidator()}
}

// isStrong tells validators that If-Range takes (RFC 9110 §13.1.5).
func isStrong(validator string) bool {
	if _, err := http.ParseTime(validator); err == nil {
		return true
	}
	return strings.HasPrefix(validator, `"`) && isETag(validator)
}

// size reads a number of bytes that is cut at high.
func (c *conversion) size(field string, p *int64, otherwise, high int64) int64 {
	got := integer(&c.violations, field, p, otherwise, 0, 1<<63-1)
	if got > high {
		c.cut = append(c.cut, field)
		return high
	}
	return got
}

func (c *conversion) integrity() {
	p := c.in.GetIntegrity()
	if p == nil {
		return
	}
	c.out.Integrity.SHA256 = strings.ToLower(p.GetSha256())
	if raw, err := hex.DecodeString(p.GetSha256()); err != nil || len(raw) != 32 && len(raw) != 0 {
		c.add("integrity.sha256", "is not 64 hexadecimal digits")
	}
	c.out.Integrity.Size = integer(&c.violations, "integrity.size_bytes", p.SizeBytes, -1, 0, 1<<63-1)
	if c.out.Delivery == fetch.None {
		c.add("integrity", "is set with delivery NONE, which reads no body: give DIGEST")
	}
	if c.out.Method == http.MethodHead {
		c.add("integrity", "is set with method HEAD, which brings no body: give GET")
	}
}

func (c *conversion) content() {
	p := c.in.GetContentPolicy()
	if n := len(p.GetAcceptedMediaTypes()); n > maxMediaTypes {
		c.add("content_policy.accepted_media_types", "has %d entries: give at most %d", n, maxMediaTypes)
		return
	}
	for i, t := range p.GetAcceptedMediaTypes() {
		media, params, err := mime.ParseMediaType(t)
		if family, sub, ok := strings.Cut(media, "/"); err != nil || len(params) > 0 || !ok || family == "" || sub == "" {
			c.add(indexed("content_policy.accepted_media_types", i), `is %.60q: give a media type without parameters, such as "text/html" or "text/*"`, t)
		}
		c.out.Content.MediaTypes = append(c.out.Content.MediaTypes, media)
	}
	c.out.Content.RequireBody = p.GetRequireBody()
	c.out.Content.RequireCharset = p.GetRequireValidCharset()
	if c.out.Delivery == fetch.None && (p.GetRequireBody() || p.GetRequireValidCharset()) {
		c.add("content_policy", "asks for a body with delivery NONE, which reads none: give DIGEST")
	}
}
