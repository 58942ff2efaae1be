package frontier

import (
	"time"

	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

// ending is what becomes of a claimed URL. The zero ending gives it back: no
// request was made.
type ending struct {
	how      disposal
	fetch    store.Fetch   // recorded
	queue    string        // URL that is added to the frontier
	block    string        // host that asked for a pause
	blockFor time.Duration // zero: by the store's own doubling
	action   Action        // AbortHost and AbortCrawl go beyond the URL
	host     string        // that AbortHost gives up
}

type disposal int

const (
	giveBack   disposal = iota // to be claimed again; nothing is counted
	chargeBack                 // the same, and its host opens after its delay
	abandon                    // the same, and a crash is counted
	record                     // the outcome
	forget                     // the lease was lost, and with it the right to say anything
)

// made is what the requests made for one URL came to, over all the parts of a
// chain that leads through several origins.
type made struct {
	attempts int
	duration time.Duration
	wait     time.Duration // between attempts
}

func (m *made) add(outcome *pb.FetchOutcome, wait time.Duration) {
	if m.attempts > 0 && outcome.GetAttempts() > 0 {
		m.attempts-- // a chain is one attempt, however many parts it has
	}
	m.attempts += int(outcome.GetAttempts())
	m.duration += outcome.GetTotalDuration().AsDuration()
	m.wait += wait
}

func (m *made) params(c store.Claim, outcome *pb.FetchOutcome) store.FetchedParams {
	p := store.FetchedParams{
		Token: c.Token, HTTPStatus: int(outcome.GetResponse().GetStatusCode()), Attempts: m.attempts,
		Duration: m.duration, Wait: m.wait, Bytes: outcome.GetBodySummary().GetSizeBytes(),
	}
	for _, h := range outcome.GetResponse().GetHeaders() {
		switch h.GetName() {
		case "Etag":
			p.ETag = h.GetValue()
		case "Last-Modified":
			p.LastModified = h.GetValue()
		}
	}
	return p
}

// judge says what becomes of a URL whose fetch, or the last part of it, ended so.
func (p *Policy) judge(c store.Claim, outcome *pb.FetchOutcome, m made) ending {
	switch outcome.GetKind() {
	case pb.OutcomeKind_OUTCOME_KIND_SUCCESS, pb.OutcomeKind_OUTCOME_KIND_NOT_MODIFIED:
		f := store.Fetch{ID: c.ID, FetchedParams: m.params(c, outcome), Status: store.Fetched, FinalURL: outcome.GetFinalUrl()}
		return ending{how: record, fetch: f}
	case pb.OutcomeKind_OUTCOME_KIND_REDIRECT:
		// Not followed, so the URL itself is what was fetched: its own status says so.
		params := m.params(c, outcome)
		params.ETag, params.LastModified = "", ""
		e := ending{how: record, fetch: store.Fetch{ID: c.ID, FetchedParams: params, Status: store.Fetched}}
		if p.FollowRedirects {
			e.queue = target(outcome)
		}
		return e
	}
	switch outcome.GetError().GetErrorClass() {
	case pb.ErrorClass_ERROR_CLASS_CANCELLED, pb.ErrorClass_ERROR_CLASS_SHUTDOWN:
		return ending{how: chargeBack} // no fault of the URL's
	}
	return p.handleFetchError(c, outcome, m)
}

// handleFetchError says what becomes of a URL whose fetch failed.
func (p *Policy) handleFetchError(c store.Claim, outcome *pb.FetchOutcome, m made) ending {
	f := outcome.GetError()
	class := className(f.GetErrorClass())
	text := class + ": " + f.GetMessage()
	if detail := f.GetDetail(); detail != "" {
		text += "; " + detail
	}
	if class == reasonTooManyRedirects || class == reasonRedirectLoop {
		text = class
	}
	asked := askedFor(f)
	e := p.failed(c, class, text, f.GetRetryable(), asked)
	params := m.params(c, outcome)
	params.ETag, params.LastModified = "", "" // of a page that tells of an error
	e.fetch.FetchedParams = params
	if host := hostOf(lastURL(outcome)); host != "" {
		e.host = host // a redirect may have led elsewhere
	}
	if status := outcome.GetResponse().GetStatusCode(); status == 429 || status == 503 {
		e.block, e.blockFor = hostOf(lastURL(outcome)), asked
	}
	return e
}

// longestAsked is how long a host is believed that asks for a pause. A crawl
// would never end if it waited for whatever an origin writes.
const longestAsked = 24 * time.Hour

// askedFor is the pause that the origin asked for; zero if it did not.
func askedFor(f *pb.FetchError) time.Duration {
	return min(max(0, f.GetRetryAfter().AsDuration()), longestAsked)
}

// failed is the end of a URL by an error class, fetchd's or the scheduler's own.
func (p *Policy) failed(c store.Claim, class, text string, retryable bool, asked time.Duration) ending {
	e := ending{how: record, action: p.action(class, retryable), host: c.Host, fetch: store.Fetch{
		ID: c.ID, FetchedParams: store.FetchedParams{Token: c.Token},
		Status: store.Dead, LastError: text, ErrorClass: class,
	}}
	if e.action == Retry && c.FailureCount < p.MaxURLRetries {
		e.fetch.Status, e.fetch.RetryIn = store.Failed, p.retryIn(c.FailureCount+1, asked)
	}
	return e
}

// target is the URL that a redirect names; empty if it names none.
func target(outcome *pb.FetchOutcome) string {
	hops := outcome.GetHops()
	if len(hops) == 0 {
		return ""
	}
	switch hops[len(hops)-1].GetStatusCode() {
	case 301, 302, 303, 307, 308:
		return hops[len(hops)-1].GetLocationUrl()
	}
	return ""
}

// lastURL is that of the last request.
func lastURL(outcome *pb.FetchOutcome) string {
	if hops := outcome.GetHops(); len(hops) > 0 {
		return hops[len(hops)-1].GetUrl()
	}
	return outcome.GetFinalUrl()
}
