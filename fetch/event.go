package fetch

import (
	"context"
	"net/http"
	"time"

	"fetchd/classify"
)

// Sink takes the events of one fetch, in order, one at a time. It may block:
// that time is the caller's and counts as back-pressure (spec B7). An error
// ends the fetch as CANCELLED. It must not keep what it is given beyond the
// call, a BodyChunk's data above all.
type Sink func(Event) error

// Observer is told of fetches for the sake of figures. It is called from many
// goroutines, must return soon, and must change nothing it is given. ctx holds the
// values of the caller's.
type Observer interface {
	// Attempted is told of each attempt as it is settled, before its wait.
	Attempted(ctx context.Context, req *Request, e *AttemptFinished)
	// Fetched is told of each fetch at its end, once.
	Fetched(ctx context.Context, req *Request, out *Outcome)
}

// Event is one step of a fetch: [AttemptStarted], [RedirectFollowed],
// [ResponseStarted], [BodyChunk] or [AttemptFinished].
type Event interface{ event() }

// AttemptStarted says that an attempt begins.
type AttemptStarted struct {
	// Attempt is its number, from 1.
	Attempt int
	// URL of its first request.
	URL string
}

// RedirectFollowed says that a redirect is followed; told at level [All].
type RedirectFollowed struct {
	Attempt int
	Hop     Hop
}

// ResponseStarted says that the head of an attempt's last response was read.
type ResponseStarted struct {
	Attempt int
	// Response of an attempt that continues a body is the one that began the body.
	Response *Response
	// BodyOffset is that of the first body byte that follows.
	BodyOffset int64
	// HoldBack is what was granted, in bytes.
	HoldBack int64
}

// BodyChunk is a piece of the body.
type BodyChunk struct {
	Attempt int
	// Offset of the first byte of Data.
	Offset int64
	// Data is only valid during the call of the sink.
	Data []byte
}

// AttemptFinished says how an attempt ended and what follows.
type AttemptFinished struct {
	Attempt int
	// Response is the last one as it was received, such as a 206 that continues a
	// body; nil where the last hop read none.
	Response *Response
	// Failure is nil where nothing went wrong.
	Failure *Failure
	// Hops of the attempt, the last one included.
	Hops []Hop
	// Decision is classify's.
	Decision classify.Decision
}

func (AttemptStarted) event()   {}
func (RedirectFollowed) event() {}
func (ResponseStarted) event()  {}
func (BodyChunk) event()        {}
func (AttemptFinished) event()  {}

// Response is an HTTP response without its body. Its text came from an origin:
// escape it before it goes into a log or a proto string.
type Response struct {
	StatusCode int
	// Protocol is such as "HTTP/1.1".
	Protocol string
	Header   http.Header
	// ContentLength in bytes; negative where it was not told.
	ContentLength int64
}

// Hop is one request of an attempt's redirect chain.
type Hop struct {
	Method, URL string
	// StatusCode is 0 where no response was read.
	StatusCode int
	// LocationURL is absolute; empty where there was none, or none usable.
	LocationURL string
	// Start counts from the begin of the fetch.
	Start time.Duration
	// Header of the response, in [RedirectFollowed] alone.
	Header http.Header
	// Exchange says how it was carried.
	Exchange Exchange
}

// Exchange says how one request was carried. A duration is zero where its
// phase did not happen.
type Exchange struct {
	RemoteAddress string
	// Protocol is such as "HTTP/1.1"; empty where no response was read.
	Protocol string
	// TLSVersion is such as "TLS 1.3"; empty without TLS.
	TLSVersion string
	// Reused tells that the connection had carried a request before.
	Reused bool
	// Resends by the transport on its own (spec I6).
	Resends int
	// Requests that the origin could see: 0, or 1 and the resends.
	Requests int

	Resolve, Connect, TLS, Processing, Transfer, Backpressure time.Duration
}

// Failure says why an attempt or a fetch failed.
type Failure struct {
	Class       classify.Class
	FailureType classify.FailureType
	Rule        classify.Rule
	// Reason is a finer cause in lower_snake_case, an open set; it may be empty.
	Reason string
	// Message is for people. It holds no byte of the origin's.
	Message string
	// Detail says for people what happened, in the words of the transport, with the
	// host and, where there was a response, its status. It may hold bytes of the origin's.
	// It is one line of at most [MaxDetailBytes], with what does not print escaped;
	// empty where there is nothing to add.
	Detail string
	Phase  classify.Phase
	// URL of the hop that failed.
	URL string
	// Retryable: a later fetch of the same request may succeed.
	Retryable bool
	// RetryAfter is what the origin asked for, if HasRetryAfter.
	RetryAfter    time.Duration
	HasRetryAfter bool
}

// Outcome is how a fetch ended.
type Outcome struct {
	Kind classify.Kind
	// FinalURL is that of Response, or the last URL tried.
	FinalURL string
	// Response is the last that any attempt got, and ResponseAttempt the number
	// of that attempt; nil and 0 where none did (spec I5). In place of an answer that
	// continues a body it is the response that began the body (spec B2).
	Response        *Response
	ResponseAttempt int
	// Failure is set if and only if Kind is classify.Failed.
	Failure *Failure
	// StopReason is set with Failure, and Rule beside it.
	StopReason classify.Verdict
	// Rule that ended the fetch.
	Rule classify.Rule
	// Attempts and Exchanges were made.
	Attempts, Exchanges int
	// Hops of the last attempt.
	Hops []Hop
	// InlineBody is the body where the delivery is [Inline].
	InlineBody []byte
	// ErrorBody is the begin of a body that was not delivered (spec I5).
	ErrorBody []byte
	Body      BodySummary
	// Total is the time from the begin of the fetch.
	Total time.Duration
}

// BodySummary states facts about the body of the last attempt (spec B5).
type BodySummary struct {
	// Size in bytes as delivered or, where none was, as read.
	Size int64
	// SHA256 in hexadecimal; empty where nothing was hashed.
	SHA256 string
	// Truncated tells that the body went on but the limit cut it.
	Truncated bool
	// EncodedSize is the size on the wire, before content decoding.
	EncodedSize int64
	// LengthKnown tells that the origin said where the body ends.
	LengthKnown bool
}
