package replicas

import (
	"time"

	"google.golang.org/grpc/codes"

	pb "fetchd/gen/fetchd/v1"
)

// history is everything that happened in a run: every call, and every request that the
// origin received.
type history struct {
	calls    []*call
	requests []seen
	late     time.Duration // by how much the origin may notice a request too late
	// content is the origin's seeded body. The header bodyLabel of an answer names the
	// part of it that is the answer's body, as OFFSET+SIZE.
	content []byte
}

// bodyLabel is the header that distinguishes the bodies of attempts.
const bodyLabel = "X-Body"

// call is a recorded call.
type call struct {
	id      string // also the origin's key in its URL
	kind    string // name of the row, for messages
	request *pb.FetchRequest
	unary   bool

	began, ended time.Time // ended is zero if the call did not end
	code         codes.Code
	events       []event                // of Fetch
	answer       *pb.FetchUnaryResponse // of FetchUnary; nil if there was none

	left   bool // the caller cancelled it
	killed bool // its replica was killed while it was in flight
	// unsure: a connection broke or was closed at the moment when the request was sent.
	// It may be reported although the origin never read it (spec §1). Requests that
	// were read are always reported.
	unsure bool
}

// event is a received event.
type event struct {
	at time.Time
	*pb.FetchEvent
}

// seen is one request at the origin.
type seen struct {
	key          string
	at           time.Time
	method, path string
	broken       bool // the origin broke off its answer
}

// outcomes returns the outcomes that the caller received.
func (c *call) outcomes() []*pb.FetchOutcome {
	var all []*pb.FetchOutcome
	if o := c.answer.GetOutcome(); o != nil {
		all = append(all, o)
	}
	for _, e := range c.events {
		if o := e.GetOutcome(); o != nil {
			all = append(all, o)
		}
	}
	return all
}

// hops returns the hops of all attempts, in order.
func (c *call) hops() []*pb.Hop {
	var all []*pb.Hop
	for _, a := range c.answer.GetAttempts() {
		all = append(all, a.GetHops()...)
	}
	for _, e := range c.events {
		all = append(all, e.GetAttemptFinished().GetHops()...)
	}
	return all
}

// reportsAttempts reports whether the caller asked for more than the outcome.
func (c *call) reportsAttempts() bool {
	return c.request.GetEventLevel() != pb.EventLevel_EVENT_LEVEL_OUTCOME
}

// over returns when the caller knew that the fetch had ended.
func (c *call) over() time.Time {
	for _, e := range c.events {
		if e.GetOutcome() != nil {
			return e.at
		}
	}
	return c.ended
}
