package frontier

import (
	"errors"
	"fmt"
	"io"

	"fetchd/frontier/normal"
	"fetchd/frontier/robots"
	"fetchd/frontier/scope"
	"fetchd/frontier/sitemap"
	"fetchd/frontier/store"
	"fetchd/frontier/work"
)

const (
	// maxSitemapDepth limits how deep sitemap indexes are nested.
	maxSitemapDepth = 3
	// putBytes is how many bytes of a sitemap's URLs are collected for one Put.
	putBytes = 1 << 20
	// maxRobotsWork limits the work for the Sitemap lines of a robots.txt, as package work counts it:
	// enough for 1,000 long ones.
	maxRobotsWork = 32 << 20
)

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
	if err := v.w.search.sitemaps.Acquire(v.ctx, 1); err != nil {
		return v.stopped(), nil
	}
	defer v.w.search.sitemaps.Release(1)
	v.w.found.add(func(f *Found) { f.Sitemaps++ })
	turn, err := v.w.search.turns.enter(v.ctx, normal.HostOf(url))
	count := &work.Meter{Limit: sitemap.MaxWork, Pause: func(spent int) error { return v.w.search.turns.pause(v.ctx, turn, spent) }}
	defer func() { v.w.search.turns.leave(turn, count.Take()) }()
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
			v.w.search.turns.leave(turn, count.Take())
			if stop := v.put(entries, l.limits); stop != nil {
				return stop, nil
			}
			entries, size = entries[:0], 0
			turn, err = v.w.search.turns.enter(v.ctx, normal.HostOf(url))
		}
	}
	v.w.search.turns.leave(turn, count.Take())
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

// listing says what is added from a sitemap.
type listing struct {
	scopes   []*scope.Scope // a URL must be in all of them
	limits   store.Limits
	metadata string // of the sitemaps that it lists
}

// newListing returns the rules of the crawl and those of the sitemap, taken together.
func (v *visit) newListing() (listing, error) {
	var l listing
	if d := v.w.config.Discovery; d != nil {
		l.limits = d.Limits
		if d.Scope != nil {
			l.scopes = append(l.scopes, d.Scope)
		}
	}
	rules, err := scope.ReadRules(v.claim.Metadata)
	if rules == nil || err != nil {
		return l, err
	}
	s, err := rules.NewScope()
	l.scopes, l.metadata = append(l.scopes, s), v.claim.Metadata
	l.limits = store.Limits{URLs: smaller(l.limits.URLs, rules.MaxURLs), URLsPerHost: smaller(l.limits.URLsPerHost, rules.MaxHostURLs)}
	return l, err
}

// smaller returns the smaller one of two limits, of which zero is none.
func smaller(a, b int64) int64 {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}

func (l *listing) allows(e store.Entry) bool {
	for _, s := range l.scopes {
		if e.Kind == store.Sitemap && !s.AllowsSitemap(e.URL) || e.Kind == store.Page && !s.Allows(e.URL) {
			return false
		}
	}
	return true
}

// listed returns the entry of a URL in a sitemap, and false if it does not belong to the crawl. Its
// pages have the depth of links from a seed, and a sitemap has the depth of its indexes.
func (v *visit) listed(base *normal.Base, s sitemap.Entry, l listing) (store.Entry, bool) {
	v.w.found.add(func(f *Found) { f.Links++ })
	u, err := base.Resolve(s.URL)
	if s.Err != nil || err != nil {
		v.w.found.add(func(f *Found) { f.TooLong++ })
		return store.Entry{}, false
	}
	e := v.entry(u, store.Page, 1)
	e.Changed = s.Changed
	d := v.w.config.Discovery
	deep := d != nil && d.MaxDepth == 0
	if s.Sitemap {
		e.Kind, e.Depth, e.Metadata = store.Sitemap, v.claim.Depth+1, l.metadata
		deep = e.Depth > maxSitemapDepth
	}
	switch {
	case deep:
		v.w.found.add(func(f *Found) { f.TooDeep++ })
		return e, false
	case s.Sitemap && !scope.SameDomain(base.String(), u), // a page of another site would never be read as a page
		!l.allows(e):
		v.w.found.add(func(f *Found) { f.OutOfScope++ })
		return e, false
	}
	return e, true
}

// putSitemaps adds the sitemaps that a robots.txt names.
func (v *visit) putSitemaps(origin string, body []byte) *ending {
	d := v.w.config.Discovery
	if d == nil {
		return nil
	}
	base, err := normal.NewBase(origin + "/robots.txt")
	if err != nil {
		return nil // it was fetched, so it has a normal form
	}
	turn, err := v.w.search.turns.enter(v.ctx, normal.HostOf(origin))
	count := &work.Meter{Limit: maxRobotsWork, Pause: func(spent int) error { return v.w.search.turns.pause(v.ctx, turn, spent) }}
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
		v.w.found.add(func(f *Found) { f.Links++ })
		if !scope.SameDomain(base.String(), u) || d.Scope != nil && !d.Scope.AllowsSitemap(u) {
			v.w.found.add(func(f *Found) { f.OutOfScope++ })
			continue
		}
		entries = append(entries, store.Entry{URL: u, Kind: store.Sitemap})
	}
	v.w.search.turns.leave(turn, count.Take())
	if stop := v.stopped(); stop != nil {
		return stop
	}
	return v.put(entries, d.Limits)
}
