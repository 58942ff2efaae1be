package frontier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"fetchd/frontier/links"
	"fetchd/frontier/normal"
	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

// putBatch is the number of entries in one Put.
const putBatch = 1000

// discovers reports whether the links of a page are added.
func (v *visit) discovers() bool {
	d := v.w.config.Discovery
	return d != nil && v.claim.Kind == store.Page && !v.tooDeep()
}

// tooDeep reports whether the links of a page have a greater depth than the maximum.
func (v *visit) tooDeep() bool {
	d := v.w.config.Discovery
	return d != nil && v.claim.Kind == store.Page && d.MaxDepth >= 0 && v.claim.Depth >= d.MaxDepth
}

// allows reports whether the target of a redirect, or another URL of the claim's kind, belongs to the crawl. A requisite
// belongs to it wherever it is.
func (v *visit) allows(url string) bool {
	d := v.w.config.Discovery
	if d == nil || d.Scope == nil {
		return true
	}
	u, err := normal.NormalizeURL(url)
	if err != nil {
		return false // fetchd accepts some URLs without a normal form
	}
	switch {
	case v.claim.Kind == store.Sitemap:
		return d.Scope.AllowsSitemap(u)
	case v.needed():
		return !d.Scope.Excludes(u)
	}
	return v.inScope(u)
}

// inScope reports whether a URL in its normal form is a page of the crawl.
func (v *visit) inScope(u string) bool {
	d := v.w.config.Discovery
	return d == nil || d.Scope == nil || d.Scope.Allows(u)
}

// outOfScope ends a visit whose redirect leads out of the scope.
func (v *visit) outOfScope(outcome *pb.FetchOutcome, to string) *ending {
	e := v.w.config.Policy.failed(v.claim, ClassOutOfScope, fmt.Sprintf("%s: a redirect leads to %.500s", ClassOutOfScope, to), false, 0)
	e.fetch.FetchedParams = v.totals.params(v.claim, outcome)
	e.fetch.ETag, e.fetch.LastModified = "", ""
	e.fetch.Content = contentOf(outcome.GetResponse(), v.w.config.KeepHeaders)
	return &e
}

// errEnded means that a visit has ended, and [visit.stopped] returns its ending.
var errEnded = errors.New("the visit has ended")

// searchPage returns the links of a page when it is its host's turn. Until release is called, the
// links count for maxPages. The error is that of body, or errEnded.
func (v *visit) searchPage(body io.Reader, c links.Config) (page links.Page, release func(), err error) {
	t, err := v.w.search.turns.enter(v.ctx, normal.HostOf(c.URL))
	if err != nil {
		return page, nil, errEnded
	}
	defer func() { v.w.search.turns.leave(t, page.Work) }()
	if err := v.w.search.pages.Acquire(v.ctx, 1); err != nil {
		return page, nil, errEnded
	}
	release = func() { v.w.search.pages.Release(1) }
	c.Pause = func(int) error { return context.Cause(v.ctx) } // it keeps its turn, because it holds memory
	page, err = links.Read(body, c)
	if err != nil {
		release()
		if v.ctx.Err() != nil {
			err = errEnded
		}
	}
	return page, release, err
}

// pages returns the links of a page that may be added, how many are out of the scope, and what the rules against traps
// found.
func (v *visit) pages(found []string) (entries []store.Entry, outOfScope int, t Traps) {
	for _, u := range found {
		switch {
		case !v.inScope(u):
			outOfScope++
		case !t.refuses(u):
			entry := v.entry(u, store.Page, v.claim.Depth+1)
			entry.Linked = true
			entries = append(entries, entry)
		}
	}
	return entries, outOfScope, t
}

// readPage adds the links and requisites of a document. If a limit has left out some, it says so in e.
func (v *visit) readPage(body io.Reader, outcome *pb.FetchOutcome, e *ending) (*ending, error) {
	w, d := v.w, v.w.config.Discovery
	c := links.Config{URL: outcome.GetFinalUrl(), ContentType: e.fetch.ContentType, Agent: w.config.UserAgent,
		Requisites: v.searchesRequisites(), NoLinks: !v.discovers() || !isHTML(e.fetch.ContentType)}
	var limits store.Limits
	if d != nil {
		c.Limits, limits = d.Links, d.Limits
	}
	for _, h := range outcome.GetResponse().GetHeaders() {
		switch h.GetName() {
		case "Content-Type":
			c.ContentType = h.GetValue()
		case "X-Robots-Tag":
			c.RobotsTags = append(c.RobotsTags, h.GetValue())
		}
	}
	if !c.NoLinks {
		stop := v.checkTwins(outcome.GetBodySummary().GetSha256(), e, &c)
		if stop != nil || c.NoLinks && !c.Requisites {
			return stop, nil
		}
	}
	page, release, err := v.searchPage(body, c)
	switch {
	case errors.Is(err, errEnded):
		return v.stopped(), nil
	case err != nil:
		return nil, err
	}
	defer release()
	if page.Cut != "" {
		v.noteLeftOut(e, "links", page.Cut, links.CutName(page.Cut))
	}
	if v.claim.Kind == store.Page {
		e.fetch.Title = page.Title
	}
	if c.Requisites {
		reason, stop := v.putRequisites(page)
		if stop != nil {
			return stop, nil
		}
		if reason != "" {
			v.noteLeftOut(e, "requisites", reason, "requisites")
		}
	}
	entries, outOfScope, t := v.pages(page.Links)
	w.found.add(func(f *Found) {
		f.Links += int64(len(page.Links))
		f.OutOfScope += int64(outOfScope)
		f.Traps.add(&t)
		f.NoFollow += int64(page.NoFollow)
		f.TooLong += int64(page.TooLong)
		if page.Closed {
			f.NoFollow++
		}
		if page.Cut != "" {
			if f.Cut == nil {
				f.Cut = make(map[string]int64)
			}
			f.Cut[page.Cut]++
		}
	})
	return v.put(entries, limits), nil
}

func (v *visit) entry(url string, kind store.Kind, depth int) store.Entry {
	return store.Entry{URL: url, Kind: kind, Depth: depth, Parent: v.claim.ID, Priority: v.claim.Priority}
}

// put adds entries. It returns the visit's ending if that failed.
func (v *visit) put(entries []store.Entry, limits store.Limits) *ending {
	for chunk := range slices.Chunk(entries, putBatch) {
		if e := v.stopped(); e != nil {
			return e
		}
		var r store.PutResult
		ok := v.w.persist("add links", func(ctx context.Context) (err error) {
			r, err = v.w.store.Put(ctx, chunk, limits)
			return err
		})
		if !ok {
			return &ending{how: giveBackDelayed}
		}
		v.w.found.add(func(f *Found) {
			f.Added += r.Added
			f.Over += r.Over
			f.OverHost += r.OverHost
		})
		v.leftOut = v.leftOut || r.Over+r.OverHost > 0
	}
	return nil
}
