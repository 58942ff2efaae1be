package store

import (
	"context"
	"fmt"
	"time"
)

// Put implements [Store]. It makes the host due even if the URL is not new, because a claim that
// found no URL of the host must look again.
func (s *sqliteDB) Put(ctx context.Context, entries []Entry, _ Limits) (PutResult, error) {
	good, bad := normaliseAll(entries)
	r := PutResult{Bad: bad}
	err := s.do(ctx, "put URLs", func(t tx) error {
		hosts := make(map[string]int64)
		for _, u := range good {
			if hosts[u.Host] == 0 {
				var id int64
				if _, err := t.one(`INSERT INTO hosts (host, due_at) VALUES (?, 0)
					ON CONFLICT (host) DO UPDATE SET due_at = max(next_at, blocked_until) RETURNING id`, []any{u.Host}, &id); err != nil {
					return err
				}
				hosts[u.Host] = id
			}
			n, err := t.exec(`INSERT INTO urls (host_id, url, url_hash, kind, priority, depth, parent_id, metadata)
				VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (url_hash) DO NOTHING`,
				hosts[u.Host], u.URL, u.hash, u.Kind, u.Priority, u.Depth, u.Parent, u.Metadata)
			if err != nil {
				return err
			}
			r.Added += n
		}
		return nil
	})
	if err != nil {
		return PutResult{}, err
	}
	r.Known = int64(len(good)) - r.Added
	return r, nil
}

// dueHost is a host that a claim looks at, with the URL that it may claim.
type dueHost struct {
	id    int64
	claim Claim // with ID 0 if no URL can be claimed
	until int64 // when a lease that starts now ends
}

// Claim implements [Store].
func (s *sqliteDB) Claim(ctx context.Context, params ClaimParams) (claims []Claim, err error) {
	params = params.withDefaults()
	err = s.do(ctx, "claim", func(t tx) error {
		for len(claims) < params.Limit {
			due, err := t.due(params.Limit-len(claims), params.Lease)
			if err != nil || len(due) == 0 {
				return err
			}
			for _, h := range due {
				if err = t.take(h, params.Worker); err != nil {
					return err
				}
				if h.claim.ID != 0 {
					claims = append(claims, h.claim)
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

// due reads hosts in the order in which they became due. The planner would prepare the statement
// again for each new value of LIMIT; the sum hides it.
func (t tx) due(limit int, lease time.Duration) ([]dueHost, error) {
	stmt, err := t.stmt(`SELECT h.id, h.host, {now} + ?1, COALESCE(u.id, 0), COALESCE(u.token, 0) + 1, COALESCE(u.url, ''),
			COALESCE(u.failure_count, 0), COALESCE(u.crash_count, 0), COALESCE(u.etag, ''), COALESCE(u.last_modified, ''),
			COALESCE(u.body_digest, ''), COALESCE(u.earlier_record_id, ''), COALESCE(u.earlier_url, ''), COALESCE(u.earlier_date, ''),
			COALESCE(u.earlier_payload_digest, ''), COALESCE(u.kind, 0), COALESCE(u.priority, 0), COALESCE(u.depth, 0), COALESCE(u.metadata, ''), COALESCE(u.recrawl_ms, 0)
		FROM hosts h LEFT JOIN urls u ON NOT h.paused AND h.in_flight < h.max_in_flight AND max(h.next_at, h.blocked_until) <= {now}
			AND u.id = (SELECT id FROM urls WHERE host_id = h.id AND status IN ('pending', 'failed') AND ready_at <= {now}
				ORDER BY ready_at, id LIMIT 1)
		WHERE h.due_at <= {now} AND NOT EXISTS (SELECT 1 FROM settings WHERE name = 'paused') ORDER BY h.due_at LIMIT ?2 + 0`)
	if err != nil {
		return nil, err
	}
	rows, err := stmt.QueryContext(t.ctx, millis(lease), limit)
	return collect(rows, err, func(scan func(...any) error) (h dueHost, err error) {
		c := &h.claim
		var recrawl int64
		err = scan(&h.id, &c.Host, &h.until, &c.ID, &c.Token, &c.URL, &c.FailureCount, &c.CrashCount, &c.ETag, &c.LastModified, &c.BodyDigest,
			&c.Earlier.RecordID, &c.Earlier.URL, &c.Earlier.Date, &c.Earlier.PayloadDigest, &c.Kind, &c.Priority, &c.Depth, &c.Metadata, &recrawl)
		c.Recrawl = time.Duration(recrawl) * time.Millisecond
		return h, err
	})
}

// take claims the URL of h if there is one, and sets when a claim looks at h again.
func (t tx) take(h dueHost, worker string) error {
	if h.claim.ID != 0 {
		_, err := t.exec(`UPDATE urls SET status = 'fetching', token = ?, lease_until = ?, worker = ?, holds = 1 WHERE id = ?`,
			h.claim.Token, h.until, worker, h.claim.ID)
		if err != nil {
			return err
		}
	}
	_, err := t.exec(`UPDATE hosts SET in_flight = in_flight + ?1, due_at = CASE
			WHEN paused OR in_flight + ?1 >= max_in_flight THEN NULL
			ELSE (SELECT max(hosts.next_at, hosts.blocked_until, ready_at) FROM urls
				WHERE host_id = hosts.id AND status IN ('pending', 'failed') ORDER BY ready_at, id LIMIT 1) END
		WHERE id = ?2`, h.claim.ID != 0, h.id)
	return err
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
	var host, holds int64
	var url string
	held, err := t.one(`UPDATE urls SET status = ?1, lease_until = 0, worker = '', last_error = ?2, error_class = ?3,
			retry_count = ?4, http_status = ?5,
			failure_count = CASE WHEN ?1 = 'fetched' THEN 0 ELSE failure_count + 1 END,
			ready_at = CASE WHEN ?1 = 'failed' THEN {now} + 1 + ?6 ELSE ready_at END,
			etag = CASE WHEN ?7 = '' AND NOT ?11 THEN etag ELSE ?7 END,
			last_modified = CASE WHEN ?8 = '' AND NOT ?11 THEN last_modified ELSE ?8 END,
			body_digest = CASE WHEN ?11 THEN ?12 ELSE body_digest END,
			earlier_record_id = CASE WHEN ?11 THEN ?13 ELSE earlier_record_id END,
			earlier_url = CASE WHEN ?11 THEN ?14 ELSE earlier_url END,
			earlier_date = CASE WHEN ?11 THEN ?15 ELSE earlier_date END,
			earlier_payload_digest = CASE WHEN ?11 THEN ?16 ELSE earlier_payload_digest END,
			fetched_at = {now}
		WHERE id = ?9 AND token = ?10 AND status = 'fetching' RETURNING host_id, holds, url`,
		[]any{it.Status, it.LastError, it.ErrorClass, it.RetryCount, it.HTTPStatus, it.RetryInMS, it.ETag, it.LastModified,
			it.ID, it.Token, it.Whole, it.BodyDigest, it.EarlierRecordID, it.EarlierURL, it.EarlierDate, it.EarlierPayloadDigest}, &host, &holds, &url)
	if err != nil || !held {
		return false, err
	}
	end := tx.free
	if it.Attempts > 0 && holds == 1 {
		end = tx.delayHost
	}
	if err := end(t, host, holds); err != nil {
		return false, err
	}
	_, err = t.exec(`INSERT INTO fetches (url_id, token, url, final_url, status, http_status, error_class, last_error, attempts,
			retry_count, duration_ms, wait_ms, bytes, body_digest, ended_at, content_type, charset, headers,
			warc_file, warc_offset, warc_length, warc_record_id, warc_date, warc_payload_digest)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {now}, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		it.ID, it.Token, url, it.FinalURL, it.Status, it.HTTPStatus, it.ErrorClass, it.LastError, it.Attempts,
		it.RetryCount, it.DurationMS, it.WaitMS, it.Bytes, it.BodyDigest, it.ContentType, it.Charset, it.Headers,
		it.WARCFile, it.WARCOffset, it.WARCLength, it.WARCRecordID, it.WARCDate, it.WARCPayloadDigest)
	if err != nil || it.FinalURL == "" || it.FinalURL == url {
		return true, err
	}
	return true, t.moveTo(it)
}

// free ends a fetch of a host to which it has sent nothing, or which it has left before.
func (t tx) free(host, holds int64) error {
	_, err := t.exec(`UPDATE hosts SET in_flight = in_flight - ?, due_at = max(next_at, blocked_until) WHERE id = ?`, holds, host)
	return err
}

// delayHost ends a fetch of a host, whose delay starts now.
func (t tx) delayHost(host, holds int64) error {
	_, err := t.exec(`UPDATE hosts SET in_flight = in_flight - ?3,
			next_at = max(next_at, {now} + 1 + max(COALESCE(delay_ms, ?1), crawl_delay_ms)),
			due_at = max(next_at, blocked_until, {now} + 1 + max(COALESCE(delay_ms, ?1), crawl_delay_ms))
		WHERE id = ?2`, t.s.delayMS, host, holds)
	return err
}

// moveTo gives the row its final URL, unless another row has that URL.
func (t tx) moveTo(it item) error {
	var host int64
	_, err := t.one(`INSERT INTO hosts (host) VALUES (?) ON CONFLICT (host) DO UPDATE SET host = excluded.host RETURNING id`,
		[]any{it.FinalHost}, &host)
	if err != nil {
		return err
	}
	const move = ` urls SET url = ?, url_hash = ?, host_id = ? WHERE id = ?`
	args := []any{it.FinalURL, it.hash, host, it.ID}
	n, err := t.exec(`UPDATE OR IGNORE`+move, args...)
	if err != nil || n == 1 {
		return err
	}
	var taken bool
	if _, err := t.one(`SELECT EXISTS (SELECT 1 FROM urls WHERE url_hash = ?)`, []any{it.hash}, &taken); err != nil || taken {
		return err
	}
	// OR IGNORE ignores the violation of any constraint. It was not that of url_hash, so repeat
	// the update to get the error.
	_, err = t.exec(`UPDATE`+move, args...)
	return err
}
