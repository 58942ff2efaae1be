package store

import (
	"context"
	"strings"
)

// put is a Put in its transaction.
type put struct {
	tx
	limits Limits
	total  int64 // URLs in the frontier; counts only if limits.URLs is set
	next   int64 // id of the next URL
	now    int64 // one time for all, so that requisites keep their order
	hosts  map[string]*putHost
	result PutResult
}

type putHost struct {
	id, added int64
	woken     bool   // one of its URLs is pending again
	count     *int64 // its URLs, or nil if they are not counted
}

// Put implements [Store].
func (s *sqliteDB) Put(ctx context.Context, entries []Entry, limits Limits) (PutResult, error) {
	good, bad := normaliseAll(entries)
	p := put{limits: limits, hosts: make(map[string]*putHost)}
	err := s.do(ctx, "put URLs", func(t tx) error {
		p.tx = t
		return p.all(good)
	})
	if err != nil {
		return PutResult{}, err
	}
	r := p.result
	r.Bad, r.Known = bad, int64(len(entries)-len(bad))-r.Added-r.Over-r.OverHost
	return r, nil
}

func (p *put) all(urls []normalised) error {
	if p.limits.URLs > 0 {
		_, err := p.Exec(`INSERT INTO settings (name, value) SELECT 'url_count', (SELECT count(*) FROM urls)
			WHERE NOT EXISTS (SELECT 1 FROM settings WHERE name = 'url_count')`)
		if err != nil {
			return err
		}
		if _, err := p.One(`SELECT CAST(value AS INTEGER) FROM settings WHERE name = 'url_count'`, nil, &p.total); err != nil {
			return err
		}
	}
	// The id of a URL that was deleted is not used again.
	_, err := p.One(`SELECT 1 + max(COALESCE((SELECT max(id) FROM urls), 0), COALESCE((SELECT CAST(value AS INTEGER) FROM settings WHERE name = 'last_url_id'), 0)), {now}`, nil, &p.next, &p.now)
	if err != nil {
		return err
	}
	for _, u := range urls {
		if err := p.url(u); err != nil {
			return err
		}
	}
	for _, h := range p.hosts {
		if h.added == 0 && !h.woken {
			continue
		}
		_, err := p.Exec(`UPDATE hosts SET url_count = url_count + ?1, due_at = CASE WHEN `+sleeps+` THEN max(next_at, blocked_until) ELSE due_at END
			WHERE id = ?2 AND (url_count IS NOT NULL OR `+sleeps+`)`, h.added, h.id)
		if err != nil {
			return err
		}
	}
	_, err = p.Exec(`UPDATE settings SET value = CAST(value AS INTEGER) + ? WHERE name = 'url_count'`, p.result.Added)
	return err
}

func (p *put) url(u normalised) error {
	full := p.limits.URLs > 0 && p.total+p.result.Added >= p.limits.URLs
	h, err := p.host(u.Host, !full)
	if err != nil {
		return err
	}
	var over *int64
	switch {
	case h == nil:
		p.result.Over++
		return nil
	case p.limits.URLsPerHost > 0 && *h.count+h.added >= p.limits.URLsPerHost:
		over = &p.result.OverHost
	case full:
		over = &p.result.Over
	default:
		n, err := p.Exec(`INSERT INTO urls (id, host_id, url, url_hash, kind, priority, depth, parent_id, metadata, page_id, hops, ready_at)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, CASE WHEN ?10 > 0 THEN -?12 ELSE 0 END) ON CONFLICT (url_hash) DO NOTHING`,
			p.next, h.id, u.URL, u.hash, u.Kind, u.Priority, u.Depth, u.Parent, u.Metadata, u.Page, u.Hops, p.now)
		if err != nil || n == 1 {
			h.added += n
			p.next += n
			p.result.Added += n
			return err
		}
	}
	var known bool
	if known, err = p.known(h, u); !known && over != nil {
		*over++
	}
	return err
}

// known reports whether a URL exists, and changes its row.
func (p *put) known(h *putHost, u normalised) (bool, error) {
	var id, page int64
	var kind Kind
	var depth int
	known, err := p.One(`SELECT id, kind, depth, page_id FROM urls WHERE url_hash = ?`, []any{u.hash}, &id, &kind, &depth, &page)
	if same := u.Kind <= kind && (u.Kind < Page || u.Depth >= depth) && (u.Page == 0 || page != 0) && u.ChangedMS == 0; err != nil || !known || same {
		return known && err == nil, err
	}
	const changed = `status = 'fetched' AND recrawl_at > {now} AND fetched_at < ?2 AND ?2 <= {now}`
	const nearer = `?4 >= 0 AND kind >= 0 AND depth > ?1`
	const wider = `?4 > kind AND (kind < 0 OR depth > 0 AND status IN ('pending', 'fetching') AND fetched_at = 0)`
	const needed = `?5 > 0 AND page_id = 0`
	again := `(` + wider + ` AND kind < 0 AND (status = 'fetched' OR status = 'dead' AND error_class = 'body_too_large') OR ` + needed + ` AND status = 'dead' AND error_class IN (` + narrowClasses + `))`
	var status Status
	woken, err := p.One(`UPDATE urls SET depth = CASE WHEN `+nearer+` OR `+wider+` AND kind < 0 AND ?4 >= 0 THEN ?1 ELSE depth END,
			kind = CASE WHEN `+wider+` THEN ?4 ELSE kind END,
			page_id = CASE WHEN `+needed+` THEN ?5 ELSE page_id END, hops = CASE WHEN `+needed+` THEN ?6 ELSE hops END,
			status = CASE WHEN `+again+` THEN 'pending' ELSE status END, failure_count = CASE WHEN `+again+` THEN 0 ELSE failure_count END,
			ready_at = CASE WHEN `+again+` AND ?5 > 0 OR `+needed+` AND status = 'pending' AND fetched_at = 0 THEN -?7 WHEN `+again+` THEN 0 ELSE ready_at END,
			recrawl_at = CASE WHEN `+changed+` THEN {now} ELSE recrawl_at END
		WHERE id = ?3 AND (`+nearer+` OR `+wider+` OR `+needed+` OR `+changed+`) RETURNING status`, []any{u.Depth, u.ChangedMS, id, u.Kind, u.Page, u.Hops, p.now}, &status)
	if woken && status == Pending {
		h.woken = true
	}
	return true, err
}

// narrowClasses is narrow in SQL.
var narrowClasses = `'` + strings.Join(narrow, `', '`) + `'`

// host returns a host. It adds one that is missing if add is true, and otherwise returns nil. A new host
// is due at once.
func (p *put) host(name string, add bool) (*putHost, error) {
	if h := p.hosts[name]; h != nil {
		return h, nil
	}
	h := new(putHost)
	known, err := p.One(`SELECT id, url_count FROM hosts WHERE host = ?`, []any{name}, &h.id, &h.count)
	if err == nil && !known {
		if !add {
			return nil, nil
		}
		_, err = p.One(`INSERT INTO hosts (host, due_at) VALUES (?, 0) RETURNING id`, []any{name}, &h.id)
		p.result.hosts++
	}
	if err == nil && p.limits.URLsPerHost > 0 && h.count == nil {
		_, err = p.One(`UPDATE hosts SET url_count = (SELECT count(*) FROM urls WHERE host_id = hosts.id) WHERE id = ? RETURNING url_count`, []any{h.id}, &h.count)
	}
	p.hosts[name] = h
	return h, err
}
