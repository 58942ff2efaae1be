package timeline

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/cmd/fetchctl/show"
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

// divide sets the phases of a hop that ends no earlier than end. If the measured phases are
// longer, the hop ends later: they are exact, and the clocks of messages and hops start some
// microseconds apart.
func (h *Hop) divide(end time.Duration) {
	x := h.Exchange
	measured := [Kinds]*durationpb.Duration{
		Resolve: x.GetResolveDuration(), Connect: x.GetConnectDuration(),
		TLS: x.GetTlsDuration(), Wait: x.GetProcessingDuration(), Receive: x.GetTransferDuration(),
	}
	var took [Kinds]time.Duration
	var sum time.Duration
	for k, d := range measured {
		took[k] = span(d)
		sum += took[k]
	}
	h.End = max(end, h.Start+sum)
	if rest := h.End - h.Start - sum; rest > 0 {
		took[h.restKind()] += rest
	}
	at := h.Start
	for k, d := range took {
		if d == 0 && measured[k] == nil {
			continue
		}
		h.Phases = append(h.Phases, Phase{Kind(k), at, d})
		at += d
	}
}

// restKind returns the phase to which the time that was not measured is added.
func (h *Hop) restKind() Kind {
	switch {
	case h.Unfinished && h.Status != 0:
		return Receive
	case h.Unfinished:
		return Blocked
	case h.Status == 0:
		return failedIn(h.Error.GetPhase())
	case h.Exchange.GetTransferDuration() == nil:
		return Receive
	}
	return Blocked
}

func failedIn(p pb.Phase) Kind {
	switch p {
	case pb.Phase_PHASE_RESOLVE:
		return Resolve
	case pb.Phase_PHASE_CONNECT:
		return Connect
	case pb.Phase_PHASE_TLS:
		return TLS
	case pb.Phase_PHASE_REQUEST:
		return Send
	case pb.Phase_PHASE_PROCESSING:
		return Wait
	case pb.Phase_PHASE_TRANSFER:
		return Receive
	}
	return Blocked
}

// span returns a time that a service says. One that no fetch has is cut: below 0, and above a day.
func span(d *durationpb.Duration) time.Duration {
	const most = 24 * time.Hour
	return min(max(d.AsDuration(), 0), most)
}

// Next returns the decision after the attempt, such as "retry in 200ms (W1 backoff)".
func (a *Attempt) Next() string {
	if a.Decision == nil {
		return "in flight when the record ended"
	}
	return show.Decision(a.Decision)
}
