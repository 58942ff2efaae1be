package frontier

import (
	"context"
	"fmt"
	"strings"
	"time"

	"fetchd/frontier/normal"
	"fetchd/frontier/robots"
	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

const (
	// robotsRedirects limits the redirects to a robots.txt: RFC 9309 §2.3.1.2.
	robotsRedirects = robots.MaxRedirects
	// robotsSoonest and robotsLatest limit the delay before an unreachable robots.txt is fetched
	// again. Between them the delay is that of URL retries.
	robotsSoonest = time.Second
	robotsLatest  = 10 * time.Minute
)

// policyOf returns the policy of a stored answer. If the file is unreachable, an older answer may
// apply.
func policyOf(r store.Robots, product string) robots.Policy {
	if !r.Unreachable {
		return robots.Judge(robots.Answer{Status: r.Status, ErrorClass: r.ErrorClass, Body: r.Body}, product)
	}
	var stale *robots.Rules
	if r.HasBody && r.UnreachableFor >= robots.DeferFor {
		stale = robots.Judge(robots.Answer{Status: r.BodyStatus, Body: r.Body}, product).Rules
	}
	return robots.Judge(robots.Answer{Status: r.Status, ErrorClass: r.ErrorClass}, product).After(r.UnreachableFor, stale)
}

// askOwn reports whether robots.txt stops the visit. If the file must be fetched first, this visit
// fetches it, and the URL waits for the next turn of its host.
func (v *visit) askOwn() (e ending, stop bool) {
	if v.w.config.IgnoreRobots {
		return ending{}, false
	}
	origin, path := normal.OriginOf(v.claim.URL)
	entry, err := v.rules(v.ctx, origin, path) // another worker may have read it since the claim
	switch {
	case err != nil && v.ctx.Err() != nil:
		return *v.stopped(), true
	case err != nil:
		v.w.reportError(v.ctx, "ask robots.txt", err)
		return *v.back(), true
	case entry.fresh():
		return v.verdict(entry, v.claim.URL, path)
	}
	return v.fetchOwnRobots(origin, path, v.w.onceEnough(origin, entry)), true
}

// fetchOwnRobots fetches the robots.txt of the claimed URL's origin. A host with many fetches at a time
// has many visits that need the file: one of them fetches it, and the others wait.
func (v *visit) fetchOwnRobots(origin, path string, once bool) ending {
	turns := &v.w.robotsTurns
	if !turns.try(origin) {
		patience, cancel := context.WithCancel(v.ctx)
		defer cancel()
		defer context.AfterFunc(v.w.draining, cancel)()
		if err := v.wait(func() error { return turns.wait(patience, origin) }); err != nil {
			return *v.impatient()
		}
	}
	defer turns.leave(origin)
	// Another visit may have fetched it since this one looked, also one that no longer has the turn.
	if entry, err := v.rules(v.ctx, origin, path); err == nil && entry.fresh() {
		return ending{how: giveBackDelayed} // the request for the file closes the host for its delay
	}
	if e := v.fetchRobots(origin, once); e != nil {
		return *e
	}
	return ending{how: giveBackDelayed}
}

// onceEnough reports whether one attempt at the robots.txt of an origin is enough: it was unreachable, or the other
// origin of its host answers. More attempts would cost turns of a host that works.
func (w *Worker) onceEnough(origin string, entry rulebookEntry) bool {
	scheme, host, _ := strings.Cut(origin, "://")
	other, known := w.rulebook.known(map[string]string{"http": "https", "https": "http"}[scheme] + "://" + host)
	return entry.unreachable() || known && !other.unreachable()
}

// rules returns the rules of an origin. It may take longer than the lease lasts. If the rules
// forbid path, it asks the store again, because a user may have made the store forget the file
// since this worker read it.
func (v *visit) rules(ctx context.Context, origin, path string) (e rulebookEntry, err error) {
	err = v.wait(func() error {
		e, err = v.w.rules(ctx, origin)
		if err == nil && e.fresh() && !v.decide(e.policy, path).Allowed {
			e, err = v.w.confirmed(ctx, origin, e)
		}
		return err
	})
	return e, err
}

// verdict reports whether the rules stop the visit, and how it ends then.
func (v *visit) verdict(entry rulebookEntry, url, path string) (e ending, stop bool) {
	d := v.decide(entry.policy, path)
	switch {
	case d.Allowed:
		return ending{}, false
	case d.Reason == robots.Unreachable:
		return v.outOfReach(entry, url), true
	}
	text := fmt.Sprintf("%s: line %d, %.200s", ClassRobotsDisallowed, d.Line.Number, d.Line.Text) + v.ofRedirect(url)
	return v.failed(ClassRobotsDisallowed, text, false, 0), true
}

// ofRedirect names the origin whose robots.txt decided about url, unless it is the origin of the
// claimed URL.
func (v *visit) ofRedirect(url string) string {
	if url == v.claim.URL {
		return ""
	}
	origin, _ := normal.OriginOf(url)
	return store.BehindRedirect(origin)
}

// outOfReach ends a visit whose robots.txt is unreachable. The URL waits with its origin and nothing
// is counted, unless this has lasted too long or the cause lies in the URL itself.
func (v *visit) outOfReach(entry rulebookEntry, url string) ending {
	if again := time.Until(entry.until); entry.endsURLs() {
		cause := entry.policy.Cause
		return v.failed(cause, cause+": of its robots.txt"+v.ofRedirect(url), cause == "dns_not_found", again)
	}
	if d := entry.defers(v.w.config.RobotsPatience, 0); d > 0 {
		origin, _ := normal.OriginOf(url)
		return ending{how: giveBack, deferred: origin, deferFor: d}
	}
	return v.failed(ClassRobotsUnreachable, ClassRobotsUnreachable+": "+entry.cause()+v.ofRedirect(url), false, 0)
}

// failed returns the ending of a URL that may not be fetched, with the requests made so far.
func (v *visit) failed(class, text string, retryable bool, asked time.Duration) ending {
	e := v.w.config.Policy.failed(v.claim, class, text, retryable, asked)
	e.fetch.Attempts, e.fetch.Duration, e.fetch.Wait = v.totals.attempts, v.totals.duration, v.totals.wait
	return e
}

// fetchRobots fetches and stores the robots.txt of an origin. The visit must hold its host. once allows one
// attempt only.
func (v *visit) fetchRobots(origin string, once bool) *ending {
	earlier, e := v.earlierRobots(origin)
	if e != nil {
		return e
	}
	totals, kind := v.totals, robotsChain
	if once {
		kind = robotsOnceChain
	}
	outcome, e := v.chain(origin+"/robots.txt", kind, earlier)
	v.totals = totals // they count requests for the page only
	if e != nil {
		return e
	}
	switch outcome.GetError().GetErrorClass() {
	case pb.ErrorClass_ERROR_CLASS_CANCELLED, pb.ErrorClass_ERROR_CLASS_SHUTDOWN:
		return &ending{how: giveBackDelayed}
	case pb.ErrorClass_ERROR_CLASS_TARGET_BLOCKED:
		return v.robotsBlocked(origin, outcome)
	}
	answer, last, asked := answerOf(outcome), normal.HostOf(lastURL(outcome)), askedFor(outcome.GetError())
	v.w.stats.robots.Add(1)
	v.w.config.Metrics.robots.Inc()
	r := store.Robots{Origin: origin, Status: answer.Status, ErrorClass: answer.ErrorClass, ErrorText: robotsError(origin, outcome), Body: answer.Body, Earlier: earlier}
	if outcome.GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
		r.Earlier = earlierOf(outcome, earlier)
	}
	if answer.Status/100 == 2 {
		if e := v.putSitemaps(origin, answer.Body); e != nil {
			return e
		}
	}
	r.Unreachable = robots.Judge(robots.Answer{Status: r.Status, ErrorClass: r.ErrorClass}, "").Deferred()
	// A 503 without Retry-After asks for nothing, and may be a fault of this origin alone.
	pauses := answer.Status == 429 || answer.Status == 503 && asked > 0
	if !pauses {
		asked = 0
	}
	if err := v.wait(func() error { return v.w.saveAnswer(v.w.storing, r, asked) }); err != nil {
		v.w.reportError(v.ctx, "keep a robots.txt", err)
		return &ending{how: giveBackDelayed}
	}
	if pauses {
		v.w.block(last, asked)
	}
	return nil
}

// robotsError returns what fetchd said about a robots.txt that it could not read, and where a redirect has led.
func robotsError(origin string, outcome *pb.FetchOutcome) string {
	f := outcome.GetError()
	if f == nil {
		return ""
	}
	if last := lastURL(outcome); last != "" && last != origin+"/robots.txt" {
		return message(f) + ", at " + last
	}
	return message(f)
}

// earlierRobots returns the record of the robots.txt before, which is zero if the crawl is not
// recorded.
func (v *visit) earlierRobots(origin string) (store.Earlier, *ending) {
	if v.w.config.RecordStore == "" {
		return store.Earlier{}, nil
	}
	found, err := v.w.store.RobotsHeads(v.ctx, []string{origin})
	if err != nil {
		if e := v.stopped(); e != nil {
			return store.Earlier{}, e
		}
		v.w.reportError(v.ctx, "ask robots.txt", err)
		return store.Earlier{}, v.back()
	}
	return found[origin].Earlier, nil
}

// robotsBlocked ends a visit whose robots.txt fetchd may not reach. It does not store an answer,
// because the cause is a setting of fetchd and not the host.
func (v *visit) robotsBlocked(origin string, outcome *pb.FetchOutcome) *ending {
	if lastURL(outcome) != origin+"/robots.txt" { // a redirect led there, so the host got a request
		v.w.delayHosts([]string{normal.HostOf(origin)})
	}
	f := outcome.GetError()
	class := className(f.GetErrorClass())
	text := class + ": of its robots.txt: " + message(f)
	if own, _ := normal.OriginOf(v.claim.URL); origin != own {
		text += store.BehindRedirect(origin)
	}
	e := v.failed(class, text, f.GetRetryable(), 0)
	e.host = normal.HostOf(origin)
	return &e
}

// causeHostClosed is the cause if the host of a redirect's target did not open in time.
const causeHostClosed = "redirect_host_closed"

// answerOf returns the result of a fetch of a robots.txt. A redirect that could not be followed in
// time is not an answer: nothing is known about its target.
func answerOf(outcome *pb.FetchOutcome) robots.Answer {
	body := outcome.GetInlineBody()
	a := robots.Answer{Status: int(outcome.GetResponse().GetStatusCode()), Body: body[:min(len(body), robots.MaxBytes+1)]}
	if f := outcome.GetError(); f != nil {
		a.ErrorClass = className(f.GetErrorClass())
	}
	if outcome.GetKind() == pb.OutcomeKind_OUTCOME_KIND_REDIRECT && normal.HostOf(target(outcome)) != "" {
		a.ErrorClass = causeHostClosed
	}
	return a
}

// saveAnswer stores an answer for all workers, and its delay. If there is none, it defers the origin until the
// file is fetched again. pause is how long the host closes for it.
func (w *Worker) saveAnswer(ctx context.Context, r store.Robots, pause time.Duration) error {
	if err := w.save(ctx, r); err != nil {
		return err
	}
	if r.Unreachable {
		e, err := w.rules(ctx, r.Origin)
		if err != nil {
			return err
		}
		if d := e.defers(w.config.RobotsPatience, pause); d > 0 && !e.endsURLs() {
			w.deferOrigin(r.Origin, d)
		}
	}
	return w.learnDelay(ctx, normal.HostOf(r.Origin))
}

// learnDelay sets the delay of a host to the longest Crawl-delay of its robots.txt files. A host
// may have one for http and one for https.
func (w *Worker) learnDelay(ctx context.Context, host string) error {
	var delay time.Duration
	for _, origin := range []string{"http://" + host, "https://" + host} {
		e, err := w.rules(ctx, origin)
		if err != nil {
			return err
		}
		if rules := e.policy.Rules; rules != nil {
			delay = max(delay, min(rules.CrawlDelay, w.config.MaxCrawlDelay))
		}
	}
	ctx, cancel := w.finishing()
	defer cancel()
	return w.store.SetHost(ctx, host, store.HostParams{CrawlDelay: &delay})
}

// askForeign reports whether a redirect may lead to u, which is in its normal form. known is false
// if it takes too long to find out.
func (v *visit) askForeign(patience context.Context, u string) (e *ending, known bool) {
	if v.w.config.IgnoreRobots {
		return nil, true
	}
	origin, path := normal.OriginOf(u)
	host, err := normal.ExtractHost(u)
	if err != nil {
		return nil, false
	}
	for {
		entry, err := v.rules(patience, origin, path)
		if err != nil {
			if patience.Err() != nil {
				return v.stopped(), false
			}
			v.w.reportError(v.ctx, "ask robots.txt", err)
			return v.back(), false
		}
		if entry.fresh() {
			switch e, stop := v.verdict(entry, u, path); {
			case !stop:
				return nil, true
			case e.how == giveBack: // the target is added to the frontier
				return nil, false
			default:
				return &e, false
			}
		}
		if v.held == host && v.unused { // no other visit fetches the file now
			if e := v.fetchRobots(origin, v.w.onceEnough(origin, entry)); e != nil {
				return e, false
			}
			v.release()
			if host != v.claim.Host {
				v.w.stray(origin)
			}
			continue
		}
		if host == v.claim.Host { // the other scheme's robots.txt needs a turn of the host too
			if e := v.leaveHost(); e != nil {
				return e, false
			}
		}
		if granted, e := v.reserve(patience, host); e != nil || !granted {
			return e, false
		}
	}
}
