package replicas

import (
	"time"

	"google.golang.org/grpc/codes"

	pb "fetchd/gen/fetchd/v1"
)

// history is what happened in a run: every call, and every request that the
// origin saw.
type history struct {
	calls    []*call
	requests []seen
	// content is the origin's seeded body. An answer says in the header
	// bodyLabel, as OFFSET+SIZE, which part of it its body is.
	content []byte
}

// bodyLabel tells one attempt's body from another's.
const bodyLabel = "X-Body"

// call is one call of a caller.
type call struct {
	id      string // and the origin's key of its URL
	kind    string // of the run's table, for people
	request *pb.FetchRequest
	unary   bool

	began, ended time.Time // ended is zero where the call never did
	code         codes.Code
	events       []event                // of Fetch
	answer       *pb.FetchUnaryResponse // of FetchUnary; nil where there was none

	left   bool // the caller cancelled it
	killed bool // its replica was killed while it was under way
	// unsure: a connection broke, or was given up, at the instant at which the
	// request went out. It may be told though it was never read (spec §1); what
	// was read is always told.
	unsure bool
}

// event is a message as it was received.
type event struct {
	at      time.Time
	message *pb.FetchResponse
}

// seen is one request at the origin.
type seen struct {
	key          string
	at           time.Time
	method, path string
	broken       bool // the origin broke its answer off
}

// outcomes are those that the caller got.
func (c *call) outcomes() []*pb.FetchOutcome {
	var all []*pb.FetchOutcome
	if o := c.answer.GetOutcome(); o != nil {
		all = append(all, o)
	}
	for _, e := range c.events {
		if o := e.message.GetOutcome(); o != nil {
			all = append(all, o)
		}
	}
	return all
}

// hops are those of all attempts, in order.
func (c *call) hops() []*pb.Hop {
	var all []*pb.Hop
	for _, a := range c.answer.GetAttempts() {
		all = append(all, a.GetHops()...)
	}
	for _, e := range c.events {
		all = append(all, e.message.GetAttemptFinished().GetHops()...)
	}
	return all
}

// tellsAttempts: the caller asked for more than the outcome.
func (c *call) tellsAttempts() bool {
	return c.request.GetEventLevel() != pb.EventLevel_EVENT_LEVEL_OUTCOME
}

// over is when the caller knew that the fetch had ended.
func (c *call) over() time.Time {
	for _, e := range c.events {
		if e.message.GetOutcome() != nil {
			return e.at
		}
	}
	return c.ended
}
