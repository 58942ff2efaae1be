package frontier

import (
	"fmt"

	"fetchd/client"
	"fetchd/frontier/sitemap"
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
	if c.Kind == store.Sitemap {
		kind = sitemapChain
	}
	outcome, e := v.chain(c.URL, kind, c.Earlier)
	if e != nil {
		return *e
	}
	result := p.judge(c, outcome, v.totals)
	result.fetch.Content = contentOf(outcome.GetResponse(), v.w.config.KeepHeaders)
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
		digest := outcome.GetBodySummary().GetSha256()
		if !v.keep(digest, outcome.GetInlineBody()) {
			return ending{how: giveBackDelayed}
		}
		result.fetch.BodyDigest = digest
	}
	if v.spool != nil {
		if e := v.discover(outcome, &result); e != nil {
			return *e
		}
	}
	if v.leftOut || v.tooDeep() && !v.w.config.Recrawl.On() {
		// A 304 would hide the links from a crawl with larger limits.
		result.fetch.ETag, result.fetch.LastModified = "", ""
	}
	return result
}

// newBody drops the body of the part before, which was a redirect, and prepares the next one. It
// returns nil if the body is not needed.
func (v *visit) newBody() client.BodyWriter {
	v.dropBody()
	var to writers
	if v.w.config.Bodies != nil {
		// Not v.ctx: a body whose outcome has arrived is stored even if the visit is cancelled.
		v.body = v.w.config.Bodies.New(v.w.storing)
		to = append(to, v.body)
	}
	switch {
	case v.claim.Kind == store.Sitemap:
		v.spool = &spool{limit: sitemap.MaxBytes}
	case v.discovers():
		v.spool = &spool{limit: v.w.config.Discovery.Links.DocumentBytes() + 1} // one more shows that it is longer
	}
	if v.spool != nil {
		to = append(to, v.spool)
	}
	if len(to) == 0 {
		return nil
	}
	return to
}

func (v *visit) dropBody() {
	if v.spool != nil {
		v.spool.close()
		v.spool = nil
	}
	if v.body != nil {
		v.body.Drop()
		v.body = nil
	}
}

// keep stores the body, of which last is not written yet. If that fails, the URL is fetched again
// later.
func (v *visit) keep(digest string, last []byte) bool {
	if digest == "" { // a 204
		return true
	}
	if err := v.wait(func() error { return v.body.Commit(digest, last) }); err != nil {
		v.notKept(err)
		return false
	}
	v.w.backoff.succeeded()
	return true
}

// discover adds what the body of a success links to. It changes e if the body is not usable. It
// returns the visit's ending if that failed.
func (v *visit) discover(outcome *pb.FetchOutcome, e *ending) *ending {
	if v.claim.Kind == store.Page && (!v.discovers() || !isHTML(e.fetch.ContentType)) {
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
