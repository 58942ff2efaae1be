package frontier

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"fetchd/frontier/normal"
	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

// Action is what to do with a URL whose fetch failed.
type Action string

const (
	// Retry tries the URL again later, up to MaxURLRetries times.
	Retry Action = "retry"
	// Skip makes the URL dead.
	Skip Action = "skip"
	// AbortHost makes the URL dead, and all waiting URLs of its host.
	AbortHost Action = "abort-host"
	// AbortCrawl makes the URL dead, pauses the crawl, and stops the worker.
	AbortCrawl Action = "abort-crawl"
)

// Policy decides what follows from outcomes. Start from [DefaultPolicy].
type Policy struct {
	// FollowRedirects follows redirects. Without it, a 3xx response is the result of a fetch.
	FollowRedirects bool
	// MaxRedirects limits the redirects of one fetch, over all hosts: 0 to 20.
	MaxRedirects int
	// MaxURLRetries is how many more times a URL is tried after failures that may be temporary.
	// Zero means none.
	MaxURLRetries int
	// RetryDelay is the wait before the first retry. It doubles up to MaxRetryDelay.
	RetryDelay, MaxRetryDelay time.Duration
	// MaxCrashes is the number of lost fetches after which the URL is dead. Zero means no limit.
	MaxCrashes int
	// On overrides the action for error classes, by their names.
	On map[string]Action
}

// DefaultPolicy follows five redirects and tries a URL three more times, after one, two and four
// minutes.
func DefaultPolicy() Policy {
	return Policy{FollowRedirects: true, MaxRedirects: 5, MaxURLRetries: 3,
		RetryDelay: time.Minute, MaxRetryDelay: 24 * time.Hour, MaxCrashes: 5}
}

// maxRedirects is the maximum that fetchd accepts.
const maxRedirects = 20

// Environment overrides p by the environment variables CRAWLER_FOLLOW_REDIRECTS and
// CRAWLER_MAX_REDIRECTS (S3). Empty variables change nothing. The error names the variable, its
// value and the valid values.
func (p *Policy) Environment(get func(string) string) error {
	const follow, limit = "CRAWLER_FOLLOW_REDIRECTS", "CRAWLER_MAX_REDIRECTS"
	if s := get(follow); s != "" {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%s is %q: use true or false", follow, s)
		}
		p.FollowRedirects = v
	}
	if s := get(limit); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > maxRedirects {
			return fmt.Errorf("%s is %q: use a number from 0 to %d", limit, s, maxRedirects)
		}
		p.MaxRedirects = n
	}
	return nil
}

// Set adds a rule "CLASS=ACTION" to On.
func (p *Policy) Set(rule string) error {
	class, action, found := strings.Cut(rule, "=")
	if !found {
		return fmt.Errorf("%q is not a rule: use CLASS=ACTION, such as forbidden=abort-host", rule)
	}
	if err := checkRule(class, Action(action)); err != nil {
		return err
	}
	on := maps.Clone(p.On)
	if on == nil {
		on = make(map[string]Action)
	}
	on[class] = Action(action)
	p.On = on
	return nil
}

func (p *Policy) check() error {
	switch {
	case p.MaxRedirects < 0 || p.MaxRedirects > maxRedirects:
		return fmt.Errorf("MaxRedirects is %d: use 0 to %d", p.MaxRedirects, maxRedirects)
	case p.MaxURLRetries < 0 || p.MaxCrashes < 0:
		return fmt.Errorf("MaxURLRetries is %d and MaxCrashes is %d: they must not be negative", p.MaxURLRetries, p.MaxCrashes)
	case p.RetryDelay < 0 || p.MaxRetryDelay < p.RetryDelay:
		return fmt.Errorf("RetryDelay is %v and MaxRetryDelay is %v: RetryDelay must be from 0 to MaxRetryDelay", p.RetryDelay, p.MaxRetryDelay)
	}
	for class, action := range p.On {
		if err := checkRule(class, action); err != nil {
			return err
		}
	}
	return nil
}

// checkRule returns an error if a rule of On is not valid.
func checkRule(class string, action Action) error {
	if err := CheckClass(class); err != nil {
		return err
	}
	if !slices.Contains([]Action{Retry, Skip, AbortHost, AbortCrawl}, action) {
		return fmt.Errorf("unknown action %q: use retry, skip, abort-host or abort-crawl", action)
	}
	return nil
}

// action returns what to do about a failure. By default only temporary failures are retried, and
// redirects that lead nowhere, which S3 leaves to the same policy.
func (p *Policy) action(class string, retryable bool) Action {
	if a, ok := p.On[class]; ok {
		return a
	}
	if retryable || class == reasonTooManyRedirects || class == reasonRedirectLoop {
		return Retry
	}
	return Skip
}

// retryIn returns the wait after a number of failures in a row. It is at least as long as the
// origin asked for.
func (p *Policy) retryIn(failures int, asked time.Duration) time.Duration {
	d := p.RetryDelay
	for n := 1; n < failures && d > 0; n++ {
		if d > p.MaxRetryDelay/2 {
			d = p.MaxRetryDelay
			break
		}
		d *= 2
	}
	return max(d, asked)
}

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

// plain reports whether an ending concerns only the URL.
func (e *ending) plain() bool {
	return e.how == record && e.queue == "" && e.block == "" && e.deferred == "" && e.action != AbortHost && e.action != AbortCrawl
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
	if m.attempts > 0 && outcome.GetAttemptCount() > 0 {
		m.attempts-- // a chain counts as one attempt, however many parts it has
	}
	m.attempts += int(outcome.GetAttemptCount())
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

// judge decides what to do with a URL, and with its host, after the last part of its fetch.
func (p *Policy) judge(c store.Claim, outcome *pb.FetchOutcome, m totals) ending {
	e := p.judgeURL(c, outcome, m)
	status, asked := outcome.GetResponse().GetStatusCode(), askedFor(outcome)
	if asked > 0 || status == 429 || status == 503 {
		e.block, e.blockFor = normal.HostOf(lastURL(outcome)), asked
	}
	return e
}

func (p *Policy) judgeURL(c store.Claim, outcome *pb.FetchOutcome, m totals) ending {
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
	e := p.failed(c, class, text, f.GetRetryable(), askedFor(outcome))
	params := m.params(c, outcome)
	params.ETag, params.LastModified = "", "" // they belong to the error page
	e.fetch.FetchedParams = params
	if host := normal.HostOf(lastURL(outcome)); host != "" {
		e.host = host // a redirect may have led to another host
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
