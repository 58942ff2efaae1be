package replicas

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	pb "fetchd/gen/fetchd/v1"
)

// property is a property that every history must have.
type property string

// The properties.
const (
	ends      property = "every call ends"
	outcome   property = "a call that is OK has one outcome, any other has none"
	last      property = "the outcome is last"
	sequence  property = "events are numbered without a gap"
	attempts  property = "attempts are numbered from 1 without a gap, and each ends before the next"
	exchanges property = "the reported exchanges are the requests at the origin"
	hops      property = "the reported hops are the requests at the origin, in their order"
	whole     property = "a reported success was not broken off by the origin"
	chunks    property = "chunks are contiguous, and belong to one attempt or to those that continue it"
	body      property = "a body is what the origin sent in that attempt"
	quiet     property = "no request reaches the origin after the end"
	known     property = "every request at the origin belongs to a call"
)

// quietAfter is how long a request may take to reach the origin, if the origin is not late itself.
const quietAfter = 250 * time.Millisecond

// violation is a property that a call violates.
type violation struct {
	property property
	call     string
	text     string
}

// check returns the properties that a history violates. It uses nothing but the history.
func check(h *history) []violation {
	c := checker{history: h, saw: make(map[string][]seen)}
	for _, r := range h.requests {
		c.saw[r.key] = append(c.saw[r.key], r)
	}
	ids := make(map[string]bool)
	for _, one := range h.calls {
		ids[one.id] = true
		c.call = one
		c.checkCall()
	}
	for key, requests := range c.saw {
		if !ids[key] {
			c.call = &call{id: key}
			c.failf(known, "the origin received %d requests", len(requests))
		}
	}
	return c.found
}

type checker struct {
	history *history
	saw     map[string][]seen // by key, in the order of arrival
	call    *call
	found   []violation
}

func (c *checker) failf(p property, format string, args ...any) {
	c.found = append(c.found, violation{p, fmt.Sprintf("%s (%s)", c.call.id, c.call.kind), fmt.Sprintf(format, args...)})
}

func (c *checker) checkCall() {
	if c.call.ended.IsZero() {
		c.failf(ends, "it started at %s", c.call.began.Format(time.TimeOnly))
		return
	}
	c.checkOutcome()
	c.checkOrder()
	c.checkExchanges(c.checkAttempts())
	c.checkBody()
	for _, r := range c.saw[c.call.id] {
		if late := r.at.Sub(c.call.over()); late > quietAfter+c.history.late {
			c.failf(quiet, "the origin received %s %s %v after it", r.method, r.path, late)
		}
	}
}

func (c *checker) checkOutcome() {
	n, want := len(c.call.outcomes()), 0
	if c.call.code == codes.OK {
		want = 1
	}
	// The end of a call follows its outcome. A cancellation or a kill can happen
	// between the two.
	if between := c.call.left || c.call.killed; n != want && (!between || n > 1) {
		c.failf(outcome, "it ended %s with %d outcomes", c.call.code, n)
	}
}

func (c *checker) checkOrder() {
	for i, e := range c.call.events {
		if got := e.GetSequence(); got != int64(i)+1 {
			c.failf(sequence, "event %d has number %d", i+1, got)
			return
		}
	}
	over := false
	for _, e := range c.call.events {
		if end := e.GetOutcome() != nil; over && !end { // checkOutcome reports a second outcome
			c.failf(last, "event %d follows it", e.GetSequence())
			return
		} else if end {
			over = true
		}
	}
}

// checkAttempts checks the attempts of a fetch that reported them. It reports whether all of
// them are known.
func (c *checker) checkAttempts() bool {
	if !c.call.reportsAttempts() {
		return false
	}
	started, finished := int32(0), int32(0)
	for _, e := range c.call.events {
		switch {
		case e.GetAttemptStarted() != nil:
			if started++; e.GetAttemptStarted().GetAttempt() != started || finished != started-1 {
				c.failf(attempts, "after %d had ended, %d started", finished, e.GetAttemptStarted().GetAttempt())
				return false
			}
		case e.GetAttemptFinished() != nil:
			if finished++; e.GetAttemptFinished().GetAttempt() != finished || finished != started {
				c.failf(attempts, "after %d had started, %d ended", started, e.GetAttemptFinished().GetAttempt())
				return false
			}
		}
	}
	for _, a := range c.call.answer.GetAttempts() {
		if finished++; a.GetAttempt() != finished {
			c.failf(attempts, "the answer has attempt %d, want %d", a.GetAttempt(), finished)
			return false
		}
	}
	for _, o := range c.call.outcomes() {
		if started > finished || o.GetAttemptCount() != finished {
			c.failf(attempts, "%d started and %d ended, but the outcome has %d", started, finished, o.GetAttemptCount())
			return false
		}
	}
	return true
}

// checkExchanges compares the reported exchanges with the requests at the origin. complete reports
// whether all attempts are known, and with them the hops.
func (c *checker) checkExchanges(complete bool) {
	saw := c.saw[c.call.id]
	for _, o := range c.call.outcomes() {
		reported := int(o.GetExchangeCount())
		if reported < len(saw) || reported > len(saw) && !c.call.unsure {
			c.failf(exchanges, "reported %d, but the origin received %d", reported, len(saw))
		} else if complete && !areHops(c.call.hops(), saw) {
			c.failf(hops, "the origin received other requests: %v", saw)
		}
		if o.GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS && (len(saw) == 0 || saw[len(saw)-1].broken) {
			c.failf(whole, "the last of its %d requests was broken off, or there was none", len(saw))
		}
	}
}

// areHops reports whether the requests are those of the hops, in their order, each sent at most
// once. A hop without a response may not have been sent.
func areHops(hops []*pb.Hop, saw []seen) bool {
	if len(hops) == 0 {
		return len(saw) == 0
	}
	h := hops[0]
	if len(saw) > 0 && saw[0].name() == h.GetMethod()+" "+pathOf(h.GetUrl()) && areHops(hops[1:], saw[1:]) {
		return true
	}
	return h.GetStatusCode() == 0 && areHops(hops[1:], saw)
}

func (r *seen) name() string { return r.method + " " + r.path }

// pathOf returns the path of a URL as it is sent.
func pathOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	return u.EscapedPath()
}

// delivered is the body that a caller received, and its reported origin.
type delivered struct {
	attempt int32  // attempt of the last chunk
	began   int32  // attempt that started it
	label   string // label of the response of that attempt
	bytes   []byte
}

// checkBody assembles and checks the chunks.
func (c *checker) checkBody() {
	var got delivered
	for _, e := range c.call.events {
		if r := e.GetResponseStarted(); r != nil {
			label := labelOf(r.GetResponse())
			switch {
			case len(got.bytes) == 0:
				got = delivered{attempt: r.GetAttempt(), began: r.GetAttempt(), label: label}
			case r.GetBodyOffsetBytes() == int64(len(got.bytes)) && label == got.label: // a continued body (spec B2)
				got.attempt = r.GetAttempt()
			}
		}
		chunk := e.GetBodyChunk()
		if chunk == nil {
			continue
		}
		if chunk.GetAttempt() != got.attempt {
			c.failf(chunks, "a chunk of attempt %d follows a response of attempt %d", chunk.GetAttempt(), got.attempt)
			return
		}
		if chunk.GetOffsetBytes() != int64(len(got.bytes)) {
			c.failf(chunks, "a chunk at offset %d, want %d", chunk.GetOffsetBytes(), len(got.bytes))
			return
		}
		got.bytes = append(got.bytes, chunk.GetData()...)
	}
	for _, o := range c.call.outcomes() {
		if c.call.unary {
			got = delivered{o.GetResponseAttempt(), o.GetResponseAttempt(), labelOf(o.GetResponse()), o.GetInlineBody()}
		}
		c.checkWhole(o, got)
	}
	if want, ok := c.part(got.label); len(got.bytes) > 0 && !(ok && bytes.HasPrefix(want, got.bytes)) {
		c.failf(body, "attempt %d: %d bytes differ from those of %q", got.attempt, len(got.bytes), got.label)
	}
}

// checkWhole compares the body of a successful fetch with its outcome.
func (c *checker) checkWhole(o *pb.FetchOutcome, got delivered) {
	if o.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
		return
	}
	want, ok := c.part(got.label)
	sum := sha256.Sum256(got.bytes)
	switch {
	case ok && len(got.bytes) != len(want):
		c.failf(body, "attempt %d: %d of %d bytes", got.attempt, len(got.bytes), len(want))
	case o.GetBodySummary().GetSizeBytes() != int64(len(got.bytes)):
		c.failf(body, "%d bytes, reported as %d", len(got.bytes), o.GetBodySummary().GetSizeBytes())
	case ok && bytes.Equal(got.bytes, want) && o.GetBodySummary().GetSha256() != hex.EncodeToString(sum[:]):
		c.failf(body, "the reported digest is not that of the bytes")
	case o.GetResponseAttempt() != got.began:
		c.failf(body, "of attempt %d, reported as of attempt %d", got.began, o.GetResponseAttempt())
	}
}

func labelOf(r *pb.HttpResponse) string {
	for _, h := range r.GetHeaders() {
		if h.GetName() == bodyLabel {
			return h.GetValue()
		}
	}
	return ""
}

// part returns the content that a label names.
func (c *checker) part(label string) ([]byte, bool) {
	from, size, _ := strings.Cut(label, "+")
	offset, err1 := strconv.Atoi(from)
	n, err2 := strconv.Atoi(size)
	if err1 != nil || err2 != nil || offset < 0 || n < 0 || offset+n > len(c.history.content) {
		return nil, false
	}
	return c.history.content[offset : offset+n], true
}
