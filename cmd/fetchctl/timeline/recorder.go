package timeline

import (
	"cmp"
	"net/http"
	"time"

	pb "fetchd/gen/fetchd/v1"
)

// Recorder records the messages of one Fetch. The zero value is usable and keeps no bodies. It
// is not safe for concurrent use.
type Recorder struct {
	// BodyLimit is the number of body bytes to keep in total. Zero means none. Bytes beyond
	// it are counted but not kept.
	BodyLimit int64

	id, url, method string
	start           time.Time
	last            time.Duration
	attempts        []*record
	outcome         *pb.FetchOutcome
	kept            int64
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
	body      []byte
	delivered int64
}

// Take records a message. It does not keep the data of a body chunk.
func (r *Recorder) Take(m *pb.FetchEvent) {
	r.last = max(r.last, m.GetElapsedOffset().AsDuration())
	switch e := m.GetEvent().(type) {
	case *pb.FetchEvent_Admitted:
		r.admitted(e.Admitted)
	case *pb.FetchEvent_AttemptStarted:
		r.attempt(e.AttemptStarted.GetAttempt()).url = e.AttemptStarted.GetUrl()
	case *pb.FetchEvent_RedirectFollowed:
		a := r.attempt(e.RedirectFollowed.GetAttempt())
		a.redirects = append(a.redirects, e.RedirectFollowed.GetHop())
		a.followed = m.GetElapsedOffset().AsDuration()
	case *pb.FetchEvent_ResponseStarted:
		r.responded(e.ResponseStarted)
	case *pb.FetchEvent_BodyChunk:
		r.chunk(e.BodyChunk)
	case *pb.FetchEvent_AttemptFinished:
		a := r.attempt(e.AttemptFinished.GetAttempt())
		a.finished, a.ended = e.AttemptFinished, m.GetElapsedOffset().AsDuration()
	case *pb.FetchEvent_Outcome:
		r.outcome = e.Outcome
	}
}

func (r *Recorder) admitted(a *pb.Admitted) {
	r.id = a.GetFetchId()
	r.url, r.method = a.GetEffectiveRequest().GetUrl(), a.GetEffectiveRequest().GetMethod()
	if t := a.GetStartTime(); t.IsValid() {
		r.start = t.AsTime()
	}
}

func (r *Recorder) responded(e *pb.ResponseStarted) {
	a := r.attempt(e.GetAttempt())
	a.response = e.GetResponse()
	a.continued = e.GetBodyOffsetBytes() > 0 && r.delivered() && a.response.GetStatusCode()/100 == 2
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

func (r *Recorder) chunk(c *pb.BodyChunk) {
	a, n := r.attempt(c.GetAttempt()), int64(len(c.GetData()))
	whole := int64(len(a.body)) == a.delivered
	a.delivered += n
	if whole && r.kept+n <= r.BodyLimit {
		a.body = append(a.body, c.GetData()...)
		r.kept += n
	}
}

// Fetch returns what is known so far. since is the time since the last message. It is added to
// a fetch in flight, and ignored after the outcome.
func (r *Recorder) Fetch(since time.Duration) *Fetch {
	f := &Fetch{ID: r.id, URL: r.url, Start: r.start, Outcome: r.outcome, End: r.last}
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
		if i < len(rec.redirects) {
			a.Hops[i].Headers = rec.redirects[i].GetHeaders()
		}
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
		Location: h.GetLocationUrl(), Exchange: h.GetExchange(), Start: h.GetStartOffset().AsDuration(),
		Body: Body{EncodedSize: -1}}
}

// unfinished returns the hop after the last redirect, whose end is not known.
func (r *Recorder) unfinished(rec *record) Hop {
	h := Hop{Number: len(rec.redirects) + 1, Method: cmp.Or(r.method, http.MethodGet), URL: cmp.Or(rec.url, r.url), Exchange: &pb.Exchange{},
		Unfinished: true, Start: rec.began, Body: Body{EncodedSize: -1}}
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

// respond sets the response of the last hop of an attempt. If the attempt continues a body, its
// own response is known only when it has finished.
func (r *Recorder) respond(rec *record, h *Hop) {
	resp := rec.response
	switch {
	case resp == nil || rec.continued && rec.finished != nil:
		resp = rec.finished.GetResponse()
	case rec.continued:
		resp = &pb.HttpResponse{StatusCode: http.StatusPartialContent, Protocol: resp.GetProtocol()}
	}
	if resp != nil {
		h.Headers = resp.GetHeaders()
		if h.Unfinished {
			h.Status, h.Exchange = int(resp.GetStatusCode()), &pb.Exchange{Protocol: resp.GetProtocol()}
		}
	}
	h.Body.Size, h.Body.Kept = rec.delivered, rec.body
	if r.outcome != nil && int(r.outcome.GetResponseAttempt()) == rec.number {
		r.summarize(rec, h)
	}
}

// summarize adds the facts of the outcome about the body of its response.
func (r *Recorder) summarize(rec *record, h *Hop) {
	s := r.outcome.GetBodySummary()
	switch {
	case len(r.outcome.GetErrorBody()) > 0:
		h.Body.Size = int64(len(r.outcome.GetErrorBody())) // its start; the rest was not read
		h.Body.Kept = r.keep(r.outcome.GetErrorBody())
	case len(r.outcome.GetInlineBody()) > 0:
		h.Body.Size, h.Body.Kept = s.GetSizeBytes(), r.keep(r.outcome.GetInlineBody())
		h.Body.EncodedSize = s.GetEncodedSizeBytes()
	case rec.delivered == s.GetSizeBytes() || rec.delivered == 0 && !r.delivered():
		h.Body.Size, h.Body.EncodedSize = s.GetSizeBytes(), s.GetEncodedSizeBytes()
	}
}

// delivered reports whether any attempt delivered bytes. Then the summary covers all of them.
func (r *Recorder) delivered() bool {
	for _, a := range r.attempts {
		if a.delivered > 0 {
			return true
		}
	}
	return false
}

func (r *Recorder) keep(b []byte) []byte {
	if int64(len(b)) > r.BodyLimit {
		return nil
	}
	return b
}
