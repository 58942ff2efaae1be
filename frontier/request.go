package frontier

import (
	"net/http"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/frontier/robots"
	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

// pageRequest is all that a fetchd is told of a URL. Nothing in it depends on
// what the frontier knows of hosts, delays, leases or other URLs (S1); of the
// URL's own row it has the validators of its last fetch.
func (c *Config) pageRequest(url string, redirects int, validators store.Claim) *pb.FetchRequest {
	r := c.request(url, redirects)
	r.BodyPolicy.MaxSizeBytes = proto.Int64(c.MaxBodyBytes)
	if c.TruncateBodies {
		r.BodyPolicy.OversizeAction = pb.OversizeAction_OVERSIZE_ACTION_TRUNCATE
	}
	if c.Bodies == nil {
		r.BodyPolicy.Delivery = pb.BodyDelivery_BODY_DELIVERY_DIGEST
	}
	if len(c.Accept) > 0 {
		// Where certain documents are wanted, an empty one is of no use (S0, spec C2).
		r.ContentPolicy = &pb.ContentPolicy{AcceptedMediaTypes: c.Accept, RequireBody: true}
	}
	if !c.Policy.FollowRedirects || c.Policy.QueueRedirects {
		r.RedirectPolicy = &pb.RedirectPolicy{Follow: proto.Bool(false)}
	}
	if c.Bodies == nil || validators.BodyDigest != "" { // a 304 brings no body
		r.Precondition = precondition(validators)
	}
	return r
}

// precondition is what the last fetch allows to be asked; nil if nothing.
func precondition(validators store.Claim) *pb.Precondition {
	if isETag(validators.ETag) {
		return &pb.Precondition{Etags: []string{validators.ETag}}
	}
	if t, err := http.ParseTime(validators.LastModified); err == nil {
		return &pb.Precondition{ModifiedSinceTime: timestamppb.New(t)}
	}
	return nil
}

// maxETag is the longest that goes along, in bytes.
const maxETag = 1 << 10

// isETag says whether what an origin sent is an entity-tag: RFC 9110 §8.8.3. What
// is none fetchd would refuse, and with it the request.
func isETag(s string) bool {
	opaque, ok := strings.CutPrefix(strings.TrimPrefix(s, "W/"), `"`)
	opaque, closed := strings.CutSuffix(opaque, `"`)
	return ok && closed && len(s) <= maxETag && !strings.ContainsFunc(opaque, func(r rune) bool {
		return r <= ' ' || r == '"' || r == 0x7f || r == utf8.RuneError
	})
}

// robotsRequest asks for a robots.txt: RFC 9309 wants five redirects followed and
// 500 KiB read. The byte beyond them tells whether the last line is whole.
func (c *Config) robotsRequest(url string, redirects int) *pb.FetchRequest {
	r := c.request(url, redirects)
	r.BodyPolicy.MaxSizeBytes = proto.Int64(robots.MaxBytes + 1)
	r.BodyPolicy.OversizeAction = pb.OversizeAction_OVERSIZE_ACTION_TRUNCATE
	r.RedirectPolicy = &pb.RedirectPolicy{Follow: proto.Bool(false)} // each takes its turn
	return r
}

// request is what the two have in common. Redirects are followed within an
// origin: another one has to be open, and only the worker knows whether it is.
func (c *Config) request(url string, redirects int) *pb.FetchRequest {
	r := &pb.FetchRequest{
		Url:            url,
		Headers:        []*pb.Header{{Name: "User-Agent", Value: c.UserAgent}},
		RedirectPolicy: &pb.RedirectPolicy{MaxRedirects: proto.Int32(int32(redirects)), Scope: pb.RedirectScope_REDIRECT_SCOPE_SAME_ORIGIN}, //nolint:gosec // 0 to 20
		TimeoutPolicy:  &pb.TimeoutPolicy{TotalTimeout: durationpb.New(c.TotalTimeout)},
		BodyPolicy:     &pb.BodyPolicy{ErrorBodyBytes: proto.Int32(0)},
		EventLevel:     pb.EventLevel_EVENT_LEVEL_ATTEMPTS,
	}
	if c.MaxAttempts > 0 {
		r.RetryPolicy = &pb.RetryPolicy{MaxAttempts: proto.Int32(int32(c.MaxAttempts))} //nolint:gosec // 1 to 11
	}
	return r
}
