package timeline

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "fetchd/gen/fetchd/v1"
)

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
