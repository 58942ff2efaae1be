package fetch

import (
	"context"
	"net/http"
	"time"

	"fetchd/classify"
	"fetchd/fetch/conns"
	"fetchd/fetch/fault"
)

// Sink receives the events of one fetch, in order and one at a time. It may block: the
// time limits of the attempt are paused meanwhile (spec B7). It may delay an event whose field More
// is true until it receives the next one, or until [Client.Fetch] returns; it must copy the data then. An error ends the fetch as
// CANCELLED, except [ErrOutOfMemory], and the Sink is not called again, except after that
// and [ErrCancelled]. A Sink must not use the data of an event after it
// has returned nil: the memory of a BodyChunk is reused. After an error it is not.
type Sink func(Event) error

// ErrOutOfMemory is the error that a [Sink] returns if it has no memory for an event. While other fetches of
// the caller have hold-backs in the budget of [Request].Memory, the fetch waits, and the sink receives the
// same event again. Otherwise the fetch ends as OUT_OF_MEMORY, and the sink still receives the final events.
var ErrOutOfMemory error = fault.OutOfMemory

// ErrCancelled is the error that a [Sink] returns if it drops an event because the fetch is
// being cancelled. The fetch ends as CANCELLED, unless it has ended otherwise, and the sink
// still receives the final events.
var ErrCancelled error = fault.New(classify.Cancelled, classify.NoPhase, "")

// Observer receives every attempt and every fetch, for metrics and traces. Its methods
// are called concurrently. They must return quickly and must not modify their
// arguments. ctx holds the values of the context passed to [Client.Fetch].
type Observer interface {
	// Attempted is called when an attempt has ended, before the wait that follows.
	Attempted(ctx context.Context, req *Request, e *AttemptFinished)
	// Fetched is called once at the end of each fetch.
	Fetched(ctx context.Context, req *Request, out *Outcome)
}

// Event is one step of a fetch: [AttemptStarted], [RedirectFollowed],
// [ResponseStarted], [BodyChunk] or [AttemptFinished].
type Event interface{ event() }

// AttemptStarted reports the start of an attempt.
type AttemptStarted struct {
	// Attempt is the number of the attempt, starting at 1.
	Attempt int
	// URL is the URL of its first request.
	URL string
}

// RedirectFollowed reports that a redirect is followed. It is emitted only at level
// [All].
type RedirectFollowed struct {
	Attempt int
	Hop     Hop
}

// ResponseStarted reports that the head of an attempt's last response was read.
type ResponseStarted struct {
	Attempt int
	// Response is the response. If the attempt resumes a body, it is the response
	// with which that body started.
	Response *Response
	// URL is the URL of Response, without userinfo.
	URL string
	// BodyOffset is the offset of the first body byte that follows.
	BodyOffset int64
	// HoldBack is the size in bytes of the granted buffer; see [Request].HoldBackBytes.
	HoldBack int64
	// More reports whether the next event follows without a wait: the body has arrived.
	More bool
}

// BodyChunk is a piece of the body.
type BodyChunk struct {
	Attempt int
	// Offset is the offset in bytes of Data in the decoded body.
	Offset int64
	// Data is valid only during the call of the sink; see [Sink].
	Data []byte
	// More reports whether the next event follows without a wait: this is the end of the body.
	More bool
}

// AttemptFinished reports how an attempt ended and what happens next.
type AttemptFinished struct {
	Attempt int
	// Response is the last response as received, such as a 206 that resumes a body. It
	// is nil if the last hop read none.
	Response *Response
	// Failure is nil if the attempt succeeded.
	Failure *Failure
	// Hops lists the hops of the attempt, including the last one.
	Hops []Hop
	// Decision is the result of [classify.Decide].
	Decision classify.Decision
	// More reports whether the next event, or the outcome, follows without a wait.
	More bool
}

func (AttemptStarted) event()   {}
func (RedirectFollowed) event() {}
func (ResponseStarted) event()  {}
func (BodyChunk) event()        {}
func (AttemptFinished) event()  {}

// Response is an HTTP response without its body. Its text comes from an origin: escape
// it before you log it or put it into a proto string.
type Response struct {
	StatusCode int
	// Protocol is for example "HTTP/1.1".
	Protocol string
	Header   http.Header
	// ContentLength is in bytes. It is negative if unknown.
	ContentLength int64
}

// Hop is one request of an attempt's redirect chain.
type Hop struct {
	Method, URL string
	// StatusCode is 0 if no response was read.
	StatusCode int
	// LocationURL is absolute. It is empty if there was no valid Location.
	LocationURL string
	// Start is the time from the start of the fetch to that of the hop.
	Start time.Duration
	// Header is the response header. It is set only in [RedirectFollowed].
	Header http.Header
	// Exchange describes how the request was sent.
	Exchange Exchange
}

// Exchange describes how a request was sent and its response received.
type Exchange = conns.Report

// TLSDetails describe the TLS handshake with an origin.
type TLSDetails = conns.TLSDetails

// Certificate describes the certificate of an origin.
type Certificate = conns.Certificate

// Failure describes why an attempt or a fetch failed.
type Failure struct {
	Class       classify.Class
	FailureType classify.FailureType
	Rule        classify.Rule
	// Reason is a more specific cause in lower_snake_case. New values may be added. It
	// may be empty.
	Reason string
	// Message is for people. It contains no bytes from the origin.
	Message string
	// Detail is for people. It contains the transport's error, the host and, if there
	// was a response, its status. It may contain bytes from the origin. It is one line
	// of at most [MaxDetailBytes], with unprintable characters escaped, and may be
	// empty.
	Detail string
	Phase  classify.Phase
	// Policy is the policy of [Request].Egress that forbids the target, and PolicyRule the rule of it.
	// Both are empty with another failure, and if the policy of the client forbids the target.
	Policy, PolicyRule string
	// URL is the URL of the hop that failed.
	URL string
	// Retryable reports whether a later fetch of the same request may succeed, and may be sent.
	Retryable bool
	// Request is what is known about the requests of the fetch so far.
	Request classify.RequestState
	// RetryAfter is the wait that the origin asked for. It is valid if HasRetryAfter
	// is set.
	RetryAfter    time.Duration
	HasRetryAfter bool
}

// Outcome is the result of a fetch.
type Outcome struct {
	Kind classify.Kind
	// FinalURL is the URL of Response, or the last URL tried.
	FinalURL string
	// Response is the last response of any attempt, and ResponseAttempt the number of
	// that attempt. They are nil and 0 if there was none (spec I5). If the last response
	// resumed a body, Response is the one with which the body started (spec B2).
	Response        *Response
	ResponseAttempt int
	// Failure is set if and only if Kind is [classify.Failed].
	Failure *Failure
	// StopReason is set if Failure is.
	StopReason classify.Verdict
	// Rule is the rule that ended the fetch.
	Rule classify.Rule
	// Attempts is the number of attempts. Exchanges is the number of hops, in all
	// attempts, whose request was sent.
	Attempts, Exchanges int
	// Redirects is the greatest number of redirects that a chain of requests followed (D1).
	Redirects int
	// Hops lists the hops of the last attempt.
	Hops []Hop
	// InlineBody is the body if the delivery is [Inline], or [Auto] and the body is small.
	InlineBody []byte
	// Text describes the text in InlineBody if [Request].Text asks for one. It is nil if the fetch did not
	// succeed, and if the response has no body.
	Text *TextSummary
	// Stored is where the body is if the delivery is [Store]. It is nil if the fetch did not
	// succeed, and if the response has no body.
	Stored *StoredObject
	// ErrorBody is the start of a body that was not delivered (spec I5). Its maximum
	// size is [Request].ErrorBodyBytes.
	ErrorBody []byte
	Body      BodySummary
	// Records are those of all attempts, in order. They are empty if nothing is recorded.
	Records []Record
	// RateLimits are those of the last response, at most 16.
	RateLimits []RateLimit
	// Total is the duration of the fetch.
	Total time.Duration
}

// BodySummary describes the body of the last attempt (spec B5).
type BodySummary struct {
	// Size is the number of bytes delivered or, if the body is not delivered, read.
	Size int64
	// SHA256 is in hexadecimal. It is empty if no digest was computed.
	SHA256 string
	// Truncated reports whether the body was longer than the limit and was truncated.
	Truncated bool
	// EncodedSize is the number of bytes received, before content decoding.
	EncodedSize int64
	// PartialContent reports whether the body is only a part of the whole: a 206 that does not
	// contain everything. It is false for a body that was continued to its end.
	PartialContent bool
	// UnrequestedData reports whether more bytes followed the body, on a connection of HTTP/1.1
	// that had carried another request. The body, of which bytes were delivered before that was
	// known, may be that of another response (spec B5).
	UnrequestedData bool
	// LengthKnown reports whether the origin marked the end of the body, by length or
	// framing.
	LengthKnown bool
}
