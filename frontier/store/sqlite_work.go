package store

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// dueHost is a host that a claim looks at, with the first of its URLs that wait, if it is ready.
type dueHost struct {
	id, now  int64
	opens    int64 // when its delay and its block end
	room     int   // how many more fetches it may have; zero if it is paused
	row      int   // how many URLs may be claimed to be fetched one after the other
	deferred deferrals
	claim    Claim // with ID 0 if the host is closed, if an origin is deferred, or if that URL is not ready
}

// deferrals are until when the origins of a host are deferred, http and https. The past and 0 mean that they are not.
type deferrals [2]int64

// ends returns when the first origin that is deferred at a time is not any more, or 0 if none is.
func (d deferrals) ends(now int64) (first int64) {
	for _, until := range d {
		if until > now && (first == 0 || until < first) {
			first = until
		}
	}
	return first
}

// waiting returns the SQL of the URLs of a host, with the id ?1, that wait and belong to an origin that is not held
// back. One of them must be free.
func (d deferrals) waiting(now int64) string {
	const among, waits = `host_id = ?1 AND `, `status IN ('pending', 'failed') AND priority `
	switch {
	case d[0] > now:
		return ` FROM urls u INDEXED BY urls_origin WHERE ` + among + scheme + ` = 's' AND ` + waits
	case d[1] > now:
		return ` FROM urls u INDEXED BY urls_origin WHERE ` + among + scheme + ` = ':' AND ` + waits
	}
	return ` FROM urls u WHERE ` + among + waits
}

// Claim implements [Store]. It shares the limit among the hosts that are due.
func (s *sqliteDB) Claim(ctx context.Context, params ClaimParams) (claims []Claim, err error) {
	params = params.withDefaults()
	err = s.do(ctx, "claim", func(t tx) error {
		for left := params.Limit; left > 0; {
			due, err := t.due(left, params.Ahead)
			if err != nil || len(due) == 0 {
				return err
			}
			taken, err := t.take(due, max(1, left/len(due)), params)
			if err != nil {
				return err
			}
			claims = append(claims, taken...)
			for _, c := range taken {
				if !c.Behind {
					left--
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return claims, nil
}

// claimColumns are the columns of a claim, with the token of the claim before.
const claimColumns = `COALESCE(u.id, 0), COALESCE(u.token, 0), COALESCE(u.url, ''),
	COALESCE(u.failure_count, 0), COALESCE(u.crash_count, 0), COALESCE(u.etag, ''), COALESCE(u.last_modified, ''), COALESCE(u.body_digest, ''),
	COALESCE(u.earlier_record_id, ''), COALESCE(u.earlier_url, ''), COALESCE(u.earlier_date, ''), COALESCE(u.earlier_payload_digest, ''),
	COALESCE(u.kind, 0), COALESCE(u.priority, 0), COALESCE(u.depth, 0), COALESCE(u.parent_id, 0), COALESCE(u.page_id, 0), COALESCE(u.hops, 0), COALESCE(u.metadata, ''), COALESCE(u.recrawl_ms, 0), COALESCE(u.digest, 0)`

// columns returns where claimColumns go.
func (c *Claim) columns() []any {
	return []any{&c.ID, &c.Token, &c.URL, &c.FailureCount, &c.CrashCount, &c.ETag, &c.LastModified, &c.BodyDigest,
		&c.Earlier.RecordID, &c.Earlier.URL, &c.Earlier.Date, &c.Earlier.PayloadDigest,
		&c.Kind, &c.Priority, &c.Depth, &c.Parent, &c.Need.PageID, &c.Need.Hops, &c.Metadata, span{&c.Recrawl}, &c.Digest}
}

// due reads hosts in the order in which they became due. The planner would prepare the statement
// again for each new value of LIMIT; the sum hides it.
func (t tx) due(limit int, ahead time.Duration) ([]dueHost, error) {
	rows, err := t.Query(`SELECT `+claimColumns+`, h.id, h.host, {now}, max(h.next_at, h.blocked_until), h.http_deferred_until, h.https_deferred_until,
			CASE WHEN h.paused THEN 0 ELSE max(0, h.max_in_flight - h.in_flight) END, max(COALESCE(h.delay_ms, ?2), h.crawl_delay_ms),
			CASE WHEN h.max_in_flight = 1 AND ?3 / (1 + max(COALESCE(h.delay_ms, ?2), h.crawl_delay_ms) + h.duration_ms / max(1, h.fetch_count)) >= ?4 THEN ?4 ELSE 1 END
		FROM hosts h LEFT JOIN urls u ON NOT h.paused AND h.in_flight < h.max_in_flight AND max(h.next_at, h.blocked_until, h.http_deferred_until, h.https_deferred_until) <= {now}
			AND u.id = (SELECT id FROM urls WHERE host_id = h.id AND status IN ('pending', 'failed') ORDER BY priority DESC, ready_at, id LIMIT 1) AND u.ready_at <= {now}
		WHERE h.due_at <= {now} AND NOT EXISTS (SELECT 1 FROM settings WHERE name = 'paused') ORDER BY h.due_at LIMIT ?1 + 0`, limit, t.delayMS, millis(ahead), maxRow)
	return collect(rows, err, func(h *dueHost) []any {
		return append(h.claim.columns(), &h.id, &h.claim.Host, &h.now, &h.opens, &h.deferred[0], &h.deferred[1], &h.room, span{&h.claim.Delay}, &h.row)
	})
}

// take claims at most share URLs of each host, and sets when a claim looks at it again.
func (t tx) take(hosts []dueHost, share int, params ClaimParams) (claims []Claim, err error) {
	var once []int64 // hosts whose first URL is claimed, as of most
	for _, h := range hosts {
		var due any // null if the host is paused or has no capacity, or if no more URLs wait
		var taken []Claim
		limit, row := min(h.room, share), min(h.row, maxRows/len(hosts))
		switch {
		case h.opens > h.now:
			due = h.opens
		case limit == 1 && h.claim.ID != 0 && row < 2:
			claims, once = append(claims, h.claim), append(once, h.id)
			continue
		case limit > 0 && min(h.deferred[0], h.deferred[1]) > h.now:
			due = h.deferred.ends(h.now)
		case limit > 0:
			if limit == 1 && h.claim.ID != 0 {
				limit = row
			} else {
				row = 0
			}
			if taken, due, err = t.search(h, limit); err != nil {
				return nil, err
			}
			if row > 0 {
				taken = inRow(taken)
			}
			if len(taken) >= h.room {
				due = nil
			}
			claims = append(claims, taken...)
		}
		if _, err = t.Exec(`UPDATE hosts SET in_flight = in_flight + ?, due_at = ? WHERE id = ?`, len(taken), due, h.id); err != nil {
			return nil, err
		}
	}
	now := hosts[0].now
	if err := t.among(once, `UPDATE hosts SET due_at = CASE WHEN in_flight + 1 < max_in_flight THEN ?2 END, in_flight = in_flight + 1`, now); err != nil {
		return nil, err
	}
	// Larger than any earlier one, also in a copy of the file that lacks the last claims.
	token := now<<20 + rand.Int64N(1<<20)
	ids := make([]int64, len(claims))
	for i := range claims {
		claims[i].Token, ids[i] = max(claims[i].Token+1, token), claims[i].ID
	}
	return claims, t.among(ids, `UPDATE urls SET status = 'fetching', token = max(token + 1, ?2), lease_until = ?3, worker = ?4, holds = 1`,
		token, now+millis(params.Lease), params.Worker)
}

// inRow returns the claims of a host that are fetched one after the other.
func inRow(claims []Claim) []Claim {
	if slices.ContainsFunc(claims, func(c Claim) bool { return c.CrashCount > 0 }) {
		return claims[:1]
	}
	for i := range claims {
		claims[i].Behind = i > 0
	}
	return claims
}

// among runs a statement on rows with these ids, unless there are none. Its other arguments begin with ?2.
func (t tx) among(ids []int64, query string, args ...any) (err error) {
	switch len(ids) {
	case 0:
		return nil
	case 1: // this takes half the time of a list
		_, err = t.Exec(query+` WHERE id = ?1`, append([]any{ids[0]}, args...)...)
	default:
		var list string
		if list, err = toJSON(ids); err == nil {
			_, err = t.Exec(query+` WHERE id IN (SELECT value FROM json_each(?1))`, append([]any{list}, args...)...)
		}
	}
	return err
}

// search returns at most limit URLs of h that are ready, one priority after the other, because URLs of a
// high one may have to wait. due is when the first URL that it does not return is ready, or when an origin is held
// back no longer, or nil.
func (t tx) search(h dueHost, limit int) (claims []Claim, due any, err error) {
	waiting, next := h.deferred.waiting(h.now), int64(math.MaxInt64)
	if ends := h.deferred.ends(h.now); ends > 0 {
		next = ends
	}
	for priority := MaxPriority + 1; ; {
		var first int64
		more, err := t.One(`SELECT priority, ready_at`+waiting+`< ?2 ORDER BY priority DESC, ready_at, id LIMIT 1`, []any{h.id, priority}, &priority, &first)
		if err != nil {
			return nil, nil, err
		}
		if !more {
			break
		}
		if first <= h.now {
			rows, err := t.Query(`SELECT `+claimColumns+waiting+`= ?2 AND ready_at <= ?3 ORDER BY ready_at, id LIMIT ?4 + 0`, h.id, priority, h.now, limit-len(claims))
			ready, err := collect(rows, err, func(c *Claim) []any {
				c.Host, c.Delay = h.claim.Host, h.claim.Delay
				return c.columns()
			})
			if err != nil {
				return nil, nil, err
			}
			if claims = append(claims, ready...); len(claims) == limit {
				return claims, h.now, nil
			}
			if more, err = t.One(`SELECT ready_at`+waiting+`= ?2 AND ready_at > ?3 ORDER BY ready_at, id LIMIT 1`, []any{h.id, priority, h.now}, &first); err != nil {
				return nil, nil, err
			}
		}
		if more {
			next = min(next, first)
		}
	}
	if next < math.MaxInt64 {
		due = next
	}
	return claims, due, nil
}

// RecordFetch implements [Store].
func (s *sqliteDB) RecordFetch(ctx context.Context, fetches []Fetch) ([]error, error) {
	ready, results := items(fetches)
	var recorded []int
	err := s.do(ctx, "record fetches", func(t tx) error {
		for _, it := range ready {
			ok, err := t.record(it)
			if err != nil {
				return fmt.Errorf("URL %d: %w", it.ID, err)
			}
			if ok {
				recorded = append(recorded, it.place)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, place := range recorded {
		results[place] = nil
	}
	return results, nil
}

func (t tx) record(it item) (bool, error) {
	var host, holds, now int64
	var url string
	held, err := t.One(`UPDATE urls SET status = CASE WHEN ?1 = 'fetched' AND ?18 < 0 AND kind > ?18 OR ?19 AND page_id > 0 THEN 'pending' ELSE ?1 END, lease_until = 0, worker = '', last_error = ?2, error_class = ?3,
			retry_count = ?4, http_status = ?5,
			failure_count = CASE WHEN ?1 = 'fetched' THEN 0 ELSE failure_count + 1 END,
			ready_at = CASE WHEN ?1 = 'failed' THEN {now} + 1 + ?6 ELSE ready_at END,
			etag = CASE WHEN ?7 = '' AND NOT ?11 THEN etag ELSE ?7 END,
			last_modified = CASE WHEN ?8 = '' AND NOT ?11 THEN last_modified ELSE ?8 END,
			body_digest = CASE WHEN ?11 THEN ?12 ELSE body_digest END,
			title = CASE WHEN ?11 THEN ?20 ELSE title END,
			digest = CASE WHEN ?11 THEN ?21 ELSE digest END,
			earlier_record_id = CASE WHEN ?11 THEN ?13 ELSE earlier_record_id END,
			earlier_url = CASE WHEN ?11 THEN ?14 ELSE earlier_url END,
			earlier_date = CASE WHEN ?11 THEN ?15 ELSE earlier_date END,
			earlier_payload_digest = CASE WHEN ?11 THEN ?16 ELSE earlier_payload_digest END,
			recrawl_ms = CASE WHEN ?1 = 'fetched' THEN ?17 ELSE recrawl_ms END,
			recrawl_at = CASE WHEN ?1 <> 'fetched' THEN recrawl_at WHEN ?17 > 0 THEN {now} + ?17 ELSE 0 END,
			fetched_at = {now}
		WHERE id = ?9 AND token = ?10 AND status = 'fetching' RETURNING host_id, holds, url, fetched_at`,
		[]any{it.Status, it.LastError, it.ErrorClass, it.RetryCount, it.HTTPStatus, it.RetryInMS, it.ETag, it.LastModified,
			it.ID, it.Token, it.Whole, it.BodyDigest, it.EarlierRecordID, it.EarlierURL, it.EarlierDate, it.EarlierPayloadDigest,
			it.RecrawlInMS, it.Kind, it.Unneeded, it.Title, it.Digest}, &host, &holds, &url, &now)
	if err != nil || !held {
		return false, err
	}
	if err := t.count(it, host, holds, now); err != nil {
		return false, err
	}
	_, err = t.Exec(`INSERT INTO fetches (url_id, token, url, final_url, status, http_status, error_class, last_error, attempts,
			retry_count, duration_ms, wait_ms, bytes, body_digest, ended_at, content_type, charset, headers,
			warc_file, warc_offset, warc_length, warc_record_id, warc_date, warc_payload_digest)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		it.ID, it.Token, url, it.FinalURL, it.Status, it.HTTPStatus, it.ErrorClass, it.LastError, it.Attempts,
		it.RetryCount, it.DurationMS, it.WaitMS, it.Bytes, it.BodyDigest, now, it.ContentType, it.Charset, it.Headers,
		it.WARCFile, it.WARCOffset, it.WARCLength, it.WARCRecordID, it.WARCDate, it.WARCPayloadDigest)
	if err != nil || it.FinalURL == "" || it.FinalURL == url {
		return true, err
	}
	return true, t.moveTo(it, host)
}

// count ends a fetch of a host, and adds it to the sums of the host. The delay starts now if the fetch has sent a
// request and has not left the host before.
func (t tx) count(it item, host, holds, now int64) error {
	_, err := t.Exec(`UPDATE hosts SET in_flight = in_flight - ?1,
			next_at = CASE WHEN ?2 THEN max(next_at, ?9 `+afterDelay+`) ELSE next_at END,
			due_at = CASE WHEN in_flight - ?1 < max_in_flight THEN max(next_at, blocked_until, CASE WHEN ?2 THEN ?9 `+afterDelay+` ELSE 0 END) END,
			fetch_count = fetch_count + ?4, failure_count = failure_count + ?5, duration_ms = duration_ms + ?6, bytes = bytes + ?7,
			first_at = CASE WHEN first_at = 0 AND ?4 THEN ?9 ELSE first_at END
		WHERE id = ?8`, holds, it.Attempts > 0 && holds == 1, t.delayMS, it.Attempts > 0, it.Attempts > 0 && it.Status != Fetched,
		it.DurationMS, it.Bytes, host, now)
	return err
}

// moveTo gives the row its final URL, unless another row has that URL.
func (t tx) moveTo(it item, from int64) error {
	var host int64
	_, err := t.One(`INSERT INTO hosts (host) VALUES (?) ON CONFLICT (host) DO UPDATE SET host = excluded.host RETURNING id`,
		[]any{it.FinalHost}, &host)
	if err != nil {
		return err
	}
	const move = ` urls SET url = ?, url_hash = ?, host_id = ? WHERE id = ?`
	args := []any{it.FinalURL, it.hash, host, it.ID}
	n, err := t.Exec(`UPDATE OR IGNORE`+move, args...)
	if err == nil && n == 1 && host != from {
		_, err = t.Exec(`UPDATE hosts SET url_count = url_count + CASE id WHEN ?1 THEN 1 ELSE -1 END WHERE id IN (?1, ?2) AND url_count IS NOT NULL`, host, from)
	}
	if err != nil || n == 1 {
		return err
	}
	var taken bool
	if _, err := t.One(`SELECT EXISTS (SELECT 1 FROM urls WHERE url_hash = ?)`, []any{it.hash}, &taken); err != nil || taken {
		return err
	}
	// OR IGNORE ignores the violation of any constraint. It was not that of url_hash, so repeat
	// the update to get the error.
	_, err = t.Exec(`UPDATE`+move, args...)
	return err
}
