package frontier

import (
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/jsontext"
)

// failedRedirect returns the outcome that fetchd would have reported if the whole chain were at one
// origin.
func failedRedirect(outcome *pb.FetchOutcome, class pb.ErrorClass) *pb.FetchOutcome {
	return &pb.FetchOutcome{
		Kind: pb.OutcomeKind_OUTCOME_KIND_FAILED, Response: outcome.GetResponse(), FinalUrl: outcome.GetFinalUrl(),
		Hops: outcome.GetHops(), BodySummary: outcome.GetBodySummary(), Records: outcome.GetRecords(), ResponseAttempt: outcome.GetResponseAttempt(), RateLimits: outcome.GetRateLimits(),
		Error: &pb.FetchError{ErrorClass: class, Reason: className(class), Message: "the redirect limit was reached, or the redirects loop", FailureType: pb.FailureType_FAILURE_TYPE_PERMANENT},
	}
}

// whole returns the outcome, or a failure if its body is only a part of the whole or may be that of
// another response. No request asks for a part, so something on the way is broken. The links and rules
// of a part would be taken for all.
func whole(outcome *pb.FetchOutcome) *pb.FetchOutcome {
	body, e := outcome.GetBodySummary(), &pb.FetchError{FailureType: pb.FailureType_FAILURE_TYPE_TRANSIENT, Retryable: true}
	switch {
	case outcome.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS:
		return outcome
	case body.GetUnrequestedData():
		e.ErrorClass, e.Reason = pb.ErrorClass_ERROR_CLASS_CONNECTION_RESET, "unrequested_data"
		e.Message = "the origin sent more than was requested, so the response may be the answer to an earlier request"
	case body.GetPartialContent():
		e.ErrorClass, e.Reason = pb.ErrorClass_ERROR_CLASS_INTEGRITY, "partial_content"
		e.Message = "the origin sent only a part of the body, although the request was for all of it"
	default:
		return outcome
	}
	return unusable(outcome, e)
}

// corrupted returns the failure of an outcome whose body has changed on its way to the place of bodies.
func corrupted(outcome *pb.FetchOutcome, err *DigestError) *pb.FetchOutcome {
	return unusable(outcome, &pb.FetchError{FailureType: pb.FailureType_FAILURE_TYPE_TRANSIENT, Retryable: true,
		ErrorClass: pb.ErrorClass_ERROR_CLASS_INTEGRITY, Reason: "body_changed", Message: fmt.Sprint(err)})
}

func unusable(outcome *pb.FetchOutcome, e *pb.FetchError) *pb.FetchOutcome {
	outcome.Kind, outcome.Body, outcome.Error = pb.OutcomeKind_OUTCOME_KIND_FAILED, nil, e
	return outcome
}

// message returns the message of an error with its detail.
func message(f *pb.FetchError) string {
	if detail := f.GetDetail(); detail != "" {
		return f.GetMessage() + "; " + detail
	}
	return f.GetMessage()
}

// longestAsked limits a pause that a host asks for, because an origin could otherwise stop the
// crawl for ever.
const longestAsked = 24 * time.Hour

// askedFor returns the pause that the origin asked for: its Retry-After, or else the longest time to the reset of a
// rate limit that has nothing left. Zero means none.
func askedFor(outcome *pb.FetchOutcome) time.Duration {
	asked := time.Duration(0)
	if after := outcome.GetError().GetRetryAfter(); after != nil {
		asked = after.AsDuration()
	} else {
		for _, l := range outcome.GetRateLimits() {
			if l.Remaining != nil && l.GetRemaining() == 0 {
				asked = max(asked, l.GetResetDuration().AsDuration())
			}
		}
	}
	return min(max(0, asked), longestAsked)
}

// target returns the URL of a redirect's Location, or an empty string if the response has none.
func target(outcome *pb.FetchOutcome) string {
	hops := outcome.GetHops()
	if len(hops) == 0 {
		return ""
	}
	switch hops[len(hops)-1].GetStatusCode() {
	case 301, 302, 303, 307, 308:
		return hops[len(hops)-1].GetLocationUrl()
	}
	return ""
}

// lastURL returns the URL of the last request.
func lastURL(outcome *pb.FetchOutcome) string {
	if hops := outcome.GetHops(); len(hops) > 0 {
		return hops[len(hops)-1].GetUrl()
	}
	return outcome.GetFinalUrl()
}

// responseRecord returns the record of the response of an outcome, or nil.
func responseRecord(o *pb.FetchOutcome) *pb.WarcRecord {
	for _, r := range slices.Backward(o.GetRecords()) {
		if r.GetType() != pb.WarcType_WARC_TYPE_REQUEST && r.GetAttempt() == o.GetResponseAttempt() {
			return r
		}
	}
	return nil
}

// archivedOf returns where the response of an outcome is.
func archivedOf(o *pb.FetchOutcome) store.Archived {
	r := responseRecord(o)
	if r == nil {
		return store.Archived{}
	}
	return store.Archived{File: r.GetFile(), Offset: r.GetOffsetBytes(), Length: r.GetLengthBytes(), RecordID: r.GetRecordId(),
		Date: dateOf(r), PayloadDigest: r.GetPayloadDigest()}
}

func dateOf(r *pb.WarcRecord) string { return r.GetRecordTime().AsTime().Format(time.RFC3339Nano) }

// earlierOf returns the record that the next fetch may refer to after a success. It is that of the
// response, or before if the response was recorded as a revisit of it. A payload that is not whole
// in one record has none: it was truncated, or continued by another attempt.
func earlierOf(o *pb.FetchOutcome, before store.Earlier) store.Earlier {
	r := responseRecord(o)
	switch {
	case r == nil || o.GetBodySummary().GetTruncated() || r.GetAttempt() != o.GetAttemptCount():
		return store.Earlier{}
	case r.GetType() == pb.WarcType_WARC_TYPE_REVISIT:
		return before
	}
	return store.Earlier{RecordID: r.GetRecordId(), URL: lastURL(o), Date: dateOf(r), PayloadDigest: r.GetPayloadDigest()}
}

// An origin chooses what its headers contain, so what is kept of a response is limited.
const (
	maxKeptHeaders = 32
	maxKeptName    = 100     // bytes of a name
	maxKeptValues  = 8       // of one name
	maxKeptValue   = 1 << 10 // bytes of one value
	maxKeptTotal   = 8 << 10 // bytes of all values
	maxContentType = 255     // bytes of a media type: RFC 6838 §4.2
	maxCharset     = 64      // bytes of a charset
	omitted        = "…"     // stands for what is left out
)

// CheckKeepHeaders returns an error if names cannot be Config.KeepHeaders.
func CheckKeepHeaders(names []string) error {
	if len(names) > maxKeptHeaders {
		return fmt.Errorf("has %d names: give at most %d", len(names), maxKeptHeaders)
	}
	for _, name := range names {
		if len(name) > maxKeptName || !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("%.60q is not the name of a header, of at most %d bytes", name, maxKeptName)
		}
	}
	return nil
}

// contentOf returns what a response says about its content, and the headers to keep. names are in
// canonical form.
func contentOf(response *pb.HttpResponse, names []string) store.Content {
	all := make(http.Header)
	for _, h := range response.GetHeaders() {
		all.Add(h.GetName(), h.GetValue())
	}
	media, params, err := mime.ParseMediaType(all.Get("Content-Type"))
	if err != nil && media == "" { // no media type, or none that is valid
		media, _, _ = strings.Cut(all.Get("Content-Type"), ";")
	}
	c := store.Content{ContentType: shorten(strings.TrimSpace(media), maxContentType), Charset: shorten(strings.ToLower(params["charset"]), maxCharset)}
	kept := make(map[string][]string)
	left := maxKeptTotal
	for _, name := range names {
		if values := keep(all[name], &left); len(values) > 0 {
			kept[name] = values
		}
	}
	if len(kept) > 0 {
		var text strings.Builder
		_ = jsontext.NewEncoder(&text).Encode(kept) // cannot fail
		c.Headers = strings.TrimSuffix(text.String(), "\n")
	}
	return c
}

// keep returns the values that fit into left bytes, which it reduces. Where something is left out,
// the last value ends in "…".
func keep(values []string, left *int) (kept []string) {
	for i, value := range values {
		if i == maxKeptValues || *left <= 0 {
			return append(kept, omitted)
		}
		value = shorten(value, min(maxKeptValue, *left))
		*left -= len(value)
		kept = append(kept, value)
	}
	return kept
}

// shorten returns s if it fits into limit bytes, or its first characters that do, and "…".
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + omitted
}
