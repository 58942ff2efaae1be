package frontier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"

	"fetchd/frontier/links"
	"fetchd/frontier/normal"
	"fetchd/frontier/robots"
	"fetchd/frontier/scope"
	"fetchd/frontier/sitemap"
	"fetchd/frontier/store"
	"fetchd/frontier/work"
	pb "fetchd/gen/fetchd/v1"
)

const (
	// putBatch is the number of entries in one Put.
	putBatch = 1000
	// maxSitemapDepth limits how deep sitemap indexes are nested.
	maxSitemapDepth = 3
	// maxPages is how many pages have their links in memory at once, and maxSitemaps how many sitemaps
	// are being read. One of either holds 1 MiB of URLs.
	maxPages    = 16
	maxSitemaps = 32
	// putBytes is how many bytes of a sitemap's URLs are collected for one Put.
	putBytes = 1 << 20
	// maxRobotsWork limits the work for the Sitemap lines of a robots.txt, as package work counts it:
	// enough for 1,000 long ones.
	maxRobotsWork = 32 << 20
)

// Discovery makes a worker add what pages link to.
type Discovery struct {
	Scope          *scope.Scope // of the links; nil means every URL
	MaxDepth       int          // links from the seeds; negative means no limit
	FollowNoFollow bool         // follow links that ask not to be followed
	NoSitemaps     bool         // ignore the Sitemap lines of robots.txt
	Links          links.Limits // of a page
	Limits         store.Limits
}

// narrow reports whether redirects within an origin may leave the scope.
func (d *Discovery) narrow() bool { return d != nil && d.Scope != nil && d.Scope.Narrow() }

// Found counts what discovery has found since the worker started.
type Found struct {
	Links      int64 // distinct links of each page, and URLs of sitemaps
	Added      int64 // of Links: new URLs
	OutOfScope int64 // of Links
	TooDeep    int64 // of Links, by a sitemap below the maximum depth
	Over       int64 // of Links: kept out by Limits.URLs
	OverHost   int64 // of Links: kept out by Limits.URLsPerHost
	NoFollow   int64 // links that asked not to be followed, and pages whose links did
	TooLong    int64 // links that are longer than a URL may be
	Sitemaps   int64 // that were read
	OverBudget int64 // URLs of hosts that have used up their budget
	// Cut counts the pages of which a limit has left out links, by the limit.
	Cut map[string]int64
}

// Found returns the counts so far. It is safe for concurrent use.
func (w *Worker) Found() Found {
	w.foundMu.Lock()
	defer w.foundMu.Unlock()
	f := w.found
	f.Cut = maps.Clone(f.Cut)
	return f
}

func (w *Worker) count(change func(*Found)) {
	w.foundMu.Lock()
	defer w.foundMu.Unlock()
	change(&w.found)
}

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

// allows reports whether the target of a redirect, or another URL of the claim's kind, belongs to the crawl.
func (v *visit) allows(url string) bool {
	d := v.w.config.Discovery
	if d == nil || d.Scope == nil {
		return true
	}
	u, err := normal.NormalizeURL(url)
	if err != nil {
		return false // fetchd accepts some URLs without a normal form
	}
	if v.claim.Kind == store.Sitemap {
		return d.Scope.AllowsSitemap(u)
	}
	return d.Scope.Allows(u)
}

// outOfScope ends a visit whose redirect leads out of the scope.
func (v *visit) outOfScope(outcome *pb.FetchOutcome, to string) *ending {
	e := v.w.config.Policy.failed(v.claim, ClassOutOfScope, fmt.Sprintf("%s: a redirect leads to %.500s", ClassOutOfScope, to), false, 0)
	e.fetch.FetchedParams = v.totals.params(v.claim, outcome)
	e.fetch.ETag, e.fetch.LastModified = "", ""
	e.fetch.Content = contentOf(outcome.GetResponse(), v.w.config.KeepHeaders)
	return &e
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

// errEnded means that a visit has ended, and [visit.stopped] returns its ending.
var errEnded = errors.New("the visit has ended")

// searchPage returns the links of a page when it is its host's turn. Until release is called, the
// links count for maxPages. The error is that of body, or errEnded.
func (v *visit) searchPage(body io.Reader, c links.Config) (page links.Page, release func(), err error) {
	t, err := v.w.turns.enter(v.ctx, normal.HostOf(c.URL))
	if err != nil {
		return page, nil, errEnded
	}
	defer func() { v.w.turns.leave(t, page.Work) }()
	if err := v.w.pages.Acquire(v.ctx, 1); err != nil {
		return page, nil, errEnded
	}
	release = func() { v.w.pages.Release(1) }
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

// readPage adds the links of a page. If a limit has left out some, it says so in e.
func (v *visit) readPage(body io.Reader, outcome *pb.FetchOutcome, e *ending) (*ending, error) {
	w, d := v.w, v.w.config.Discovery
	c := links.Config{URL: outcome.GetFinalUrl(), ContentType: e.fetch.ContentType, Agent: w.config.UserAgent, FollowNoFollow: d.FollowNoFollow, Limits: d.Links}
	for _, h := range outcome.GetResponse().GetHeaders() {
		switch h.GetName() {
		case "Content-Type":
			c.ContentType = h.GetValue()
		case "X-Robots-Tag":
			c.RobotsTags = append(c.RobotsTags, h.GetValue())
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
		w.config.Logger.InfoContext(v.ctx, "links left out", slog.String("url", v.claim.URL), slog.String("reason", page.Cut))
		w.config.Metrics.cut.WithLabelValues(links.CutName(page.Cut)).Inc()
		e.fetch.LastError = leftOutOf + page.Cut
	}
	var entries []store.Entry
	for _, u := range page.Links {
		if d.Scope == nil || d.Scope.Allows(u) {
			entries = append(entries, v.entry(u, store.Page, v.claim.Depth+1))
		}
	}
	w.count(func(f *Found) {
		f.Links += int64(len(page.Links))
		f.OutOfScope += int64(len(page.Links) - len(entries))
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
	return v.put(entries, d.Limits), nil
}

// leftOutOf starts the LastError of a fetched page of which a limit has left out links.
const leftOutOf = "links left out: "

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
		v.w.count(func(f *Found) {
			f.Added += r.Added
			f.Over += r.Over
			f.OverHost += r.OverHost
		})
		v.leftOut = v.leftOut || r.Over+r.OverHost > 0
	}
	return nil
}

// readSitemap adds what a sitemap lists. A sitemap that is not valid is dead, and what it lists before
// its fault is added.
func (v *visit) readSitemap(body io.Reader, url string, e *ending) (*ending, error) {
	base, err := normal.NewBase(url)
	if err != nil {
		return nil, nil // it was fetched, so it has a normal form
	}
	l, err := v.newListing()
	if err != nil {
		v.badSitemap(e, err)
		return nil, nil
	}
	if err := v.w.sitemaps.Acquire(v.ctx, 1); err != nil {
		return v.stopped(), nil
	}
	defer v.w.sitemaps.Release(1)
	v.w.count(func(f *Found) { f.Sitemaps++ })
	turn, err := v.w.turns.enter(v.ctx, normal.HostOf(url))
	count := &work.Meter{Limit: sitemap.MaxWork, Pause: func(spent int) error { return v.w.turns.pause(v.ctx, turn, spent) }}
	defer func() { v.w.turns.leave(turn, count.Take()) }()
	var entries []store.Entry
	size, n, fault := 0, 0, error(nil)
	for listed := range sitemap.Read(body, count) {
		if n++; n > sitemap.MaxEntries {
			fault = fmt.Errorf("it lists more than %d URLs; the rest was not read", sitemap.MaxEntries)
			break
		}
		if err == nil {
			err = count.Spend(base.Cost(listed.URL))
		}
		switch {
		case listed.Fatal:
			fault = fmt.Errorf("line %d: %w", listed.Line, listed.Err)
		case errors.Is(err, work.ErrLimit):
			fault = fmt.Errorf("line %d: %w; the rest was not read", listed.Line, err)
		}
		if fault != nil || err != nil {
			break
		}
		if entry, ok := v.listed(base, listed, l); ok {
			entries = append(entries, entry)
			size += len(entry.URL)
		}
		if len(entries) == putBatch || size >= putBytes {
			v.w.turns.leave(turn, count.Take())
			if stop := v.put(entries, l.limits); stop != nil {
				return stop, nil
			}
			entries, size = entries[:0], 0
			turn, err = v.w.turns.enter(v.ctx, normal.HostOf(url))
		}
	}
	v.w.turns.leave(turn, count.Take())
	if stop := v.stopped(); stop != nil {
		return stop, nil
	}
	if fault != nil {
		v.badSitemap(e, fault)
	}
	return v.put(entries, l.limits), nil
}

// badSitemap changes the ending of a sitemap that is not valid.
func (v *visit) badSitemap(e *ending, fault error) {
	bad := v.w.config.Policy.failed(v.claim, ClassBadSitemap, fmt.Sprintf("%s: %v", ClassBadSitemap, fault), false, 0)
	bad.fetch.FetchedParams = e.fetch.FetchedParams
	bad.fetch.ETag, bad.fetch.LastModified, bad.fetch.BodyDigest = "", "", ""
	*e = bad
}

// putSitemaps adds the sitemaps that a robots.txt names.
func (v *visit) putSitemaps(origin string, body []byte) *ending {
	d := v.w.config.Discovery
	if d == nil || d.NoSitemaps {
		return nil
	}
	base, err := normal.NewBase(origin + "/robots.txt")
	if err != nil {
		return nil // it was fetched, so it has a normal form
	}
	turn, err := v.w.turns.enter(v.ctx, normal.HostOf(origin))
	count := &work.Meter{Limit: maxRobotsWork, Pause: func(spent int) error { return v.w.turns.pause(v.ctx, turn, spent) }}
	var entries []store.Entry
	for _, reference := range robots.Sitemaps(body) {
		if err == nil {
			err = count.Spend(base.Cost(reference))
		}
		if err != nil {
			break // beyond the limit, lines are left out
		}
		u, err := base.Resolve(reference)
		if err != nil {
			continue
		}
		v.w.count(func(f *Found) { f.Links++ })
		if !scope.SameDomain(base.String(), u) || d.Scope != nil && !d.Scope.AllowsSitemap(u) {
			v.w.count(func(f *Found) { f.OutOfScope++ })
			continue
		}
		entries = append(entries, store.Entry{URL: u, Kind: store.Sitemap})
	}
	v.w.turns.leave(turn, count.Take())
	if stop := v.stopped(); stop != nil {
		return stop
	}
	return v.put(entries, d.Limits)
}
