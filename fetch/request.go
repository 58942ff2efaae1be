package fetch

import (
	"net/http"
	"net/url"
	"time"

	"fetchd/classify"
	"fetchd/internal/budget"
)

// Limits and defaults of spec §9 and §12.
const (
	MaxURLBytes          = 8 << 10
	MaxHeaderFields      = 64
	MaxHeaderBytes       = 32 << 10
	MaxRequestBodyBytes  = 1 << 20
	MaxInlineBytes       = 1 << 20
	MaxHoldBackBytes     = 16 << 20
	MaxErrorBodyBytes    = 64 << 10
	MaxIdempotencyBytes  = 256
	maxResponseHeadBytes = 64 << 10
	maxConnectionsPerHop = 3
	maxAddresses         = 8 // of a name, that one dial tries

	defaultMaxBodyBytes   = 16 << 20
	defaultErrorBodyBytes = 16 << 10
	defaultHoldBackBytes  = 512 << 10
	defaultMaxTotal       = 15 * time.Minute
	defaultServerMaxBytes = 1 << 40
)

// Delivery says how a body reaches the caller (spec B1, B4).
type Delivery uint8

// The deliveries. The zero value is Stream.
const (
	Stream Delivery = iota // In [BodyChunk] events, after the hold-back.
	Inline                 // Whole, in the outcome.
	Digest                 // Read and hashed, not delivered.
	None                   // Not read.
)

// Scope says where a redirect may lead (spec D4).
type Scope uint8

// The scopes. The zero value is AnyHost.
const (
	AnyHost    Scope = iota
	SameHost         // The host of the first URL.
	SameOrigin       // The scheme, host and port of the first URL.
)

// Level says which events are told (spec §10).
type Level uint8

// The levels. The zero value is Attempts.
const (
	Attempts    Level = iota // Attempts and responses.
	OutcomeOnly              // Only a streamed body, with its ResponseStarted.
	All                      // Redirects as they happen, and the headers of every hop, too.
	Ends                     // [AttemptFinished], and what OutcomeOnly tells.
)

// Request is one fetch. Take one from [NewRequest], which fills in the
// profile's defaults, and change single fields. [Client.Fetch] only reads it.
type Request struct {
	// ID names the fetch in logs, and Labels stand beside it there. Neither is
	// sent.
	ID     string
	Labels map[string]string
	// Caller is the caller's name, as in [OriginTLS.Callers]. It is not sent.
	Caller string
	// Circle is how many fetches of this service led to this one; see
	// [CircleHeader].
	Circle int
	// TraceParent is sent as the header of that name (W3C Trace Context) to the
	// origin of URL, with every attempt and hop, and to no other that a redirect
	// leads to: two origins could tell by it that they saw the same visit. A
	// Traceparent in Header goes before it. Empty means none.
	TraceParent string
	// URL is absolute, http or https; see [ParseURL].
	URL *url.URL
	// Method is one of the methods of spec §12.
	Method string
	// Header is what the caller wants sent, in canonical form and checked; see
	// [CheckHeader]. Nil means nothing.
	Header http.Header
	// Body is kept and sent again on a retry. Nil means none.
	Body []byte

	// Policy says what is retried and when, and how many redirects are followed.
	Policy classify.Policy
	// SetBy says who set the limits, for messages alone.
	SetBy SetBy
	// IdempotencyKey goes out with every attempt; empty means none.
	IdempotencyKey string

	// Scope, ForbidDowngrade and ForwardCredentials refine redirects (spec D4).
	Scope              Scope
	ForbidDowngrade    bool
	ForwardCredentials bool
	// Cookies keeps a jar for this one fetch (spec D7).
	Cookies bool

	// TotalTimeout bounds the fetch with its waits; zero means the server's
	// maximum, and so does more.
	TotalTimeout time.Duration
	// AttemptTimeout bounds one attempt; zero means no limit of its own.
	AttemptTimeout time.Duration
	// ConnectTimeout bounds lookup, TCP and TLS; HeaderTimeout the sending of
	// the request, and then the wait for the response head; IdleTimeout the
	// silence between body bytes. Zero means no limit of its own.
	ConnectTimeout time.Duration
	HeaderTimeout  time.Duration
	IdleTimeout    time.Duration

	// Delivery says what is done with the body of a 2xx response.
	Delivery Delivery
	// MaxBodyBytes is the longest body, decoded or not. [Inline] takes at most
	// [MaxInlineBytes].
	MaxBodyBytes int64
	// Truncate cuts a longer body instead of failing.
	Truncate bool
	// KeepEncoding leaves the content coding as it came.
	KeepEncoding bool
	// HoldBackBytes of a streamed body are kept back until the attempt has ended
	// well (spec B1). Zero means none.
	HoldBackBytes int64
	// ErrorBodyBytes of a body that is not delivered are kept (spec I5).
	ErrorBodyBytes int
	// OmitDigest leaves out the SHA-256 that Integrity does not ask for.
	OmitDigest bool

	// Recovery says what follows a cut once bytes have gone out.
	Recovery Recovery
	// ResumePoint continues an earlier fetch. It is for a streamed GET without a
	// Range of its own; the bytes before it are then not of the digest.
	ResumePoint ResumePoint

	// Credentials are sent to the origins that they cover, and to no other; nil
	// means none. What they send no Header may hold.
	Credentials Credentials

	// Memory is charged for what the fetch holds: heads, hops, bodies for the outcome,
	// buffered bodies and decoder windows. The caller of Fetch closes it. If it refuses a
	// charge, the fetch ends as OUT_OF_MEMORY (spec P7). Nil means no limit.
	Memory *budget.Lease

	// InlineCopies is how often an INLINE body is copied on its way to the caller. Memory
	// is charged for the copies as the body grows. Zero means once.
	InlineCopies int

	// Integrity and Content say what the body must be.
	Integrity Integrity
	Content   Content

	// Events is how much is told.
	Events Level

	// Deep tells that the goroutine that calls [Client.Fetch] has a stack of 8 KiB
	// already, as that of a gRPC call has: where more than 128 fetches are open, this one
	// waits for the head of its response there, and not on a second goroutine. It
	// changes what a fetch takes of memory, and nothing that it does. False suits
	// every caller.
	Deep bool
}

// Integrity says what the decoded body must be (spec C5).
type Integrity struct {
	// SHA256 is 64 hexadecimal digits in lower case; empty means any.
	SHA256 string
	// Size in bytes; negative means any.
	Size int64
}

// Content says what the response must be to be usable (spec C1 to C3).
type Content struct {
	// MediaTypes wanted, such as "text/html" or "text/*", in lower case; empty
	// means any.
	MediaTypes []string
	// RequireBody refuses an empty body.
	RequireBody bool
	// RequireCharset refuses a body that its charset cannot decode.
	RequireCharset bool
}

// NewRequest returns a GET of no URL with the defaults of the profile (spec §2,
// §9 and §12). An unknown profile is taken as STANDARD.
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
	if profile == classify.Download { // a large body must not die of its size
		r.TotalTimeout, r.AttemptTimeout, r.MaxBodyBytes = 0, 0, defaultServerMaxBytes
	}
	return r
}

// bodyLimit is the longest body the delivery takes.
func (r *Request) bodyLimit() int64 {
	if r.Delivery == Inline {
		return min(r.MaxBodyBytes, MaxInlineBytes)
	}
	return r.MaxBodyBytes
}

// conditional tells whether a 304 answers the request (H7).
func conditional(h http.Header) bool {
	return first(h, "If-None-Match") != "" || first(h, "If-Modified-Since") != ""
}
