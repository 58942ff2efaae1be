package timeline

import (
	"time"

	pb "fetchd/gen/fetchd/v1"
)

// Fetch is what is known of one fetch. Offsets count from its start.
type Fetch struct {
	// URL of the request.
	URL string
	// Attempts in order. The last one may be unfinished.
	Attempts []Attempt
	// Outcome is nil if the recording ended before it arrived.
	Outcome *pb.FetchOutcome
	// End of the recording, from Start.
	End time.Duration
}

// Attempt is one attempt.
type Attempt struct {
	// Number from 1.
	Number int
	// Start and End, from the start of the fetch.
	Start, End time.Duration
	// Hops in order, the last one included. Empty if no request was started.
	Hops []Hop
	// Error is nil if the attempt succeeded or is unfinished.
	Error *pb.FetchError
	// Decision is nil if the attempt is unfinished.
	Decision *pb.RetryDecision
}

// Status returns the status of the last hop. 0 means that there was no response.
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
	// Method of the request. If the hop is unfinished, it is inferred from the redirect.
	Method string
	// URL of the request, without userinfo.
	URL string
	// Status of the response. 0 means that there was no response.
	Status int
	// Exchange describes the connection; empty if the hop is unfinished.
	Exchange *pb.Exchange
	// Error of the attempt, only in its last hop.
	Error *pb.FetchError
	// Unfinished is true if the recording ended during the hop.
	Unfinished bool
	// Start and End, from the start of the fetch.
	Start, End time.Duration
	// Phases in order, from Start to End without gaps. Phases that did not occur are left out.
	Phases []Phase
}

// Took returns the duration of a phase of the hop, and whether it occurred.
func (h *Hop) Took(k Kind) (time.Duration, bool) {
	for _, p := range h.Phases {
		if p.Kind == k {
			return p.Duration, true
		}
	}
	return 0, false
}

// Phase is a part of a hop.
type Phase struct {
	Kind            Kind
	Start, Duration time.Duration // Start is counted from the start of the fetch
}

// Kind names a phase.
type Kind int

// The phases, in the order in which they occur.
const (
	// Blocked is time of no other phase, such as time in queues.
	Blocked Kind = iota
	// Resolve is the name lookup.
	Resolve
	// Connect is TCP.
	Connect
	// TLS is the handshake.
	TLS
	// Send is sending the request, if that failed.
	Send
	// Wait is the time from a ready connection to the first byte of the response.
	Wait
	// Receive is reading the body, including the time in which the caller does not read.
	Receive

	// Kinds is the number of phases.
	Kinds int = iota
)

var kindNames = [Kinds]string{"blocked", "resolve", "connect", "tls", "send", "wait", "receive"}

// String returns the name of the phase in lower case.
func (k Kind) String() string {
	if k < 0 || int(k) >= Kinds {
		return "unknown"
	}
	return kindNames[k]
}
