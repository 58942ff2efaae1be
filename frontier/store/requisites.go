package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

// RequisiteLimits limit what PutRequisites adds. Zero means no limit.
type RequisiteLimits struct {
	URLs      int64 // in the whole frontier, as Limits.URLs
	OfPage    int   // requisites of a page
	PageHosts int   // hosts with requisites of a page, other than its own
	Hosts     int64 // hosts in the whole frontier that a requisite was the first URL of
}

// RequisiteResult is the result of PutRequisites. The last four are what each limit has kept out.
type RequisiteResult struct {
	Added                                    int64
	Over, OverPage, OverPageHosts, OverHosts int64
}

// narrow are the classes of failures that a URL may not have as a requisite, because limits of pages have ended it.
var narrow = []string{"content_type", "empty_body", "body_too_large", "undecodable", "out_of_scope"}

// IsNarrow reports whether a URL that failed with an error class may be fetched once a page needs it.
func IsNarrow(errorClass string) bool { return slices.Contains(narrow, errorClass) }

// requisiteHosts is the setting with the number of hosts that a requisite was the first URL of.
const requisiteHosts = "requisite_hosts"

// PutRequisites implements [Store].
func (s *core) PutRequisites(ctx context.Context, page int64, entries []Entry, limits RequisiteLimits) (r RequisiteResult, err error) {
	good, _ := normaliseAll(entries)
	if len(good) == 0 {
		return r, nil
	}
	s.requisites.Lock() // of one page, style sheets may be read at the same time
	defer s.requisites.Unlock()
	c, err := s.choice(ctx, page, good, limits)
	if err != nil {
		return r, fmt.Errorf("read the requisites of a page: %w", err)
	}
	kept := entries[:0:0]
	for _, n := range good {
		if c.takes(n, &r) {
			kept = append(kept, Entry{URL: n.URL, Kind: n.Kind, Priority: n.Priority, Depth: n.Depth, Parent: n.Parent, Metadata: n.Metadata, Need: Need{page, n.Hops}})
		}
	}
	put, err := s.own.Put(ctx, kept, Limits{URLs: limits.URLs})
	if err == nil && put.hosts > 0 {
		err = s.AddToSetting(ctx, requisiteHosts, put.hosts)
	}
	r.Added, r.Over = put.Added, put.Over
	return r, err
}

// AllowRequisite implements [Store].
func (s *core) AllowRequisite(ctx context.Context, page int64, url string, limits RequisiteLimits) (bool, error) {
	n, err := normalise(url, false)
	if err != nil {
		return false, nil
	}
	s.requisites.Lock()
	defer s.requisites.Unlock()
	limits.OfPage = 0
	c, err := s.choice(ctx, page, []normalised{n}, limits)
	if err != nil || !c.takes(n, new(RequisiteResult)) {
		return false, err
	}
	if c.fresh > 0 {
		err = s.AddToSetting(ctx, requisiteHosts, c.fresh)
	}
	return err == nil, err
}

// choice decides which requisites of a page are added.
type choice struct {
	limits    RequisiteLimits
	known     map[string]bool // URLs, by their hashes
	own       string          // host of the page
	n         int             // requisites of the page
	pageHosts map[string]bool // of its requisites, without its own
	hosts     map[string]bool // that the frontier has, of those of the entries
	named     int64           // hosts that a requisite was the first URL of
	fresh     int64           // of these, those of this call
}

// choice reads what the database has.
func (s *core) choice(ctx context.Context, page int64, entries []normalised, limits RequisiteLimits) (*choice, error) {
	c := &choice{limits: limits, known: make(map[string]bool), pageHosts: make(map[string]bool), hosts: make(map[string]bool)}
	var hashes, hosts []string
	for _, n := range entries {
		hashes, hosts = append(hashes, n.Hash), append(hosts, n.Host)
	}
	hashList, err := toJSON(hashes)
	if err != nil {
		return nil, err
	}
	hostList, err := toJSON(hosts)
	if err != nil {
		return nil, err
	}
	each := func(query string, do func(text string), args ...any) {
		if err != nil {
			return
		}
		rows, failed := s.db.Query(ctx, query, args...)
		texts, failed := collect(rows, failed, func(t *string) []any { return []any{t} })
		for _, t := range texts {
			do(t)
		}
		err = failed
	}
	each(`SELECT url FROM urls WHERE url_hash {hashed}`, func(u string) { c.known[u] = true }, hashList)
	each(`SELECT host FROM hosts WHERE host {among}`, func(h string) { c.hosts[h] = true }, hostList)
	each(`SELECT h.host FROM urls u JOIN hosts h ON h.id = u.host_id WHERE u.id = ?`, func(h string) { c.own = h }, page)
	each(`SELECT h.host FROM urls u JOIN hosts h ON h.id = u.host_id WHERE u.page_id = ?`, func(h string) {
		c.n++
		c.pageHosts[h] = true
	}, page)
	delete(c.pageHosts, c.own)
	if err == nil {
		var text string
		if text, err = s.Setting(ctx, requisiteHosts); text != "" {
			c.named, err = strconv.ParseInt(text, 10, 64)
		}
	}
	return c, err
}

// takes reports whether a requisite is added, or is known already. Otherwise it counts in r which limit has kept it out.
func (c *choice) takes(n normalised, r *RequisiteResult) bool {
	foreign := n.Host != c.own && !c.pageHosts[n.Host]
	switch l := c.limits; {
	case c.known[n.URL]:
		return true
	case l.OfPage > 0 && c.n >= l.OfPage:
		r.OverPage++
		return false
	case foreign && l.PageHosts > 0 && len(c.pageHosts) >= l.PageHosts:
		r.OverPageHosts++
		return false
	case !c.hosts[n.Host] && l.Hosts > 0 && c.named+c.fresh >= l.Hosts:
		r.OverHosts++
		return false
	}
	c.n++
	if foreign {
		c.pageHosts[n.Host] = true
	}
	if !c.hosts[n.Host] {
		c.hosts[n.Host] = true
		c.fresh++
	}
	return true
}

// URLsOf implements [Store].
func (s *core) URLsOf(ctx context.Context, ids []int64) (map[int64]string, error) {
	list, err := toJSON(append([]int64{}, ids...)) // not null
	if err != nil {
		return nil, err
	}
	type row struct {
		id  int64
		url string
	}
	rows, err := s.db.Query(ctx, `SELECT id, url FROM urls WHERE id {ids}`, list)
	all, err := collect(rows, err, func(r *row) []any { return []any{&r.id, &r.url} })
	urls := make(map[int64]string, len(all))
	for _, r := range all {
		urls[r.id] = r.url
	}
	return urls, err
}
