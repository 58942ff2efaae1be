package frontier

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/frontier/normal"
	"fetchd/frontier/robots"
	"fetchd/frontier/sitemap"
	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

// pageRequest returns everything that fetchd learns about a URL. It does not depend on hosts,
// delays, leases or other URLs (S1). From the URL's own row it has the validators of the last
// fetch, and the earlier record.
func (c *Config) pageRequest(url string, redirects int, validators store.Claim, earlier store.Earlier) *pb.FetchRequest {
	r := c.request(url, redirects, earlier)
	r.BodyPolicy.MaxSizeBytes = proto.Int64(c.MaxBodyBytes)
	r.BodyPolicy.Delivery = &pb.BodyPolicy_Digest{Digest: new(pb.DigestDelivery)}
	if c.Bodies != nil {
		deliver(r)
	}
	if len(c.Accept) > 0 || c.RequireValidCharset {
		// A crawl that wants certain documents has no use for empty ones (S0, spec C2).
		r.ContentPolicy = &pb.ContentPolicy{AcceptedMediaTypes: c.Accept, RequireBody: len(c.Accept) > 0, RequireValidCharset: c.RequireValidCharset}
	}
	if c.Download {
		if r.RetryPolicy == nil {
			r.RetryPolicy = new(pb.RetryPolicy)
		}
		r.RetryPolicy.Profile = pb.RetryProfile_RETRY_PROFILE_DOWNLOAD
	}
	if !c.Policy.FollowRedirects || c.Discovery.narrow() {
		r.RedirectPolicy = &pb.RedirectPolicy{Follow: proto.Bool(false)}
	}
	bodyKept := c.Bodies == nil || validators.BodyDigest != "" && !c.Bodies.Lacks(validators.BodyDigest)
	recorded := c.RecordStore == "" || r.GetRecordPolicy().GetEarlier() != nil
	if bodyKept && recorded && !c.Full { // a 304 has no body
		r.Precondition = precondition(validators)
	}
	return r
}

// deliver makes fetchd send the body.
func deliver(r *pb.FetchRequest) {
	r.BodyPolicy.Delivery = &pb.BodyPolicy_Auto{Auto: &pb.StreamDelivery{Recovery: pb.BodyRecovery_BODY_RECOVERY_RESTART}}
}

// sitemapPolicies changes the request for a page to that for a sitemap, which has another media type
// and its own maximum length.
func sitemapPolicies(r *pb.FetchRequest) {
	r.ContentPolicy = nil
	r.BodyPolicy.MaxSizeBytes = proto.Int64(sitemap.MaxBytes)
	r.BodyPolicy.OversizeAction = pb.OversizeAction_OVERSIZE_ACTION_UNSPECIFIED
}

// precondition returns the precondition for the validators of the last fetch, or nil.
func precondition(validators store.Claim) *pb.Precondition {
	if isETag(validators.ETag) {
		return &pb.Precondition{Etags: []string{validators.ETag}}
	}
	if t, err := http.ParseTime(validators.LastModified); err == nil {
		return &pb.Precondition{LastModifiedTime: timestamppb.New(t)}
	}
	return nil
}

// maxETag is the maximum length of a stored entity-tag that is sent, in bytes.
const maxETag = 1 << 10

// isETag reports whether s, which an origin sent, is an entity-tag: RFC 9110 §8.8.3. fetchd would
// reject a request with an invalid one.
func isETag(s string) bool {
	opaque, ok := strings.CutPrefix(strings.TrimPrefix(s, "W/"), `"`)
	opaque, closed := strings.CutSuffix(opaque, `"`)
	return ok && closed && len(s) <= maxETag && !strings.ContainsFunc(opaque, func(r rune) bool {
		return r <= ' ' || r == '"' || r == 0x7f || r == utf8.RuneError
	})
}

// robotsRequest returns the request for a robots.txt. RFC 9309 requires five redirects and 500 KiB.
// One byte more shows whether the last line is complete.
func (c *Config) robotsRequest(url string, redirects int, earlier store.Earlier) *pb.FetchRequest {
	r := c.request(url, redirects, earlier)
	r.BodyPolicy.MaxSizeBytes = proto.Int64(robots.MaxBytes + 1)
	r.BodyPolicy.OversizeAction = pb.OversizeAction_OVERSIZE_ACTION_TRUNCATE
	r.RedirectPolicy = &pb.RedirectPolicy{Follow: proto.Bool(false)} // the worker follows each redirect when its host is open
	return r
}

// once limits a request to one attempt.
func once(r *pb.FetchRequest) { r.RetryPolicy = &pb.RetryPolicy{MaxAttempts: proto.Int32(1)} }

// request returns what both requests have in common. fetchd follows redirects within an origin
// only, because just the worker knows whether another host is open.
func (c *Config) request(url string, redirects int, earlier store.Earlier) *pb.FetchRequest {
	r := &pb.FetchRequest{
		Url:            url,
		Headers:        []*pb.Header{{Name: "User-Agent", Value: c.UserAgent}},
		RedirectPolicy: &pb.RedirectPolicy{MaxRedirects: proto.Int32(int32(redirects)), Scope: pb.RedirectScope_REDIRECT_SCOPE_SAME_ORIGIN}, //nolint:gosec // 0 to 20
		TimeoutPolicy:  &pb.TimeoutPolicy{TotalTimeout: durationpb.New(c.TotalTimeout)},
		BodyPolicy:     &pb.BodyPolicy{MaxErrorBodyBytes: proto.Int32(0)},
		EventLevel:     pb.EventLevel_EVENT_LEVEL_ATTEMPTS,
		RecordPolicy:   c.recordPolicy(url, earlier),
	}
	if c.From != "" {
		r.Headers = append(r.Headers, &pb.Header{Name: "From", Value: c.From})
	}
	if c.MaxAttempts > 0 {
		r.RetryPolicy = &pb.RetryPolicy{MaxAttempts: proto.Int32(int32(c.MaxAttempts))} //nolint:gosec // 1 to 11
	}
	return r
}

// recordPolicy returns the policy of a request for url, or nil if the crawl is not recorded. earlier
// is sent to its own origin only: a 304 of another origin says nothing about it.
func (c *Config) recordPolicy(url string, earlier store.Earlier) *pb.RecordPolicy {
	if c.RecordStore == "" {
		return nil
	}
	p := &pb.RecordPolicy{Store: c.RecordStore}
	date, err := time.Parse(time.RFC3339Nano, earlier.Date)
	here, _ := normal.OriginOf(url)
	if there, _ := normal.OriginOf(earlier.URL); err == nil && here == there {
		p.Earlier = &pb.EarlierRecord{RecordId: earlier.RecordID, Url: earlier.URL, RecordTime: timestamppb.New(date), PayloadDigest: earlier.PayloadDigest}
	}
	return p
}

// crawlPath says how the crawl came to url: that of the claim, or one to which it was redirected.
func (v *visit) crawlPath(url string) (*pb.CrawlPath, error) {
	var ids []int64
	for _, id := range []int64{v.claim.Parent, v.claim.Need.PageID} {
		if id != 0 {
			ids = append(ids, id)
		}
	}
	if ids == nil {
		return crawlPath(&v.claim, nil, url), nil
	}
	urls, err := v.w.store.URLsOf(v.ctx, ids)
	return crawlPath(&v.claim, urls, url), err
}

func crawlPath(c *store.Claim, urls map[int64]string, url string) *pb.CrawlPath {
	const shown = 50 // letters, as Heritrix has it
	hops := strings.Repeat("L", min(c.Depth, shown))
	if c.Depth > shown {
		hops = fmt.Sprintf("%d+%s", c.Depth-shown, hops)
	}
	p := &pb.CrawlPath{Via: urls[c.Parent], HopsFromSeed: hops, RequisiteOf: urls[c.Need.PageID]}
	if c.Kind < store.Page {
		p.HopsFromSeed += strings.Repeat("E", c.Need.Hops)
	}
	if url != c.URL {
		p.Via = c.URL
		p.HopsFromSeed += "R"
	}
	return p
}

// errNotRecorded means that a service does not know the field record_policy of a request.
var errNotRecorded = errors.New("the service has fetched and not recorded it: use one that can record")

// recordError returns why the service could not record a fetch, or nil.
func (c *Config) recordError(o *pb.FetchOutcome) error {
	if c.RecordStore == "" {
		return nil
	}
	f := o.GetError()
	switch text := message(f); f.GetErrorClass() {
	case pb.ErrorClass_ERROR_CLASS_STORE_FAILURE:
		return fmt.Errorf("%s: %s", f.GetReason(), text)
	case pb.ErrorClass_ERROR_CLASS_INVALID_REQUEST: // the service has another configuration than when the worker started
		if strings.Contains(text, "record_policy.store") || strings.Contains(text, fmt.Sprintf("may not use the store %q", c.RecordStore)) {
			return errors.New(text)
		}
	}
	if o.GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS && len(o.GetRecords()) == 0 {
		return errNotRecorded
	}
	return nil
}

// deniedSize is the reason of a policy of the service that permits no maximum as large as that of the request.
const deniedSize = "max_size_bytes"

// deniedFlags are the settings that a policy of the service forbids, by the reason of its denial.
var deniedFlags = map[string]string{
	deniedSize:      "give a lower --max-body-bytes",
	"total_timeout": "give a shorter --total-timeout",
	"max_attempts":  "give a lower --max-attempts",
	"max_redirects": "set a lower CRAWLER_MAX_REDIRECTS",
	"record_store":  "give another --warc",
	"auth_provider": "give another --identity",
}

// deniedError returns the error of a fetch that a policy of the service forbids because of a setting of this worker.
func deniedError(f *pb.FetchError) error {
	remedy := "permit it in the policy"
	if flag, ok := deniedFlags[f.GetReason()]; ok {
		remedy = flag + ", or " + remedy
	}
	return fmt.Errorf("%s: %s", f.GetMessage(), remedy)
}

// anySize changes a request to one for a body of any size, which the service lowers to its maximum and to that of the
// policy. A longer body fails, because a part of a robots.txt or of a sitemap is not enough.
func anySize(r *pb.FetchRequest) {
	r.BodyPolicy.MaxSizeBytes = proto.Int64(1<<53 - 1)
	r.BodyPolicy.OversizeAction = pb.OversizeAction_OVERSIZE_ACTION_UNSPECIFIED
}
