package fetch

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"time"

	"fetchd/classify"
	"fetchd/fetch/conns"
	"fetchd/fetch/markdown"
	"fetchd/fetch/signing"
	"fetchd/internal/budget"
)

// Limits and defaults of spec §9 and §12. Fetch enforces MaxInlineBytes; the server
// enforces the other exported ones before it calls Fetch.
const (
	MaxHeaderFields     = 64       // request header fields
	MaxHeaderBytes      = 32 << 10 // names and values of the request header fields
	MaxRequestBodyBytes = 1 << 20  // request body
	MaxInlineBytes      = 1 << 20  // response body, or its text, in an outcome
	MaxTextSourceBytes  = 16 << 20 // response body of which a text is made
	MaxHoldBackBytes    = 16 << 20 // Request.HoldBackBytes
	MaxErrorBodyBytes   = 64 << 10 // Request.ErrorBodyBytes
	MaxIdempotencyBytes = 256      // Request.IdempotencyKey

	defaultMaxBodyBytes   = 16 << 20
	defaultErrorBodyBytes = 16 << 10
	defaultHoldBackBytes  = 512 << 10
	defaultMaxTotal       = 15 * time.Minute
	defaultServerMaxBytes = 1 << 40
)

// Delivery is how a body reaches the caller (spec B1, B4).
type Delivery uint8

// The deliveries. The zero value is Stream.
const (
	Stream Delivery = iota // In [BodyChunk] events. The start is buffered; see [Request].HoldBackBytes.
	Inline                 // In [Outcome].InlineBody.
	Digest                 // The body is read and hashed, but not delivered.
	None                   // The body is not read.
	Auto                   // Like Inline if the body is small enough, else like Stream; see [Request].HoldBackBytes.
	Store                  // In an [Upload] to [Request].Destination.
)

// Streams reports whether a body may be delivered in [BodyChunk] events.
func (d Delivery) Streams() bool { return d == Stream || d == Auto }

// Recovery controls what happens if a body is interrupted after part of it has been
// delivered (spec B2, B3).
type Recovery uint8

// The recoveries. The zero value is Resume.
const (
	Resume     Recovery = iota // Resume with a Range request. If the origin does not allow it, fail.
	NoRecovery                 // Fail.
	Restart                    // Resume. If the origin does not allow it, restart at offset 0.
)

// ResumePoint is where an earlier fetch of the same body stopped.
type ResumePoint struct {
	// Offset is the number of bytes that the caller has. Zero means no resume point.
	Offset int64
	// Validator is that of the earlier response: a strong ETag or a Last-Modified date.
	Validator string
}

// Scope limits where a redirect may lead (spec D4).
type Scope uint8

// The scopes. The zero value is AnyHost.
const (
	AnyHost    Scope = iota
	SameHost         // The host of the first URL.
	SameOrigin       // The scheme, host and port of the first URL.
)

// Level selects the events that the [Sink] receives (spec §10).
type Level uint8

// The levels. The zero value is Attempts.
const (
	Attempts    Level = iota // All events except RedirectFollowed.
	OutcomeOnly              // Only BodyChunk, and ResponseStarted before it.
	All                      // All events, with the headers of every hop.
	Ends                     // AttemptFinished, and the events of OutcomeOnly.
)

// Narrower narrows the egress policy of a [Client] for a fetch. An error forbids the target (spec P1); an
// *[fault.Error] can name the policy and its rule. Its methods are called concurrently.
type Narrower interface {
	// CheckURL is asked about the URL of each hop, before its name is looked up. redirected reports whether
	// a redirect led to it.
	CheckURL(u *url.URL, redirected bool) error
	// Narrower has CheckAddr, which is asked about each address before it is dialled, and about that of a
	// connection before the fetch uses it. It is not asked if a proxy connects.
	conns.Narrower
}

// Request describes a fetch. Start with [NewRequest], which sets the defaults of a
// profile, and change single fields. [Client.Fetch] only reads it.
type Request struct {
	// ID and Labels identify the fetch in logs. They are not sent to the origin.
	ID     string
	Labels map[string]string
	// CallerPolicy is the name of the policy behind Egress. It is logged. Empty means none.
	CallerPolicy string
	// Egress narrows the egress policy of the client for this fetch. Nil narrows nothing.
	Egress Narrower
	// HideForbidden makes a name fail as one that does not exist, with DNS_NOT_FOUND (N1) instead of
	// TARGET_BLOCKED, if every address of it is forbidden, and not all of them are public. So the caller cannot
	// learn which names exist inside a network. The log has the cause.
	HideForbidden bool
	// Route is the way to the origins of all hops and attempts; see [Route]. Nil means that of the client.
	Route *Route
	// Caller is the caller's name, or else its address; see [OriginTLS].Callers. It is logged, and not
	// sent.
	Caller string
	// Hops is the number of fetches that led to this one; see [HopsHeader].
	Hops int
	// URL is absolute, with scheme http or https; see [urls.Parse].
	URL *url.URL
	// Method is one of the methods of spec §12.
	Method string
	// Header holds the caller's header fields, with canonical names. Each must have
	// passed [CheckHeader]. Nil means none.
	Header http.Header
	// Body is sent with every attempt. Nil means none.
	Body []byte

	// Policy controls what is retried and when, and the redirects.
	Policy classify.Policy
	// SetBy records who set the limits. It affects only messages.
	SetBy SetBy
	// IdempotencyKey is sent as the Idempotency-Key header with every attempt. Empty
	// means none.
	IdempotencyKey string

	// Scope, ForbidDowngrade and ForwardCredentials restrict redirects and control
	// what is forwarded (spec D4, D5). ForbidDowngrade rejects redirects from https to
	// http. ForwardCredentials keeps credentials in Header across origins.
	Scope              Scope
	ForbidDowngrade    bool
	ForwardCredentials bool
	// Cookies enables a cookie jar for this fetch only (spec D7).
	Cookies bool

	// TotalTimeout is the time limit of the fetch, including waits between attempts.
	// Zero means [Config].MaxTotalTimeout, which is also the maximum.
	TotalTimeout time.Duration
	// AttemptTimeout is the time limit of one attempt. Zero means no limit.
	AttemptTimeout time.Duration
	// ConnectTimeout limits the lookup, TCP connection and TLS handshake together.
	// HeaderTimeout limits sending the request, and then separately the wait for the
	// response head. IdleTimeout limits how long one read of the body may wait. Zero
	// means no limit.
	ConnectTimeout time.Duration
	HeaderTimeout  time.Duration
	IdleTimeout    time.Duration

	// Delivery is how the body of a 2xx response is delivered.
	Delivery Delivery
	// MaxBodyBytes is the maximum size of the body, both before and after content
	// decoding. With [Inline], the maximum is at most [MaxInlineBytes].
	MaxBodyBytes int64
	// Truncate truncates a longer body instead of failing.
	Truncate bool
	// Text delivers the text of the body instead of its bytes (spec B10), with [Inline], which it requires. The body
	// may then have up to [MaxTextSourceBytes], and the text up to [MaxInlineBytes], beyond which Truncate cuts it.
	// KeepEncoding and ResumePoint must not be set. [markdown.Off] means the bytes.
	Text markdown.Content
	// KeepEncoding disables content decoding.
	KeepEncoding bool
	// HoldBackBytes is the number of bytes at the start of a streamed body to buffer,
	// so that a failed attempt can be repeated (spec B1). A body that fits is delivered
	// when the attempt has succeeded. Zero means no buffering. With [Auto], a body that
	// fits and has at most [MaxInlineBytes] is delivered in the outcome, unless bytes of it
	// were delivered before, in this fetch or before its resume point.
	HoldBackBytes int64
	// ErrorBodyBytes is the maximum size of [Outcome].ErrorBody (spec I5).
	ErrorBodyBytes int
	// TLSDetails makes hops describe the TLS handshake; see [Exchange].TLSDetails.
	TLSDetails bool
	// OmitDigest skips computing the SHA-256 unless Integrity requires it.
	OmitDigest bool

	// Destination takes the body with delivery [Store], which requires it. Truncate and
	// ResumePoint must then not be set, because an object is the whole body.
	Destination Destination

	// Recorder records every exchange. Nil means none.
	Recorder Recorder

	// Recovery controls what happens if the body is interrupted after part of it has
	// been delivered. It is ignored with [Store], which behaves as with Restart: nothing
	// is visible before the end.
	Recovery Recovery
	// ResumePoint continues the body of an earlier fetch. It requires
	// [Request.Resumable]. A body that continues there has no digest, because the bytes
	// before the offset are not known.
	ResumePoint ResumePoint

	// Credentials are sent only to the origins that they cover. Header must not
	// contain their field. A [Signer] may require an ID. Nil means none.
	Credentials Credentials

	// Memory is charged for what the fetch holds: heads, hops, bodies for the outcome,
	// buffered bodies and decoder windows. The caller of Fetch closes it. If it refuses a
	// charge, the fetch ends as OUT_OF_MEMORY (spec P7). Nil means no limit.
	Memory *budget.Lease

	// InlineCopies is how often an inline body is copied on its way to the caller. Memory
	// is charged for the copies as the body grows. Zero means once.
	InlineCopies int

	// Integrity and Content are conditions on the body and the response.
	Integrity Integrity
	Content   Content

	// Events selects the events that the sink receives.
	Events Level

	// LargeStack reports that the goroutine that calls [Client.Fetch] already has a
	// stack of 8 KiB, as one of a gRPC call does. If more than 128 fetches are in
	// flight, this fetch then waits for its response head on that goroutine, not on a
	// second one. It affects only the use of memory. False is always correct.
	LargeStack bool
}

// Setter identifies who set a limit.
type Setter uint8

// The setters. The zero value is ByProfile.
const (
	ByProfile Setter = iota // The profile: the request does not set the limit.
	ByCaller                // The request.
	ByServer                // The operator: the request exceeds the server's maximum.
	ByService               // The service: the request exceeds a fixed limit.
	ByStore                 // The operator: the store takes no larger objects.
	ByPolicy                // The operator: the policy of the caller permits no more.
	ByCall                  // The deadline of the gRPC or HTTP call, which is earlier.
)

// SetBy records who set the limits of a [Request], for the messages of failures.
type SetBy struct {
	MaxBodyBytes, MaxAttempts, MaxRedirects, MaxRetryAfter, TotalTimeout, AttemptTimeout, HeaderTimeout Setter
}

// Integrity is what the decoded body must match (spec C5).
type Integrity struct {
	// SHA256 is 64 hexadecimal digits in lower case. Empty means any.
	SHA256 string
	// Size is in bytes. A negative size means any.
	Size int64
}

// Content is the conditions that a response must meet (spec C1 to C3).
type Content struct {
	// MediaTypes lists the accepted media types, such as "text/html" or "text/*", in
	// lower case. Empty means any.
	MediaTypes []string
	// RequireBody rejects an empty body.
	RequireBody bool
	// RequireCharset rejects a body that is not valid in its charset.
	RequireCharset bool
}

// Credentials provides a credential for some origins (spec §8). Package auth implements
// it. Fetches share it, so it must be safe for concurrent use. The errors of Field and
// Refresh are logged and must contain no secret.
type Credentials interface {
	// Covers reports whether the credential may be sent to the URL's origin.
	Covers(u *url.URL) bool
	// Field returns the header field that carries the current credential. An empty name
	// means that there is none, which is for a [Signer].
	Field(ctx context.Context) (name, value string, err error)
	// Refresh replaces a credential that an origin rejected. refused is the field value
	// that was sent. It returns nil if a newer credential is available. If the error has a
	// method RefreshedJustNow() bool that returns true, the credential is too new to be
	// replaced, and a later fetch may succeed (spec A3).
	Refresh(ctx context.Context, refused string) error
}

// Signer is implemented by [Credentials] that sign requests (spec A7). A fetch calls Field before it
// connects, and Sign when everything else about the request is final, both for each transmission.
// After a 401 Refresh gets the value of the first field that was added.
type Signer interface {
	Credentials
	// Headers returns the canonical names of the fields that Sign may add. A caller's
	// fields with these names are removed before.
	Headers() []string
	// Sign is a [signing.Func]. No fields mean that the request is not signed.
	Sign(ctx context.Context, m *signing.Message) ([]signing.Field, error)
}

// Challenger is implemented by a [Signer] that signs if an origin asks for it (spec A8).
type Challenger interface {
	Signer
	// Challenge returns how the requests to an origin are signed from now on in a fetch, given its response
	// with status 401, 403 or 429 to a request that was not signed. sign is nil if they stay as they are. ignored says what of the response is
	// not obeyed, for the log; empty: nothing.
	Challenge(status int, header http.Header, request *signing.Message) (sign signing.Func, ignored string)
}

// NewRequest returns a GET without a URL and with the defaults of the profile (spec
// §2, §9 and §12). An unknown profile has those of STANDARD.
func NewRequest(profile classify.Profile) *Request {
	r := &Request{
		Method:         http.MethodGet,
		Policy:         profile.Policy(),
		TotalTimeout:   60 * time.Second,
		AttemptTimeout: 30 * time.Second,
		ConnectTimeout: 10 * time.Second,
		HeaderTimeout:  15 * time.Second,
		IdleTimeout:    15 * time.Second,
		MaxBodyBytes:   defaultMaxBodyBytes,
		HoldBackBytes:  defaultHoldBackBytes,
		ErrorBodyBytes: defaultErrorBodyBytes,
		Integrity:      Integrity{Size: -1},
	}
	if profile == classify.Download { // a large body must not fail because of its size
		r.TotalTimeout, r.AttemptTimeout, r.MaxBodyBytes = 0, 0, defaultServerMaxBytes
	}
	return r
}

// MaxDeliveredBytes returns the maximum length of a body for the delivery, whatever MaxBodyBytes is.
func (r *Request) MaxDeliveredBytes() int64 {
	switch {
	case r.Text != markdown.Off:
		return MaxTextSourceBytes
	case r.Delivery == Inline:
		return MaxInlineBytes
	}
	return math.MaxInt64
}

// bodyLimit returns the maximum length of the body.
func (r *Request) bodyLimit() int64 { return min(r.MaxBodyBytes, r.MaxDeliveredBytes()) }

// deliveredBytes returns the memory of n bytes in the outcome: once for themselves and once for each later copy.
func (r *Request) deliveredBytes(n int) int64 { return int64(1+max(r.InlineCopies, 1)) * int64(n) }

// codingOverhead is how far the encoded bytes may exceed the size limit: a coding adds a
// little to data that does not compress.
const codingOverhead = 64 << 10
