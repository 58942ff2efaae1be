package frontier

import (
	"context"
	"fmt"
	"time"

	"fetchd/frontier/normal"
	"fetchd/frontier/robots"
	"fetchd/frontier/rulebook"
	"fetchd/frontier/store"
	"fetchd/frontier/work"
	pb "fetchd/gen/fetchd/v1"
)

// causeHostClosed is the cause if the host of a redirect's target did not open in time.
const causeHostClosed = "redirect_host_closed"

// askOwn reports whether robots.txt stops the visit. If the file must be fetched first, this visit
// fetches it, and the URL waits for the next turn of its host.
func (v *visit) askOwn() (e ending, stop bool) {
	if v.w.config.IgnoreRobots {
		return ending{}, false
	}
	origin, path := normal.OriginOf(v.claim.URL)
	entry, err := v.rules(v.ctx, origin, path) // another worker may have read it since the claim
	switch {
	case err != nil:
		return *v.storeFailed("ask robots.txt", err), true
	case entry.Fresh():
		return v.verdict(entry, v.claim.URL, path)
	}
	return v.fetchOwnRobots(origin, path, v.w.rulebook.OnceEnough(origin, entry)), true
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
	if entry, err := v.rules(v.ctx, origin, path); err == nil && entry.Fresh() {
		return ending{how: giveBackDelayed} // the request for the file closes the host for its delay
	}
	if e := v.fetchRobots(origin, once); e != nil {
		return *e
	}
	return ending{how: giveBackDelayed}
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
			return v.storeFailed("ask robots.txt", err), false
		}
		if entry.Fresh() {
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
			if e := v.fetchRobots(origin, v.w.rulebook.OnceEnough(origin, entry)); e != nil {
				return e, false
			}
			v.release()
			if host != v.claim.Host {
				v.stray(origin)
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

// stray records that the robots.txt of a redirect's target was saved.
func (v *visit) stray(origin string) {
	if err := v.w.rulebook.Stray(origin); err != nil { // sweepLoop will delete them
		v.w.reportError(v.ctx, "drop robots.txt of hosts without URLs", err)
	}
}

// rules returns the rules of an origin. It may take longer than the lease lasts. If the rules
// forbid path, it asks the store again, because a user may have made the store forget the file
// since this worker read it.
func (v *visit) rules(ctx context.Context, origin, path string) (e rulebook.Entry, err error) {
	err = v.wait(func() error {
		e, err = v.w.rulebook.Rules(ctx, origin)
		if err == nil && e.Fresh() && !v.decide(e.Policy, path).Allowed {
			e, err = v.w.rulebook.Confirmed(ctx, origin, e)
		}
		return err
	})
	return e, err
}

// decide applies rules of robots.txt to a path. If that takes long, it waits for the turn of the
// visit's host: 10,000 rules and a long URL take as long as the search of a page.
func (v *visit) decide(p robots.Policy, path string) (d robots.Decision) {
	cost := p.Cost(path)
	if cost < 2*work.Quantum {
		return p.Decide(path)
	}
	_ = v.wait(func() error {
		// If the visit has ended, its ending needs a decision all the same.
		if t, err := v.w.search.turns.enter(v.ctx, v.claim.Host); err == nil {
			defer v.w.search.turns.leave(t, cost)
		}
		d = p.Decide(path)
		return nil
	})
	return d
}

// verdict reports whether the rules stop the visit, and how it ends then.
func (v *visit) verdict(entry rulebook.Entry, url, path string) (e ending, stop bool) {
	d := v.decide(entry.Policy, path)
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
func (v *visit) outOfReach(entry rulebook.Entry, url string) ending {
	if again := time.Until(entry.Until); entry.EndsURLs() {
		cause := entry.Policy.Cause
		return v.failed(cause, cause+": of its robots.txt"+v.ofRedirect(url), cause == "dns_not_found", again)
	}
	if d := entry.Defers(v.w.config.RobotsPatience, 0); d > 0 {
		origin, _ := normal.OriginOf(url)
		return ending{how: giveBack, deferred: origin, deferFor: d}
	}
	return v.failed(ClassRobotsUnreachable, ClassRobotsUnreachable+": "+entry.Cause()+v.ofRedirect(url), false, 0)
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
	answer, last, asked := answerOf(outcome), normal.HostOf(lastURL(outcome)), askedFor(outcome)
	v.w.stats.robots.Add(1)
	v.w.metrics.robots.Inc()
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
	if err := v.wait(func() error { return v.w.saveAnswer(v.w.storing, r, asked) }); err != nil {
		v.w.reportError(v.ctx, "keep a robots.txt", err)
		return &ending{how: giveBackDelayed}
	}
	if answer.Status == 429 || asked > 0 { // a 503 that asks for nothing may be a fault of this origin alone
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
		return store.Earlier{}, v.storeFailed("ask robots.txt", err)
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
	d, err := w.rulebook.SaveAnswer(ctx, r, pause)
	if err != nil {
		return err
	}
	if d > 0 {
		w.deferOrigin(r.Origin, d)
	}
	return w.rulebook.LearnDelay(ctx, normal.HostOf(r.Origin))
}
