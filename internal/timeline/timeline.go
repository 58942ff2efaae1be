package timeline

import (
	"time"

	pb "fetchd/gen/fetchd/v1"
)

// Fetch is one fetch as far as its events describe it. Offsets count from its start.
type Fetch struct {
	// ID of the fetch in the logs of the service. Empty if unknown.
	ID string
	// URL of the request.
	URL string
	// Start of the fetch, by the clock of the service. Zero if unknown: at event level
	// OUTCOME, or before the first event.
	Start time.Time
	// Attempts in order. The last one may be in flight.
	Attempts []Attempt
	// Outcome is nil if the record ended before it.
	Outcome *pb.FetchOutcome
	// End of the record, from Start.
	End time.Duration
}

// Attempt is one attempt.
type Attempt struct {
	// Number from 1.
	Number int
	// Start and End, from the start of the fetch.
	Start, End time.Duration
	// Hops in order, including the last one. Empty if no request was started.
	Hops []Hop
	// Error is nil if nothing failed or the attempt is in flight.
	Error *pb.FetchError
	// Decision is nil while the attempt is in flight.
	Decision *pb.RetryDecision
}

// Status returns the status of the last hop, or 0 if there was no response.
func (a *Attempt) Status() int {
	if len(a.Hops) == 0 {
		return 0
	}
	return a.Hops[len(a.Hops)-1].Status
}

// Hop is one request of an attempt, and its response.
type Hop struct {
	// Number within the attempt, from 1.
	Number int
	// Method of the request. For a hop in flight it is inferred from the redirect before
	// it.
	Method string
	// URL of the request, without userinfo.
	URL string
	// Status of the response, or 0 if there was none.
	Status int
	// Location is the absolute target of a redirect, or "".
	Location string
	// Headers of the response. Empty without a response, and for redirects below event
	// level ALL.
	Headers []*pb.Header
	// Exchange describes the connection; empty while the hop is in flight.
	Exchange *pb.Exchange
	// Error of the attempt, at its last hop.
	Error *pb.FetchError
	// Unfinished reports whether the record ended during the hop.
	Unfinished bool
	// Start and End, from the start of the fetch.
	Start, End time.Duration
	// Phases in order, without gaps from Start to End. Phases that did not happen are left
	// out.
	Phases []Phase
	// Body of the response, as far as known.
	Body Body
}

// Took returns how long a phase of the hop took, and whether it happened.
func (h *Hop) Took(k Kind) (time.Duration, bool) {
	for _, p := range h.Phases {
		if p.Kind == k {
			return p.Duration, true
		}
	}
	return 0, false
}

// Body is what is known about the body of a response.
type Body struct {
	// Size in bytes after decoding, as delivered or read by this hop.
	Size int64
	// EncodedSize in bytes as received, or -1 if unknown.
	EncodedSize int64
	// Kept has the stored bytes: all of them if Size is len(Kept).
	Kept []byte
}

// Phase is a part of a hop.
type Phase struct {
	Kind            Kind
	Start, Duration time.Duration // Start is from the start of the fetch
}

// Kind is the kind of a phase.
type Kind int

// The phases, in the order in which they happen.
const (
	// Blocked is the time in queues, and the time that belongs to no other phase.
	Blocked Kind = iota
	// Resolve is the name lookup.
	Resolve
	// Connect is TCP.
	Connect
	// TLS is the handshake.
	TLS
	// Send is the sending of the request, if that failed.
	Send
	// Wait is from the ready connection to the first byte of the response.
	Wait
	// Receive is the reading of the body, including the time of the caller.
	Receive

	// Kinds is the number of kinds.
	Kinds int = iota
)

// String returns the name of the phase in lower case.
func (k Kind) String() string {
	switch k {
	case Blocked:
		return "blocked"
	case Resolve:
		return "resolve"
	case Connect:
		return "connect"
	case TLS:
		return "tls"
	case Send:
		return "send"
	case Wait:
		return "wait"
	case Receive:
		return "receive"
	}
	return "unknown"
}
