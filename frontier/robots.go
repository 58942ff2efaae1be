package frontier

import (
	"context"
	"fmt"
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
)

// policyOf is what an answer means, or the last one before a file went out of reach.
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

// askOwn says whether robots.txt stops the visit. Where the file has to be fetched
// first, that is this visit's fetch: the URL's own turn comes after the delay.
func (v *visit) askOwn() (e ending, stop bool) {
	if v.w.config.IgnoreRobots {
		return ending{}, false
	}
	origin, path := originOf(v.claim.URL)
	entry, err := v.rules(v.ctx, origin, path) // another worker may have read it since the claim
	switch {
	case err != nil && v.ctx.Err() != nil:
		return *v.stopped(), true
	case err != nil:
		v.w.trouble(v.ctx, "ask robots.txt", err)
		return *v.back(), true
	case entry.fresh():
		return v.verdict(entry, v.claim.URL, path)
	}
	if e := v.fetchRobots(origin); e != nil {
		return *e, true
	}
	return ending{how: chargeBack}, true
}

// rules returns what holds for an origin. That may take longer than the lease lasts.
// An answer that stops the visit is looked up in the store once more: since this
// worker read it, a person may have had it forgotten there.
func (v *visit) rules(ctx context.Context, origin, path string) (e rulebookEntry, err error) {
	err = v.wait(func() error {
		e, err = v.w.rules(ctx, origin)
		if err == nil && e.fresh() && !e.policy.Decide(path).Allowed {
			e, err = v.w.confirmed(ctx, origin, e)
		}
		return err
	})
	return e, err
}

// verdict stops the visit where the rules say so of a URL.
func (v *visit) verdict(entry rulebookEntry, url, path string) (e ending, stop bool) {
	d := entry.policy.Decide(path)
	p := &v.w.config.Policy
	switch {
	case d.Allowed:
		return ending{}, false
	case d.Reason == robots.Unreachable:
		return v.outOfReach(entry, url), true
	default:
		text := fmt.Sprintf("%s: line %d, %.200s", ClassRobotsDisallowed, d.Line.Number, d.Line.Text) + v.ofRedirect(url)
		e = p.failed(v.claim, ClassRobotsDisallowed, text, false, 0)
	}
	e.fetch.Attempts, e.fetch.Duration, e.fetch.Wait = v.made.attempts, v.made.duration, v.made.wait
	return e, true
}

// ofRedirect names the robots.txt that decided about a URL where that is not the
// claimed one.
func (v *visit) ofRedirect(url string) string {
	if url == v.claim.URL {
		return ""
	}
	origin, _ := originOf(url)
	return store.BehindRedirect(origin)
}

// outOfReach is the end of a visit whose robots.txt cannot be had. The URL waits
// with its host, and nothing is counted, unless that has gone on for too long or
// says something of the URL itself.
func (v *visit) outOfReach(entry rulebookEntry, url string) ending {
	cause, again := entry.policy.Cause, time.Until(entry.until)
	var e ending
	switch {
	case cause == "dns_not_found" || cause == "invalid_request":
		e = v.w.config.Policy.failed(v.claim, cause, cause+": of its robots.txt"+v.ofRedirect(url), cause == "dns_not_found", again)
	case time.Since(entry.away) < v.w.config.RobotsPatience:
		return ending{how: giveBack, block: hostOf(url), blockFor: max(again, time.Millisecond)}
	default:
		e = v.w.config.Policy.failed(v.claim, ClassRobotsUnreachable, ClassRobotsUnreachable+": "+cause+v.ofRedirect(url), false, 0)
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
	switch outcome.GetError().GetErrorClass() {
	case pb.ErrorClass_ERROR_CLASS_CANCELLED, pb.ErrorClass_ERROR_CLASS_SHUTDOWN:
		return &ending{how: chargeBack}
	case pb.ErrorClass_ERROR_CLASS_TARGET_BLOCKED:
		return v.robotsBlocked(origin, outcome)
	}
	answer, last, asked := answerOf(outcome), hostOf(lastURL(outcome)), askedFor(outcome.GetError())
	v.w.config.Metrics.robotsRead()
	r := store.Robots{Origin: origin, Status: answer.Status, ErrorClass: answer.ErrorClass, Body: answer.Body}
	r.Unreachable = robots.Judge(robots.Answer{Status: r.Status, ErrorClass: r.ErrorClass}, "").Deferred()
	if err := v.wait(func() error { return v.w.learnRobots(v.w.last, r) }); err != nil {
		v.w.trouble(v.ctx, "keep a robots.txt", err)
		return &ending{how: chargeBack}
	}
	if status := answer.Status; status == 429 || status == 503 {
		v.w.block(last, asked)
	}
	return nil
}

// robotsBlocked is the end of a visit whose robots.txt fetchd may not reach. It is not
// kept as an answer: it is about fetchd's settings and not about the host, and holds
// for as long as those do.
func (v *visit) robotsBlocked(origin string, outcome *pb.FetchOutcome) *ending {
	if lastURL(outcome) != origin+"/robots.txt" { // a redirect leads there, so its host was asked
		v.w.charge([]string{hostOf(origin)})
	}
	f := outcome.GetError()
	class := className(f.GetErrorClass())
	text := class + ": of its robots.txt: " + f.GetMessage()
	if detail := f.GetDetail(); detail != "" {
		text += "; " + detail
	}
	if own, _ := originOf(v.claim.URL); origin != own {
		text += store.BehindRedirect(origin)
	}
	e := v.w.config.Policy.failed(v.claim, class, text, f.GetRetryable(), 0)
	e.host = hostOf(origin)
	e.fetch.Attempts, e.fetch.Duration, e.fetch.Wait = v.made.attempts, v.made.duration, v.made.wait
	return &e
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
	if err := w.save(ctx, r); err != nil {
		return err
	}
	return w.learnDelay(ctx, hostOf(r.Origin))
}

// learnDelay gives a host the longest Crawl-delay of its robots.txt files: http and
// https of one name have one each.
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
		entry, err := v.rules(patience, origin, path)
		if err != nil {
			if patience.Err() != nil {
				return v.stopped(), false
			}
			v.w.trouble(v.ctx, "ask robots.txt", err)
			return v.back(), false
		}
		if entry.fresh() {
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
			if host != v.claim.Host {
				v.w.stray(origin)
			}
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
