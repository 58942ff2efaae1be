package frontier

import (
	"fmt"

	"fetchd/frontier/links"
	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

// run fetches the URL and returns what to do with it.
func (v *visit) run() ending {
	defer v.release()
	defer v.dropBody()
	c, p := v.claim, &v.w.config.Policy
	if p.MaxCrashes > 0 && c.CrashCount >= p.MaxCrashes {
		return p.failed(c, ClassCrashed, fmt.Sprintf("%s: started %d times and never ended", ClassCrashed, c.CrashCount), false, 0)
	}
	if e := v.checkBudget(); e != nil {
		return *e
	}
	if e, stop := v.askOwn(); stop {
		return e
	}
	kind := pageChain
	switch {
	case c.Kind == store.Sitemap:
		kind = sitemapChain
	case v.needed():
		kind = requisiteChain
	}
	outcome, e := v.chain(c.URL, kind, c.Earlier)
	if e != nil {
		return *e
	}
	result := p.judge(c, outcome, v.totals)
	result.fetch.Content = contentOf(outcome.GetResponse(), v.w.config.KeepHeaders)
	if outcome.GetKind() == pb.OutcomeKind_OUTCOME_KIND_NOT_MODIFIED {
		result.fetch.BodyDigest = c.BodyDigest
	}
	if result.queue != "" && !v.allows(result.queue) {
		return *v.outOfScope(outcome, result.queue)
	}
	if result.how == record && result.fetch.Status == store.Fetched && outcome.GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
		return v.received(outcome, result)
	}
	return result
}

// received stores the body of a success, and adds what it links to.
func (v *visit) received(outcome *pb.FetchOutcome, result ending) ending {
	if v.body != nil {
		if e := v.keep(outcome); e != nil {
			e.fetch.Content = result.fetch.Content
			return *e
		}
		result.fetch.BodyDigest = outcome.GetBodySummary().GetSha256()
	}
	if v.spool != nil {
		if e := v.discover(outcome, &result); e != nil {
			return *e
		}
	}
	if v.leftOut || v.tooDeep() && !v.w.config.Recrawl.On() || v.mayBecomeMore(&result) {
		// A 304 would hide the links from a crawl with larger limits, or once the URL is more than a requisite.
		result.fetch.ETag, result.fetch.LastModified = "", ""
	}
	return result
}

// mayBecomeMore reports whether what a requisite was fetched for has left something in it unread.
func (v *visit) mayBecomeMore(e *ending) bool {
	switch media := e.fetch.ContentType; v.claim.Kind {
	case store.Requisite:
		return isHTML(media)
	case store.Asset:
		return links.HasRequisites(media, v.claim.URL)
	default:
		return false
	}
}

// discover adds what the body of a success links to. It changes e if the body is not usable. It
// returns the visit's ending if that failed.
func (v *visit) discover(outcome *pb.FetchOutcome, e *ending) *ending {
	found := v.discovers() && isHTML(e.fetch.ContentType) || v.searchesRequisites() && links.HasRequisites(e.fetch.ContentType, outcome.GetFinalUrl())
	if v.claim.Kind != store.Sitemap && !found {
		return nil
	}
	var stop *ending
	err := v.wait(func() error {
		defer v.w.searches()()
		body, err := v.spool.reader(outcome.GetInlineBody())
		if err != nil {
			return err
		}
		if v.claim.Kind == store.Sitemap {
			stop, err = v.readSitemap(body, outcome.GetFinalUrl(), e)
		} else {
			stop, err = v.readPage(body, outcome, e)
		}
		return err
	})
	if err != nil {
		v.notKept(err)
		return &ending{how: giveBackDelayed}
	}
	return stop
}

func isHTML(mediaType string) bool {
	return mediaType == "" || mediaType == "text/html" || mediaType == "application/xhtml+xml"
}

// checkBudget ends a visit to a host that has used up its budget.
func (v *visit) checkBudget() *ending {
	limit := v.w.config.Budget.HostBytes
	if limit == 0 {
		return nil
	}
	used, err := v.w.store.HostBytes(v.ctx, v.claim.Host)
	if err != nil {
		return v.storeFailed("read the use of a host", err)
	}
	if used < limit {
		return nil
	}
	text := fmt.Sprintf("the host has used %d bytes of %d", used, limit)
	e := v.failed(ClassOverBudget, ClassOverBudget+": "+text, false, 0)
	e.action, e.fetch.Status = AbortHost, store.Dead
	return &e
}
