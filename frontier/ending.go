package frontier

import (
	"time"

	"fetchd/frontier/normal"
	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

// ending says what to do with a claimed URL when its visit ends. The zero ending gives it back,
// because no request was made.
type ending struct {
	how      disposal
	fetch    store.Fetch   // to record
	queue    string        // URL to add to the frontier
	block    string        // host that asked for a pause
	blockFor time.Duration // zero means that the store doubles the last block
	deferred string        // origin whose robots.txt is unreachable
	deferFor time.Duration
	action   Action // AbortHost and AbortCrawl affect more than the URL
	host     string // the host of AbortHost
}

type disposal int

const (
	giveBack        disposal = iota // to be claimed again; nothing is counted
	giveBackDelayed                 // the same, and the host opens after its delay
	abandon                         // the same, and a crash is counted
	record                          // record the outcome
	forget                          // the lease was lost, so nothing may be recorded
)

// totals adds up the requests for one URL over all parts of a redirect chain.
type totals struct {
	attempts int
	duration time.Duration
	wait     time.Duration // between attempts
}

func (m *totals) add(outcome *pb.FetchOutcome, wait time.Duration) {
	if m.attempts > 0 && outcome.GetAttempts() > 0 {
		m.attempts-- // a chain counts as one attempt, however many parts it has
	}
	m.attempts += int(outcome.GetAttempts())
	m.duration += outcome.GetTotalDuration().AsDuration()
	m.wait += wait
}

func (m *totals) params(c store.Claim, outcome *pb.FetchOutcome) store.FetchedParams {
	p := store.FetchedParams{
		Token: c.Token, HTTPStatus: int(outcome.GetResponse().GetStatusCode()), Attempts: m.attempts,
		Duration: m.duration, Wait: m.wait, Bytes: outcome.GetBodySummary().GetSizeBytes(),
		Archived: archivedOf(outcome), Earlier: earlierOf(outcome, c.Earlier),
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

// judge decides what to do with a URL after the last part of its fetch.
func (p *Policy) judge(c store.Claim, outcome *pb.FetchOutcome, m totals) ending {
	switch outcome.GetKind() {
	case pb.OutcomeKind_OUTCOME_KIND_SUCCESS, pb.OutcomeKind_OUTCOME_KIND_NOT_MODIFIED:
		f := store.Fetch{ID: c.ID, FetchedParams: m.params(c, outcome), Status: store.Fetched, FinalURL: outcome.GetFinalUrl()}
		return ending{how: record, fetch: f}
	case pb.OutcomeKind_OUTCOME_KIND_REDIRECT:
		// The redirect was not followed, so the 3xx is the response of the URL itself.
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
		return ending{how: giveBackDelayed} // not caused by the URL
	}
	return p.handleFetchError(c, outcome, m)
}

// handleFetchError decides what to do with a URL after a failed fetch.
func (p *Policy) handleFetchError(c store.Claim, outcome *pb.FetchOutcome, m totals) ending {
	f := outcome.GetError()
	class := className(f.GetErrorClass())
	text := class + ": " + message(f)
	if class == reasonTooManyRedirects || class == reasonRedirectLoop {
		text = class
	}
	asked := askedFor(f)
	e := p.failed(c, class, text, f.GetRetryable(), asked)
	params := m.params(c, outcome)
	params.ETag, params.LastModified = "", "" // they belong to the error page
	e.fetch.FetchedParams = params
	if host := normal.HostOf(lastURL(outcome)); host != "" {
		e.host = host // a redirect may have led to another host
	}
	if status := outcome.GetResponse().GetStatusCode(); status == 429 || status == 503 {
		e.block, e.blockFor = normal.HostOf(lastURL(outcome)), asked
	}
	return e
}

// failed returns the ending of a URL that failed with an error class of fetchd or of the scheduler.
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
