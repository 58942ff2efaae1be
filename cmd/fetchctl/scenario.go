package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/origin"
)

// scenario is one story of the demo: what is asked of which origin, and what
// must hold.
type scenario struct {
	name  string
	story string
	// at is the origin's listener; path its script, in which KEY stands for the
	// name by which the origin counts the requests.
	at, path string
	// ask is the request without its URL; nil asks for nothing special.
	ask *pb.FetchRequest
	// deadline is that of the RPC; zero means none.
	deadline time.Duration
	want     expectation
	// breaks are the rules that the scenario shows, and for each a script that
	// gives the rule no occasion.
	breaks []breakage

	changed string // what a breakage changed; empty: nothing
}

// expectation is what must hold, of the outcome and of what the origin saw.
type expectation struct {
	kind       pb.OutcomeKind
	class      pb.ErrorClass
	rule       string // that classified the failure
	failure    pb.FailureType
	retryable  bool
	stop       pb.RetryVerdict
	retryAfter time.Duration
	waits      []wait // between the attempts: one less than there are
	requests   int    // that the origin saw
	final      string // path of the final URL; empty: the path asked
	body       int64  // bytes of the origin's body; it is compared
	key        string // Idempotency-Key of every request; empty: none
}

// wait is one decided delay.
type wait struct {
	delay  time.Duration
	source pb.DelaySource
	rule   string
}

// breakage is how a rule loses its occasion.
type breakage struct {
	rule string
	what string // the origin does instead
	path string // in place of the scenario's
	at   string // in place of the scenario's; empty: the same
}

// rules are those that the scenario shows.
func (s *scenario) rules() []string {
	rules := make([]string, len(s.breaks))
	for i, b := range s.breaks {
		rules[i] = b.rule
	}
	return rules
}

// key is the name by which the origin counts the requests of the scenario.
func (s *scenario) key() string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == ',' || r == '/' {
			return '-'
		}
		return r
	}, s.name)
}

// url is the absolute URL of a path of the scenario.
func (s *scenario) url(o *origin.Origin, path string) string {
	return o.URL(s.at, strings.ReplaceAll(path, "KEY", s.key()))
}

// rulesOf are the rules that any of the scenarios shows.
func rulesOf(all []scenario) []string {
	var rules []string
	for i := range all {
		rules = append(rules, all[i].rules()...)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// broken returns the scenarios about a rule, each with its script changed so
// that the rule has no occasion. What must hold stays the same.
func broken(all []scenario, rule string) []scenario {
	var chosen []scenario
	for _, s := range all {
		for _, b := range s.breaks {
			if b.rule != rule {
				continue
			}
			s.path, s.changed = b.path, b.what
			if b.at != "" {
				s.at = b.at
			}
			chosen = append(chosen, s)
			break
		}
	}
	return chosen
}

// record is what came of a scenario, by both sides.
type record struct {
	outcome  *pb.FetchOutcome // nil where err is set
	err      error            // of the RPC
	finished []*pb.AttemptFinished
	body     []byte
	requests []origin.Request
	spent    time.Duration
}

// perform carries out a scenario and gives each event to tell.
func (d *demo) perform(ctx context.Context, s *scenario, tell func(*pb.FetchResponse)) *record {
	begun := time.Now()
	if s.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.deadline)
		defer cancel()
	}
	req := new(pb.FetchRequest)
	if s.ask != nil {
		proto.Merge(req, s.ask)
	}
	req.Url, req.EventLevel = s.url(d.origin, s.path), pb.EventLevel_EVENT_LEVEL_ALL
	rec := new(record)
	stream, err := d.service.Fetch(ctx, req)
	if err == nil {
		rec.outcome, err = follow(stream, func(m *pb.FetchResponse) error {
			rec.take(m)
			tell(m)
			return nil
		})
	}
	rec.err, rec.spent = err, time.Since(begun)
	rec.requests = d.origin.Requests(s.key())
	return rec
}

func (rec *record) take(m *pb.FetchResponse) {
	switch e := m.GetEvent().(type) {
	case *pb.FetchResponse_BodyChunk:
		rec.body = append(rec.body, e.BodyChunk.GetData()...)
	case *pb.FetchResponse_AttemptFinished:
		rec.finished = append(rec.finished, e.AttemptFinished)
	}
}
