package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Robots is what the store knows about an origin's robots.txt. Status, ErrorClass and Unreachable
// describe the last fetch. Body belongs to the last answer, which is an older one if the origin is
// unreachable now.
type Robots struct {
	Origin      string // scheme://host, and :port unless it is the scheme's default
	Status      int    // zero if there was no response
	ErrorClass  string // empty on success
	ErrorText   string // what fetchd said about the error; only the first 1,000 bytes are kept
	Unreachable bool   // the fetch brought neither a file nor a refusal: a 5xx, or no response
	Body        []byte // at most 512 KiB
	Earlier     Earlier

	// Store.Robots sets the fields below. SaveRobots ignores them.

	Forgotten      bool          // by RetryFailed or RefreshRobots, so the file is fetched again; Age is then very long
	HasBody        bool          // there was an answer, whose Body may be empty
	BodySize       int           // in bytes
	BodyStatus     int           // status of that answer
	Age            time.Duration // since the last fetch was saved
	UnreachableFor time.Duration // since the first fetch without an answer; zero if reachable
}

// maxErrorText limits Robots.ErrorText, in bytes.
const maxErrorText = 1000

// refreshPage is the maximum number of origins that RobotsToRefresh returns.
const refreshPage = 10_000

// maxRobots exceeds the 500 KiB that RFC 9309 requires crawlers to read.
const maxRobots = 512 << 10

// SaveRobots implements [Store].
func (s *core) SaveRobots(ctx context.Context, r Robots) error {
	r.Origin = clean(r.Origin)
	if len(r.Body) > maxRobots {
		return fmt.Errorf("save robots.txt of %s: it has %d bytes, the limit is %d", r.Origin, len(r.Body), maxRobots)
	}
	if r.Body == nil {
		r.Body = []byte{} // not NULL
	}
	doing, text := "save robots.txt of "+r.Origin, clean(r.ErrorText[:min(len(r.ErrorText), maxErrorText)])
	if r.Unreachable {
		_, err := s.db.Update(ctx, doing, `INSERT INTO robots (origin, saved_at, status, error_class, error_text, unreachable_since)
			SELECT ?, t.now, ?, ?, ?, t.now FROM (SELECT {now} AS now) AS t WHERE TRUE
			ON CONFLICT (origin) DO UPDATE SET saved_at = excluded.saved_at, status = excluded.status, error_class = excluded.error_class,
				error_text = excluded.error_text, unreachable_since = CASE WHEN robots.unreachable_since = 0 THEN excluded.unreachable_since ELSE robots.unreachable_since END`,
			r.Origin, r.Status, clean(r.ErrorClass), text)
		return err
	}
	e := r.Earlier.clean()
	_, err := s.db.Update(ctx, doing, `INSERT INTO robots (origin, saved_at, status, error_class, error_text, has_body, body_status, body,
			earlier_record_id, earlier_url, earlier_date, earlier_payload_digest)
		VALUES (?, {now}, ?, ?, ?, TRUE, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (origin) DO UPDATE SET saved_at = excluded.saved_at, status = excluded.status, error_class = excluded.error_class, error_text = excluded.error_text,
			unreachable_since = 0, has_body = TRUE, body_status = excluded.body_status, body = excluded.body,
			earlier_record_id = excluded.earlier_record_id, earlier_url = excluded.earlier_url, earlier_date = excluded.earlier_date,
			earlier_payload_digest = excluded.earlier_payload_digest`,
		r.Origin, r.Status, clean(r.ErrorClass), text, r.Status, r.Body, e.RecordID, e.URL, e.Date, e.PayloadDigest)
	if err != nil {
		return err
	}
	return s.endDeferral(ctx, []string{r.Origin})
}

// scheme is the SQL of what distinguishes the two origins of a host, as the index urls_origin has it: the character
// after http, which is s or a colon.
const scheme = `substr(url, 5, 1)`

// deferredColumn returns the host of an origin, and the column that says until when the origin is deferred.
func deferredColumn(origin string) (host, column string) {
	if host, ok := strings.CutPrefix(origin, "https://"); ok {
		return host, "https_deferred_until"
	}
	return strings.TrimPrefix(origin, "http://"), "http_deferred_until"
}

// Defer implements [Store].
func (s *core) Defer(ctx context.Context, origin string, d time.Duration) error {
	host, column := deferredColumn(clean(origin))
	_, err := s.db.Update(ctx, "defer "+origin, `UPDATE hosts SET `+column+` = {max}(`+column+`, {now} + 1 + ?) WHERE host = ?`, millis(d), host)
	return err
}

// DeferredOrigin is an origin whose URLs wait for its unreachable robots.txt.
type DeferredOrigin struct {
	Origin         string
	ErrorClass     string // of the last fetch; empty if nothing is stored, or if it had a status only
	ErrorText      string
	Status         int
	UnreachableFor time.Duration
	For            time.Duration // until the file is fetched again
	URLs           int64         // that wait; at most MaxDeferredURLs + 1
}

// MaxDeferredURLs is how many URLs of an origin DeferredOrigins counts.
const MaxDeferredURLs = 100_000

// DeferredOrigins implements [Store].
func (s *core) DeferredOrigins(ctx context.Context, limit int) ([]DeferredOrigin, error) {
	rows, err := s.db.Query(ctx, `SELECT o.origin, COALESCE(r.error_class, ''), COALESCE(r.error_text, ''), COALESCE(r.status, 0),
			CASE WHEN r.unreachable_since > 0 THEN o.now - r.unreachable_since ELSE 0 END, o.until - o.now,
			(SELECT count(*) FROM (SELECT 1 FROM urls WHERE host_id = o.id AND `+scheme+` = o.scheme AND status IN ('pending', 'failed') LIMIT ?) AS x)
		FROM (SELECT h.id, s.scheme, CASE WHEN s.scheme = 's' THEN 'https://' ELSE 'http://' END || h.host AS origin, t.now,
				CASE WHEN s.scheme = 's' THEN h.https_deferred_until ELSE h.http_deferred_until END AS until
			FROM hosts AS h CROSS JOIN (SELECT ':' AS scheme UNION ALL SELECT 's') AS s CROSS JOIN (SELECT {now} AS now) AS t
			WHERE h.http_deferred_until > t.now OR h.https_deferred_until > t.now) AS o
		LEFT JOIN robots r ON r.origin = o.origin
		WHERE o.until > o.now ORDER BY 5 DESC, o.origin LIMIT ?`, MaxDeferredURLs+1, limit)
	return collect(rows, err, func(h *DeferredOrigin) []any {
		return []any{&h.Origin, &h.ErrorClass, &h.ErrorText, &h.Status, span{&h.UnreachableFor}, span{&h.For}, &h.URLs}
	})
}

// endDeferral undoes Defer for origins that are deferred. Each is a separate statement, so locks have no order to keep.
func (s *core) endDeferral(ctx context.Context, origins []string) error {
	hosts := map[string][]string{} // by column
	for _, origin := range origins {
		host, column := deferredColumn(origin)
		hosts[column] = append(hosts[column], host)
	}
	for column, names := range hosts {
		list, err := toJSON(names)
		if err != nil {
			return err
		}
		rows, err := s.db.Query(ctx, `SELECT id FROM hosts WHERE host {among} AND `+column+` > {now}`, list)
		ids, err := collect(rows, err, func(id *int64) []any { return []any{id} })
		if err != nil {
			return fmt.Errorf("look for origins that are deferred: %w", err)
		}
		for _, id := range ids {
			_, err := s.db.Update(ctx, "defer no longer", `UPDATE hosts SET `+column+` = 0, due_at = {max}(next_at, blocked_until) WHERE id = ?`, id)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Robots implements [Store].
func (s *core) Robots(ctx context.Context, origins []string) (map[string]Robots, error) {
	return s.robots(ctx, origins, "body")
}

// RobotsHeads implements [Store].
func (s *core) RobotsHeads(ctx context.Context, origins []string) (map[string]Robots, error) {
	return s.robots(ctx, origins, "NULL")
}

// robots reads rows. body is the SQL expression for the body column.
func (s *core) robots(ctx context.Context, origins []string, body string) (map[string]Robots, error) {
	wanted := make([]string, len(origins))
	for i, origin := range origins {
		wanted[i] = clean(origin)
	}
	list, err := toJSON(wanted)
	if err != nil {
		return nil, fmt.Errorf("read robots.txt: %w", err)
	}
	rows, err := s.db.Query(ctx, `SELECT origin, status, error_class, error_text, unreachable_since <> 0, `+body+`, length(body), has_body, body_status,
			{now} - saved_at, saved_at = 0, CASE WHEN unreachable_since = 0 THEN 0 ELSE {now} - unreachable_since END,
			earlier_record_id, earlier_url, earlier_date, earlier_payload_digest
		FROM robots WHERE origin {among}`, list)
	all, err := collect(rows, err, func(r *Robots) []any {
		return []any{&r.Origin, &r.Status, &r.ErrorClass, &r.ErrorText, &r.Unreachable, &r.Body, &r.BodySize, &r.HasBody, &r.BodyStatus, span{&r.Age}, &r.Forgotten, span{&r.UnreachableFor},
			&r.Earlier.RecordID, &r.Earlier.URL, &r.Earlier.Date, &r.Earlier.PayloadDigest}
	})
	if err != nil {
		return nil, fmt.Errorf("read robots.txt of %d origins: %w", len(origins), err)
	}
	byOrigin := make(map[string]Robots, len(all))
	for _, r := range all {
		byOrigin[r.Origin] = r
	}
	return byOrigin, nil
}

// updateOrigins runs a statement on the rows of origins, a few in each transaction, and returns
// how many rows it changed. It calls after for the origins of each, unless that is nil.
func (s *core) updateOrigins(ctx context.Context, doing string, origins []string, piece int, after func(context.Context, []string) error, query string, args ...any) (changed int64, err error) {
	for some := range slices.Chunk(origins, piece) {
		list, err := toJSON(some)
		if err != nil {
			return changed, fmt.Errorf("%s: %w", doing, err)
		}
		n, err := s.db.Update(ctx, doing, query, append([]any{list}, args...)...)
		if err == nil && after != nil {
			err = after(ctx, some)
		}
		if err != nil {
			return changed, err
		}
		changed += n
	}
	return changed, nil
}

// ForgetRobots implements [Store].
func (s *core) ForgetRobots(ctx context.Context, origins []string) (int64, error) {
	const piece = 16 // rows, with at most 8 MiB of files
	return s.updateOrigins(ctx, "delete robots.txt", origins, piece, nil, `DELETE FROM robots WHERE origin {among} AND {vacant}`)
}

// RefreshRobots implements [Store].
func (s *core) RefreshRobots(ctx context.Context, origins []string) (int64, error) {
	const piece = 500
	return s.updateOrigins(ctx, "have robots.txt fetched again", origins, piece, s.endDeferral, `UPDATE robots SET saved_at = 0 WHERE origin {among}`)
}

// RobotsToRefresh implements [Store].
func (s *core) RobotsToRefresh(ctx context.Context, after string) (origins []string, next string, err error) {
	rows, err := s.db.Query(ctx, `SELECT origin FROM robots WHERE saved_at = 0 AND origin > ? ORDER BY origin LIMIT ?`, clean(after), refreshPage)
	origins, err = collect(rows, err, func(origin *string) []any { return []any{origin} })
	if len(origins) == refreshPage {
		next = origins[refreshPage-1]
	}
	return origins, next, err
}

// SweepRobots implements [Store].
func (s *core) SweepRobots(ctx context.Context, after string, age time.Duration) (next string, deleted int64, err error) {
	const page = 500
	type row struct {
		origin string
		unused bool
	}
	rows, err := s.db.Query(ctx, `SELECT origin, saved_at <= {now} - ? AND {vacant} FROM robots
		WHERE origin > ? ORDER BY origin LIMIT ?`, millis(age), clean(after), page)
	seen, err := collect(rows, err, func(r *row) []any { return []any{&r.origin, &r.unused} })
	if err != nil {
		return after, 0, fmt.Errorf("look for robots.txt of hosts without URLs: %w", err)
	}
	var unused []string
	for _, r := range seen {
		if r.unused {
			unused = append(unused, r.origin)
		}
	}
	if len(seen) == page {
		next = seen[page-1].origin
	}
	deleted, err = s.ForgetRobots(ctx, unused)
	return next, deleted, err
}
