package frontier

import (
	"fetchd/frontier/normal"
	"fetchd/frontier/scope"
	"fetchd/frontier/sitemap"
	"fetchd/frontier/store"
)

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
	v.w.count(func(f *Found) { f.Links++ })
	u, err := base.Resolve(s.URL)
	if s.Err != nil || err != nil {
		v.w.count(func(f *Found) { f.TooLong++ })
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
		v.w.count(func(f *Found) { f.TooDeep++ })
		return e, false
	case s.Sitemap && !scope.SameDomain(base.String(), u), // a page of another site would never be read as a page
		!l.allows(e):
		v.w.count(func(f *Found) { f.OutOfScope++ })
		return e, false
	}
	return e, true
}
