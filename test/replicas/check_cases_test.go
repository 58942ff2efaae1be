package replicas

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "fetchd/gen/fetchd/v1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// at returns a time in a handwritten history.
func at(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }

const (
	streamCall = iota
	unaryCall
	leftCall
	killedCall
)

// good returns a history without a fault: a stream of two attempts with different bodies, a
// unary call, a call that its caller cancelled, and one whose replica was killed.
func good() *history {
	h := &history{content: []byte("first body, second body")}
	h.calls = []*call{
		{id: "stream", request: &pb.FetchRequest{}, began: at(0), ended: at(32), events: number([]event{
			admitted(0), started(1, 1), response(5, 1, "0+11"), finished(9, 1),
			started(20, 2), response(25, 2, "12+11"), chunk(28, 2, 0, "second"), chunk(29, 2, 6, " body"), finished(30, 2),
			ended(31, 2, 2, "second body"),
		})},
		{id: "unary", request: &pb.FetchRequest{}, unary: true, began: at(0), ended: at(10), answer: &pb.FetchUnaryResponse{
			Attempts: []*pb.AttemptFinished{{Attempt: 1, Hops: hop("unary")}, {Attempt: 2, Hops: hop("unary")}},
			Outcome:  unaryOutcome(2, 2, "0+11", "first body,"),
		}},
		{id: "left", request: &pb.FetchRequest{}, began: at(0), ended: at(15), code: codes.Canceled, left: true,
			events: number([]event{admitted(0), started(1, 1)})},
		{id: "killed", request: &pb.FetchRequest{}, began: at(0), ended: at(15), code: codes.Unavailable, killed: true,
			events: number([]event{admitted(0), started(1, 1), response(3, 1, "0+11"), chunk(4, 1, 0, "first")})},
	}
	h.requests = []seen{get("stream", 2), get("stream", 21), get("unary", 1), get("unary", 3), get("left", 2), get("killed", 2)}
	return h
}

// get returns a request that the origin answered, and hop the report of it.
func get(key string, ms int) seen { return seen{key, at(ms), "GET", "/" + key, false} }

func hop(key string) []*pb.Hop {
	return []*pb.Hop{{Method: "GET", Url: "http://origin.example/" + key, StatusCode: 200}}
}

func number(events []event) []event {
	for i := range events {
		events[i].Sequence = int64(i) + 1
	}
	return events
}

func admitted(ms int) event {
	return event{at(ms), &pb.FetchEvent{Event: &pb.FetchEvent_Admitted{Admitted: &pb.Admitted{}}}}
}

func started(ms int, attempt int32) event {
	return event{at(ms), &pb.FetchEvent{Event: &pb.FetchEvent_AttemptStarted{AttemptStarted: &pb.AttemptStarted{Attempt: attempt}}}}
}

func finished(ms int, attempt int32) event {
	return event{at(ms), &pb.FetchEvent{Event: &pb.FetchEvent_AttemptFinished{AttemptFinished: &pb.AttemptFinished{Attempt: attempt, Hops: hop("stream")}}}}
}

func labelled(label string) *pb.HttpResponse {
	return &pb.HttpResponse{StatusCode: 200, Headers: []*pb.Header{{Name: bodyLabel, Value: label}}}
}

func response(ms int, attempt int32, label string) event {
	return event{at(ms), &pb.FetchEvent{Event: &pb.FetchEvent_ResponseStarted{
		ResponseStarted: &pb.ResponseStarted{Attempt: attempt, Response: labelled(label)}}}}
}

func chunk(ms int, attempt int32, offset int64, data string) event {
	return event{at(ms), &pb.FetchEvent{Event: &pb.FetchEvent_BodyChunk{
		BodyChunk: &pb.BodyChunk{Attempt: attempt, OffsetBytes: offset, Data: []byte(data)}}}}
}

// succeeded returns the outcome of a fetch whose last attempt succeeded.
func succeeded(attempts, exchanges int32, text string) *pb.FetchOutcome {
	sum := sha256.Sum256([]byte(text))
	return &pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS, AttemptCount: attempts, ExchangeCount: exchanges, ResponseAttempt: attempts,
		BodySummary: &pb.BodySummary{SizeBytes: int64(len(text)), Sha256: hex.EncodeToString(sum[:])}}
}

func ended(ms int, attempts, exchanges int32, text string) event {
	return event{at(ms), &pb.FetchEvent{Event: &pb.FetchEvent_Outcome{Outcome: succeeded(attempts, exchanges, text)}}}
}

func unaryOutcome(attempts, exchanges int32, label, text string) *pb.FetchOutcome {
	o := succeeded(attempts, exchanges, text)
	o.Response, o.Body = labelled(label), inline(text)
	return o
}

func inline(text string) *pb.FetchOutcome_InlineBody {
	return &pb.FetchOutcome_InlineBody{InlineBody: []byte(text)}
}

// drop removes event i and renumbers the others.
func (c *call) drop(i int) { c.events = number(slices.Delete(c.events, i, i+1)) }

// end returns the outcome of the call.
func (c *call) end() *pb.FetchOutcome { return c.outcomes()[0] }

// TestCheck breaks a good history in one way per row.
func TestCheck(t *testing.T) {
	for _, row := range []struct {
		name  string
		want  property // empty: none is violated
		spoil func(h *history, stream, unary *call)
	}{
		{"a good one", "", func(*history, *call, *call) {}},
		{"a call that does not end", ends, func(_ *history, s, _ *call) { s.ended = time.Time{} }},
		{"no outcome in a stream", outcome, func(_ *history, s, _ *call) { s.drop(9) }},
		{"no outcome in an answer", outcome, func(_ *history, _, u *call) { u.answer.Outcome = nil }},
		{"an outcome in a call that is not OK", outcome, func(_ *history, s, _ *call) { s.code = codes.Unavailable }},
		{"an outcome, and then the replica is killed", "", func(_ *history, s, _ *call) { s.code, s.killed = codes.Unavailable, true }},
		{"an outcome, and then the caller leaves", "", func(_ *history, s, _ *call) { s.code, s.left = codes.Canceled, true }},
		{"two outcomes", outcome, func(_ *history, s, _ *call) { s.events = number(append(s.events, ended(31, 2, 2, "second body"))) }},
		{"two outcomes of a call that its caller left", outcome, func(_ *history, s, _ *call) {
			s.events, s.left = number(append(s.events, ended(31, 2, 2, "second body"))), true
		}},
		{"a heartbeat after the outcome", last, func(_ *history, s, _ *call) {
			s.events = number(append(s.events, event{at(31), &pb.FetchEvent{Event: &pb.FetchEvent_Heartbeat{Heartbeat: &pb.Heartbeat{}}}}))
		}},
		{"a heartbeat before it", "", func(_ *history, s, _ *call) {
			s.events = number(slices.Insert(s.events, 9, event{at(30), &pb.FetchEvent{Event: &pb.FetchEvent_Heartbeat{Heartbeat: &pb.Heartbeat{}}}}))
		}},
		{"a gap in the sequence", sequence, func(_ *history, s, _ *call) { s.events[4].Sequence = 6 }},
		{"a sequence that begins at 0", sequence, func(_ *history, s, _ *call) { s.events[0].Sequence = 0 }},
		{"a number twice", sequence, func(_ *history, s, _ *call) { s.events[5].Sequence = 5 }},
		{"an attempt left out", attempts, func(_ *history, s, _ *call) { s.events[4].GetAttemptStarted().Attempt = 3 }},
		{"an attempt that does not end", attempts, func(_ *history, s, _ *call) { s.drop(3) }},
		{"a last attempt that does not end", attempts, func(_ *history, s, _ *call) { s.drop(8) }},
		{"an attempt that did not start", attempts, func(_ *history, s, _ *call) { s.drop(1) }},
		{"an attempt that the answer leaves out", attempts, func(_ *history, _, u *call) { u.answer.Attempts = u.answer.Attempts[1:] }},
		{"attempts that the outcome counts wrong", attempts, func(_ *history, _, u *call) { u.end().AttemptCount, u.end().ResponseAttempt = 3, 2 }},
		{"attempts at event level OUTCOME", "", func(_ *history, _, u *call) {
			u.answer.Attempts, u.request.EventLevel = nil, pb.EventLevel_EVENT_LEVEL_OUTCOME
		}},
		{"an exchange that is not reported", exchanges, func(h *history, _, _ *call) { h.requests = append(h.requests, get("stream", 22)) }},
		{"an exchange that is not reported, of an unsure call", exchanges, func(h *history, s, _ *call) {
			h.requests, s.unsure = append(h.requests, get("stream", 22)), true
		}},
		{"an exchange that did not happen", exchanges, func(_ *history, s, _ *call) { s.end().ExchangeCount = 3 }},
		{"an exchange that the origin did not read, of an unsure call", "", func(_ *history, s, _ *call) { s.end().ExchangeCount, s.unsure = 3, true }},
		{"a hop that did not happen", hops, func(_ *history, _, u *call) { u.answer.Attempts[0].Hops[0].Url = "http://origin.example/other" }},
		{"a hop of another method", hops, func(_ *history, s, _ *call) { s.events[3].GetAttemptFinished().Hops[0].Method = "HEAD" }},
		{"a request that no hop reports", hops, func(h *history, _, u *call) {
			h.requests[2].path, u.answer.Attempts[0].Hops[0].StatusCode = "/elsewhere", 0
		}},
		{"a request without a response", "", func(_ *history, _, u *call) { u.answer.Attempts[0].Hops[0].StatusCode = 0 }},
		{"a hop that was not sent", "", func(_ *history, _, u *call) {
			u.answer.Attempts[0].Hops = append(u.answer.Attempts[0].Hops, &pb.Hop{Method: "GET", Url: "http://origin.example/unary"})
		}},
		{"a request that was sent again", hops, func(h *history, _, u *call) {
			h.requests, u.end().ExchangeCount = slices.Insert(h.requests, 3, get("unary", 2)), 3
		}},
		{"a success that was broken off", whole, func(h *history, _, _ *call) { h.requests[1].broken = true }},
		{"a success after an interruption", "", func(h *history, _, _ *call) { h.requests[0].broken = true }},
		{"a success without a request", whole, func(h *history, _, u *call) {
			h.requests, u.end().ExchangeCount = slices.Delete(h.requests, 2, 4), 0
			u.answer.Attempts[0].Hops, u.answer.Attempts[1].Hops = nil, nil
		}},
		{"a chunk that is missing", chunks, func(_ *history, s, _ *call) { s.drop(6) }},
		{"a duplicate chunk", chunks, func(_ *history, s, _ *call) {
			s.events = number(slices.Insert(s.events, 7, chunk(28, 2, 0, "second")))
		}},
		{"a chunk of another attempt", chunks, func(_ *history, s, _ *call) {
			s.events = number(slices.Insert(s.events, 3, chunk(6, 1, 0, "second")))
		}},
		{"bytes of another attempt", body, func(_ *history, s, _ *call) { s.events[6].GetBodyChunk().Data = []byte("first ") }},
		{"bytes of another attempt, before the kill", body, func(h *history, _, _ *call) {
			h.calls[killedCall].events[3].GetBodyChunk().Data = []byte("second")
		}},
		{"a body that is short", body, func(_ *history, s, _ *call) { s.drop(7) }},
		{"a body that is short in an answer", body, func(_ *history, _, u *call) { u.end().Body = inline("first") }},
		{"a size that is wrong", body, func(_ *history, s, _ *call) { s.end().BodySummary.SizeBytes++ }},
		{"a digest that is wrong", body, func(_ *history, _, u *call) { u.end().BodySummary.Sha256 = "00" }},
		{"a response of another attempt", body, func(_ *history, s, _ *call) { s.end().ResponseAttempt = 1 }},
		{"a request long after the outcome", quiet, func(h *history, _, _ *call) { h.requests[1].at = at(31 + 251) }},
		{"a request soon after the outcome", "", func(h *history, _, _ *call) { h.requests[1].at = at(31 + 249) }},
		{"a request long after the caller cancelled", quiet, func(h *history, _, _ *call) { h.requests[4].at = at(15 + 251) }},
		{"a request of no call", known, func(h *history, _, _ *call) { h.requests = append(h.requests, get("nobody", 1)) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := good()
			row.spoil(h, h.calls[streamCall], h.calls[unaryCall])
			var got []property
			for _, v := range check(h) {
				if got = append(got, v.property); v.call == "" || v.text == "" {
					t.Errorf("violation %+v has empty fields", v)
				}
			}
			if row.want == "" && len(got) > 0 || row.want != "" && !slices.Equal(got, []property{row.want}) {
				t.Errorf("violated: %q, want only %q", got, row.want)
			}
		})
	}
}
