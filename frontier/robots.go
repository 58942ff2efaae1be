package frontier

import (
	"context"
	"fmt"
	"sync"
	"time"

	"fetchd/frontier/normal"
	"fetchd/frontier/robots"
	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

const (
	// robotsRedirects are followed to a robots.txt: RFC 9309 §2.3.1.2.
	robotsRedirects = robots.MaxRedirects
	// robotsSoonest and robotsLatest bound how soon a robots.txt that could not be
	// fetched is asked for again; between them it is as URLs are tried again.
	robotsSoonest = time.Second
	robotsLatest  = 10 * time.Minute
	// robotsKept is how many are held in memory, and robotsBytes how long their files
	// are together: what was parsed takes a few times that. The store has them all.
	robotsKept  = 20_000
	robotsBytes = 32 << 20
)

// rulebook is what is known of robots.txt files. It is safe for concurrent use.
type rulebook struct {
	mu      sync.Mutex
	entries map[string]rulebookEntry // by origin
	bytes   int                      // of their files
}

type rulebookEntry struct {
	policy robots.Policy
	rules  *robots.Rules // of policy's file; nil without one
	until  time.Time
	away   time.Time // since when it has been out of reach; zero if it is not
	bytes  int       // of the file
}

func newRulebook() *rulebook { return &rulebook{entries: make(map[string]rulebookEntry)} }

// known returns what holds for an origin, if it is fresh.
func (b *rulebook) known(origin string) (rulebookEntry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[origin]
	return e, ok && time.Now().Before(e.until)
}

// missing are the origins of URLs that known knows nothing of, each once.
func (b *rulebook) missing(claims []store.Claim) []string {
	var origins []string
	seen := make(map[string]bool)
	for _, c := range claims {
		origin, _ := originOf(c.URL)
		if _, ok := b.known(origin); !ok && !seen[origin] {
			seen[origin] = true
			origins = append(origins, origin)
		}
	}
	return origins
}

// learn takes what the store keeps of an origin, if it is fresh. again is how soon
// what is out of reach is asked for again.
func (b *rulebook) learn(r store.Robots, product string, again time.Duration) {
	e := rulebookEntry{policy: policyOf(r), bytes: len(r.Body)}
	fresh := robots.FreshFor
	if r.Unreachable {
		e.away = time.Now().Add(-r.UnreachableFor)
		fresh = min(max(again, robotsSoonest, r.UnreachableFor-r.Age), robotsLatest)
	}
	if r.Age >= fresh {
		return
	}
	e.until = time.Now().Add(fresh - r.Age)
	if e.policy.File != nil {
		e.rules = e.policy.File.Rules(product)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(r.Origin)
	for origin := range b.entries { // any
		if len(b.entries) < robotsKept && b.bytes+e.bytes <= robotsBytes {
			break
		}
		b.drop(origin)
	}
	b.entries[r.Origin] = e
	b.bytes += e.bytes
}

// drop forgets an origin. The lock is held.
func (b *rulebook) drop(origin string) {
	b.bytes -= b.entries[origin].bytes
	delete(b.entries, origin)
}

// policyOf is what an answer means, or the last one before a file went out of reach.
func policyOf(r store.Robots) robots.Policy {
	if !r.Unreachable {
		return robots.Judge(robots.Answer{Status: r.Status, ErrorClass: r.ErrorClass, Body: r.Body})
	}
	var stale *robots.File
	if r.HasBody {
		stale = robots.Judge(robots.Answer{Status: r.BodyStatus, Body: r.Body}).File
	}
	return robots.Judge(robots.Answer{Status: r.Status, ErrorClass: r.ErrorClass}).After(r.UnreachableFor, stale)
}

// decide says whether a path may be fetched, and by which line.
func (e rulebookEntry) decide(pathAndQuery string) robots.Decision {
	if e.rules != nil {
		return e.rules.Decide(pathAndQuery)
	}
	return e.policy.Decide("", pathAndQuery)
}

// consult reads from the store what is kept of the origins of claims.
func (w *Worker) consult(ctx context.Context, claims []store.Claim) error {
	if w.config.IgnoreRobots {
		return nil
	}
	return w.consultOrigins(ctx, w.rulebook.missing(claims))
}

func (w *Worker) consultOrigins(ctx context.Context, origins []string) error {
	if len(origins) == 0 {
		return nil
	}
	found, err := w.store.Robots(ctx, origins)
	if err != nil {
		return fmt.Errorf("read robots.txt from the store: %w", err)
	}
	for _, r := range found {
		w.rulebook.learn(r, w.config.UserAgent, w.config.Policy.RetryDelay)
	}
	return nil
}

// askOwn says whether robots.txt stops the visit. Where the file has to be fetched
// first, that is this visit's fetch: the URL's own turn comes after the delay.
func (v *visit) askOwn() (e ending, stop bool) {
	if v.w.config.IgnoreRobots {
		return ending{}, false
	}
	origin, path := originOf(v.claim.URL)
	entry, ok := v.w.rulebook.known(origin)
	if !ok { // since the claim it may have made room for others, or another worker has read it
		if err := v.w.consultOrigins(v.ctx, []string{origin}); err != nil {
			v.w.trouble(v.ctx, "ask robots.txt", err)
			return *v.back(), true
		}
		entry, ok = v.w.rulebook.known(origin)
	}
	if ok {
		return v.verdict(entry, v.claim.URL, path)
	}
	if e := v.fetchRobots(origin); e != nil {
		return *e, true
	}
	return ending{how: chargeBack}, true
}

// verdict stops the visit where the rules say so of a URL.
func (v *visit) verdict(entry rulebookEntry, url, path string) (e ending, stop bool) {
	d := entry.decide(path)
	p := &v.w.config.Policy
	switch {
	case d.Allowed:
		return ending{}, false
	case d.Reason == robots.Unreachable:
		return v.outOfReach(entry, url), true
	default:
		text := fmt.Sprintf("%s: line %d, %.200s", ClassRobotsDisallowed, d.Line.Number, d.Line.Text)
		if url != v.claim.URL {
			text += ", of " + hostOf(url) + ", where a redirect leads"
		}
		e = p.failed(v.claim, ClassRobotsDisallowed, text, false, 0)
	}
	e.fetch.Attempts, e.fetch.Duration, e.fetch.Wait = v.made.attempts, v.made.duration, v.made.wait
	return e, true
}

// outOfReach is the end of a visit whose robots.txt cannot be had. The URL waits
// with its host, and nothing is counted, unless that has gone on for too long or
// says something of the URL itself.
func (v *visit) outOfReach(entry rulebookEntry, url string) ending {
	cause, again := entry.policy.Cause, time.Until(entry.until)
	var e ending
	switch {
	case cause == "dns_not_found" || cause == "target_blocked" || cause == "invalid_request":
		e = v.w.config.Policy.failed(v.claim, cause, cause+": of its robots.txt", cause == "dns_not_found", again)
	case time.Since(entry.away) < v.w.config.RobotsPatience:
		return ending{how: giveBack, block: hostOf(url), blockFor: max(again, time.Millisecond)}
	default:
		e = v.w.config.Policy.failed(v.claim, ClassRobotsUnreachable, ClassRobotsUnreachable+": "+cause, false, 0)
	}
	e.fetch.Attempts, e.fetch.Duration, e.fetch.Wait = v.made.attempts, v.made.duration, v.made.wait
	return e
}

// fetchRobots fetches an origin's file, whose host this visit has, and keeps it.
func (v *visit) fetchRobots(origin string) *ending {
	made := v.made
	outcome, e := v.chain(origin+"/robots.txt", robotsChain)
	v.made = made // of the page alone
	if e != nil {
		return e
	}
	if c := outcome.GetError().GetErrorClass(); c == pb.ErrorClass_ERROR_CLASS_CANCELLED || c == pb.ErrorClass_ERROR_CLASS_SHUTDOWN {
		return &ending{how: chargeBack}
	}
	answer := answerOf(outcome)
	v.w.config.Metrics.robotsRead()
	policy := robots.Judge(answer)
	r := store.Robots{Origin: origin, Status: answer.Status, ErrorClass: answer.ErrorClass, Body: answer.Body, Unreachable: policy.Deferred()}
	ctx, cancel := v.w.finishing()
	defer cancel()
	if err := v.w.learnRobots(ctx, r); err != nil {
		v.w.trouble(v.ctx, "keep a robots.txt", err)
		return &ending{how: chargeBack}
	}
	if status := answer.Status; status == 429 || status == 503 {
		v.w.block(hostOf(lastURL(outcome)), askedFor(outcome.GetError()))
	}
	return nil
}

// causeHostClosed is why a robots.txt was not read where the host that a redirect
// leads to did not open in time.
const causeHostClosed = "redirect_host_closed"

// answerOf is what the fetch of a robots.txt came to. A redirect that could not be
// followed now is no answer: nothing is known of what it leads to.
func answerOf(outcome *pb.FetchOutcome) robots.Answer {
	body := outcome.GetInlineBody()
	a := robots.Answer{Status: int(outcome.GetResponse().GetStatusCode()), Body: body[:min(len(body), robots.MaxBytes+1)]}
	if f := outcome.GetError(); f != nil {
		a.ErrorClass = className(f.GetErrorClass())
	}
	if outcome.GetKind() == pb.OutcomeKind_OUTCOME_KIND_REDIRECT && hostOf(target(outcome)) != "" {
		a.ErrorClass = causeHostClosed
	}
	return a
}

// learnRobots keeps an answer for all workers, and the delay that it asks for.
func (w *Worker) learnRobots(ctx context.Context, r store.Robots) error {
	if err := w.store.SaveRobots(ctx, r); err != nil {
		return err
	}
	if err := w.consultOrigins(ctx, []string{r.Origin}); err != nil { // with what was known before, and since when
		return err
	}
	return w.learnDelay(ctx, hostOf(r.Origin))
}

// learnDelay gives a host the longest Crawl-delay of its robots.txt files: http and
// https of one name have one each.
func (w *Worker) learnDelay(ctx context.Context, host string) error {
	found, err := w.store.Robots(ctx, []string{"http://" + host, "https://" + host})
	if err != nil {
		return err
	}
	var delay time.Duration
	for _, r := range found {
		if file := policyOf(r).File; file != nil {
			delay = max(delay, min(file.Rules(w.config.UserAgent).CrawlDelay, w.config.MaxCrawlDelay))
		}
	}
	return w.store.SetHost(ctx, host, store.HostParams{CrawlDelay: &delay})
}

// askForeign says whether a redirect may lead to a URL in its normal form: known is
// false where it takes too long to learn.
func (v *visit) askForeign(patience context.Context, u string) (e *ending, known bool) {
	if v.w.config.IgnoreRobots {
		return nil, true
	}
	origin, path := originOf(u)
	host, err := normal.ExtractHost(u)
	if err != nil {
		return nil, false
	}
	for {
		if err := v.w.consultOrigins(patience, v.w.rulebook.missing([]store.Claim{{URL: u}})); err != nil {
			if patience.Err() != nil {
				return v.stopped(), false
			}
			v.w.trouble(v.ctx, "ask robots.txt", err)
			return v.back(), false
		}
		if entry, ok := v.w.rulebook.known(origin); ok {
			switch e, stop := v.verdict(entry, u, path); {
			case !stop:
				return nil, true
			case e.how == giveBack: // the target waits as a URL of its own
				return nil, false
			default:
				return &e, false
			}
		}
		if v.held == host && v.unused { // so nobody else asks for the file
			if e := v.fetchRobots(origin); e != nil {
				return e, false
			}
			v.release()
			continue
		}
		if host == v.claim.Host { // of another scheme: its robots.txt takes a turn as well
			if e := v.depart(); e != nil {
				return e, false
			}
		}
		if granted, e := v.reserve(patience, host); e != nil || !granted {
			return e, false
		}
	}
}
