package timeline

import (
	"time"

	pb "fetchd/gen/fetchd/v1"
)

// Fetch is one fetch as far as its messages tell. Offsets count from its begin.
type Fetch struct {
	// ID names the fetch in the service's logs. Empty where it was not told.
	ID string
	// URL that was asked for.
	URL string
	// Start is when the fetch began, by the service's clock. Zero where it was
	// not told: at event level OUTCOME, or before the first message.
	Start time.Time
	// Attempts in order. The last one may be under way.
	Attempts []Attempt
	// Outcome is nil where the record ended before it came.
	Outcome *pb.FetchOutcome
	// End of what is known, from Start.
	End time.Duration
}

// Attempt is one attempt.
type Attempt struct {
	// Number from 1.
	Number int
	// Start and End, from the begin of the fetch.
	Start, End time.Duration
	// Hops in order, the last one included. Empty where no request was begun.
	Hops []Hop
	// Error is nil where nothing went wrong, or the attempt is under way.
	Error *pb.FetchError
	// Decision is nil where the attempt is under way.
	Decision *pb.RetryDecision
}

// Status is that of the last hop. 0 means that there was no response.
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
	// Method asked with. Of a hop that is under way it is inferred from the
	// redirect that led there.
	Method string
	// URL asked, without userinfo.
	URL string
	// Status of the response. 0 means that there was none.
	Status int
	// Location is the absolute URL that a redirect names; empty where there was none.
	Location string
	// Headers of the response. Empty where there was none, and for redirects
	// below event level ALL.
	Headers []*pb.Header
	// Exchange says how the request was carried; empty while it is under way.
	Exchange *pb.Exchange
	// Error of the attempt, at its last hop.
	Error *pb.FetchError
	// Unfinished: the record ended while the hop was under way.
	Unfinished bool
	// Start and End, from the begin of the fetch.
	Start, End time.Duration
	// Phases in order, one after the other from Start to End. Those that did not
	// happen are left out.
	Phases []Phase
	// Body of the response, as far as it was told.
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

// Body is what is known of a response's body.
type Body struct {
	// Size in bytes after decoding, as delivered or read by this hop.
	Size int64
	// EncodedSize in bytes as received. -1 means not known.
	EncodedSize int64
	// Kept bytes: all, where Size is len(Kept). None unless the recorder keeps them.
	Kept []byte
}

// Phase is a part of a hop.
type Phase struct {
	Kind            Kind
	Start, Duration time.Duration // Start from the begin of the fetch
}

// Kind names a phase.
type Kind int

// The phases, in the order in which they happen.
const (
	// Blocked is time in queues, and what no other phase accounts for.
	Blocked Kind = iota
	// Resolve is the name lookup.
	Resolve
	// Connect is TCP.
	Connect
	// TLS is the handshake.
	TLS
	// Send is the sending of the request, where it failed.
	Send
	// Wait is from the connection ready to the first byte of the response.
	Wait
	// Receive is the reading of the body, the caller's time included.
	Receive

	// Kinds is how many there are.
	Kinds int = iota
)

// String is the name of the phase in lower case.
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
