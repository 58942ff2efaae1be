package timeline

import (
	"cmp"
	"net/http"
	"time"

	pb "fetchd/gen/fetchd/v1"
)

// Recorder records the messages of one Fetch. The zero value is usable. It is not safe for
// concurrent use.
type Recorder struct {
	url, method string
	last        time.Duration
	attempts    []*record
	delivered   bool // some attempt delivered bytes of the body
	outcome     *pb.FetchOutcome
}

// record holds what the messages said about one attempt.
type record struct {
	number    int
	url       string
	began     time.Duration
	ended     time.Duration
	redirects []*pb.Hop
	followed  time.Duration // time of the last redirect
	response  *pb.HttpResponse
	continued bool // response belongs to a body that an earlier attempt started
	finished  *pb.AttemptFinished
}

// Take records a message.
func (r *Recorder) Take(m *pb.FetchEvent) {
	r.last = max(r.last, span(m.GetElapsedOffset()))
	switch e := m.GetEvent().(type) {
	case *pb.FetchEvent_Admitted:
		r.admitted(e.Admitted)
	case *pb.FetchEvent_AttemptStarted:
		r.attempt(e.AttemptStarted.GetAttempt()).url = e.AttemptStarted.GetUrl()
	case *pb.FetchEvent_RedirectFollowed:
		a := r.attempt(e.RedirectFollowed.GetAttempt())
		a.redirects = append(a.redirects, e.RedirectFollowed.GetHop())
		a.followed = span(m.GetElapsedOffset())
	case *pb.FetchEvent_ResponseStarted:
		r.responded(e.ResponseStarted)
	case *pb.FetchEvent_BodyChunk:
		r.attempt(e.BodyChunk.GetAttempt())
		r.delivered = r.delivered || len(e.BodyChunk.GetData()) > 0
	case *pb.FetchEvent_AttemptFinished:
		a := r.attempt(e.AttemptFinished.GetAttempt())
		a.finished, a.ended = e.AttemptFinished, span(m.GetElapsedOffset())
	case *pb.FetchEvent_Outcome:
		r.outcome = e.Outcome
	}
}

func (r *Recorder) admitted(a *pb.Admitted) {
	r.url, r.method = a.GetEffectiveRequest().GetUrl(), a.GetEffectiveRequest().GetMethod()
}

func (r *Recorder) responded(e *pb.ResponseStarted) {
	a := r.attempt(e.GetAttempt())
	a.response = e.GetResponse()
	a.continued = e.GetBodyOffsetBytes() > 0 && r.delivered && a.response.GetStatusCode()/100 == 2
}

// attempt returns the record of an attempt, and creates it if it is new.
func (r *Recorder) attempt(number int32) *record {
	if n := len(r.attempts); n > 0 && r.attempts[n-1].number == int(number) {
		return r.attempts[n-1]
	}
	a := &record{number: int(number), began: r.last}
	r.attempts = append(r.attempts, a)
	return a
}

// Fetch returns what is known so far. since is the time since the last message. It is added to
// a fetch in flight, and ignored after the outcome.
func (r *Recorder) Fetch(since time.Duration) *Fetch {
	f := &Fetch{URL: r.url, Outcome: r.outcome, End: r.last}
	if r.outcome == nil {
		f.End += max(since, 0)
	}
	for _, a := range r.attempts {
		attempt := r.build(a, f.End)
		f.End = max(f.End, attempt.End)
		f.Attempts = append(f.Attempts, attempt)
	}
	if f.URL == "" && len(r.attempts) > 0 {
		f.URL = r.attempts[0].url
	}
	return f
}

// build makes an attempt from its record. now is the end of the recording.
func (r *Recorder) build(rec *record, now time.Duration) Attempt {
	a := Attempt{Number: rec.number, Start: rec.began, End: now}
	hops := rec.redirects
	if fin := rec.finished; fin != nil {
		hops, a.Error, a.Decision, a.End = fin.GetHops(), fin.GetError(), fin.GetRetryDecision(), rec.ended
	}
	for i, h := range hops {
		a.Hops = append(a.Hops, hopOf(i, h))
	}
	if rec.finished == nil {
		a.Hops = append(a.Hops, r.unfinished(rec))
	}
	if n := len(a.Hops); n > 0 {
		a.Hops[n-1].Error = a.Error
		r.respond(rec, &a.Hops[n-1])
		a.Start = a.Hops[0].Start
	}
	for i := range a.Hops {
		end := a.End
		if i+1 < len(a.Hops) {
			end = a.Hops[i+1].Start
		}
		a.Hops[i].divide(end)
	}
	if n := len(a.Hops); n > 0 {
		a.End = max(a.End, a.Hops[n-1].End)
	}
	return a
}

func hopOf(i int, h *pb.Hop) Hop {
	return Hop{Number: i + 1, Method: h.GetMethod(), URL: h.GetUrl(), Status: int(h.GetStatusCode()),
		Exchange: h.GetExchange(), Start: span(h.GetStartOffset())}
}

// unfinished returns the hop after the last redirect, whose end is not known.
func (r *Recorder) unfinished(rec *record) Hop {
	h := Hop{Number: len(rec.redirects) + 1, Method: cmp.Or(r.method, http.MethodGet), URL: cmp.Or(rec.url, r.url), Exchange: &pb.Exchange{},
		Unfinished: true, Start: rec.began}
	if n := len(rec.redirects); n > 0 {
		from := rec.redirects[n-1]
		h.URL, h.Method, h.Start = from.GetLocationUrl(), nextMethod(from), rec.followed
	}
	return h
}

// nextMethod returns the method of the request after a redirect (spec D2).
func nextMethod(from *pb.Hop) string {
	method, status := from.GetMethod(), from.GetStatusCode()
	switch {
	case status == http.StatusSeeOther && method != http.MethodHead:
		return http.MethodGet
	case (status == http.StatusMovedPermanently || status == http.StatusFound) && method == http.MethodPost:
		return http.MethodGet
	}
	return method
}

// respond sets the response of the last hop of an attempt that is in flight. If the attempt continues
// a body, its own response is known only when it has finished.
func (r *Recorder) respond(rec *record, h *Hop) {
	resp := rec.response
	switch {
	case resp == nil || !h.Unfinished:
		return
	case rec.continued:
		resp = &pb.HttpResponse{StatusCode: http.StatusPartialContent, Protocol: resp.GetProtocol()}
	}
	h.Status, h.Exchange = int(resp.GetStatusCode()), &pb.Exchange{Protocol: resp.GetProtocol()}
}
