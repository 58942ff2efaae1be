package store

import (
	"strings"
	"testing"
)

// olderPrograms are the calls of programs that know the schema of version 5, in the order of a put, a claim and a
// record. ID and TOKEN stand for those of the claim.
var olderPrograms = map[string]struct {
	put    []string
	claim  string // returns id and token
	record []string
}{
	"postgres": {
		put: []string{
			`INSERT INTO hosts (host) SELECT w.host FROM unnest('{a.test,b.test}'::text[]) AS w (host)
				WHERE NOT EXISTS (SELECT 1 FROM hosts h WHERE h.host = w.host) ORDER BY w.host ON CONFLICT (host) DO NOTHING`,
			`SELECT frontier_put('[{"url": "http://a.test/1", "host": "a.test", "hash": "01"}, {"url": "http://a.test/2", "host": "a.test", "hash": "02"},
				{"url": "http://a.test/1", "host": "a.test", "hash": "01"}, {"url": "http://b.test/", "host": "b.test", "hash": "03"}]')`,
		},
		claim: `SELECT id, token FROM frontier_claim_earlier(1, 60000, 'old')`,
		record: []string{
			`INSERT INTO hosts (host) VALUES ('c.test')`,
			`SELECT frontier_record('[{"id": ID, "token": TOKEN, "status": "fetched", "final_url": "http://c.test/", "final_hash": "04", "final_host": "c.test",
				"last_error": "", "error_class": "", "retry_in_ms": 0, "http_status": 200, "attempts": 1, "retry_count": 0, "duration_ms": 5, "wait_ms": 0,
				"bytes": 7, "etag": "x", "last_modified": "", "body_digest": "d", "content_type": "", "charset": "", "headers": "", "whole": true,
				"warc_file": "", "warc_offset": 0, "warc_length": 0, "warc_record_id": "", "warc_date": "", "warc_payload_digest": "",
				"earlier_record_id": "", "earlier_url": "", "earlier_date": "", "earlier_payload_digest": ""}]', 0)`,
		},
	},
	"sqlite": {
		put: []string{
			`INSERT INTO hosts (host, due_at) VALUES ('a.test', 0) ON CONFLICT (host) DO UPDATE SET due_at = max(next_at, blocked_until) RETURNING id`,
			`INSERT INTO hosts (host, due_at) VALUES ('b.test', 0) ON CONFLICT (host) DO UPDATE SET due_at = max(next_at, blocked_until) RETURNING id`,
			`INSERT INTO urls (host_id, url, url_hash) VALUES (1, 'http://a.test/1', x'01'), (1, 'http://a.test/2', x'02'), (1, 'http://a.test/1', x'01'),
				(2, 'http://b.test/', x'03') ON CONFLICT (url_hash) DO NOTHING`,
		},
		claim: `SELECT u.id, u.token + 1 FROM hosts h LEFT JOIN urls u ON NOT h.paused AND h.in_flight < h.max_in_flight AND max(h.next_at, h.blocked_until) <= {now}
			AND u.id = (SELECT id FROM urls WHERE host_id = h.id AND status IN ('pending', 'failed') AND ready_at <= {now} ORDER BY ready_at, id LIMIT 1)
			WHERE h.due_at <= {now} AND NOT EXISTS (SELECT 1 FROM settings WHERE name = 'paused') ORDER BY h.due_at LIMIT 1`,
		record: []string{
			`UPDATE urls SET status = 'fetching', token = TOKEN, lease_until = {now} + 60000, worker = 'old', holds = 1 WHERE id = ID`,
			`UPDATE hosts SET in_flight = in_flight + 1, due_at = CASE WHEN paused OR in_flight + 1 >= max_in_flight THEN NULL
				ELSE (SELECT max(hosts.next_at, hosts.blocked_until, ready_at) FROM urls
				WHERE host_id = hosts.id AND status IN ('pending', 'failed') ORDER BY ready_at, id LIMIT 1) END WHERE id = 1`,
			`SELECT EXISTS (SELECT 1 FROM urls INDEXED BY urls_waiting WHERE status IN ('pending', 'failed'))
				OR EXISTS (SELECT 1 FROM urls INDEXED BY urls_leased WHERE status = 'fetching')`,
			`UPDATE urls SET status = 'fetched', lease_until = 0, worker = '', etag = 'x', fetched_at = {now} WHERE id = ID AND token = TOKEN AND status = 'fetching'`,
			`UPDATE hosts SET in_flight = in_flight - 1, next_at = max(next_at, {now} + 1), due_at = max(next_at, blocked_until, {now} + 1) WHERE id = 1`,
			`INSERT INTO fetches (url_id, token, url, final_url, status, http_status, error_class, last_error, attempts,
				retry_count, duration_ms, wait_ms, bytes, body_digest, ended_at, content_type, charset, headers,
				warc_file, warc_offset, warc_length, warc_record_id, warc_date, warc_payload_digest)
				VALUES (ID, TOKEN, 'http://a.test/1', 'http://c.test/', 'fetched', 200, '', '', 1, 0, 5, 0, 7, 'd', {now}, '', '', '', '', 0, 0, '', '', '')`,
			`INSERT INTO hosts (host) VALUES ('c.test')`,
			`UPDATE OR IGNORE urls SET url = 'http://c.test/', url_hash = x'04', host_id = 3 WHERE id = ID`,
		},
	},
}

// A program that started before the migration continues on the new schema, next to new ones.
func TestOlderPrograms(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		kind := "sqlite"
		if strings.HasPrefix(f.dsn, "postgres:") {
			kind = "postgres"
		}
		old := olderPrograms[kind]
		for _, query := range old.put {
			f.exec(query)
		}
		if got := f.number(`SELECT count(*) FROM urls`); got != 3 {
			t.Errorf("%d URLs, want the 3 that are different", got)
		}
		var id, token string
		must(t, f.db().QueryRow(f.Store.db.Translate(old.claim)).Scan(&id, &token))
		for _, query := range old.record {
			f.exec(strings.NewReplacer("ID", id, "TOKEN", token).Replace(query))
		}
		if got := f.number(`SELECT count(*) FROM urls u JOIN hosts h ON h.id = u.host_id WHERE url = 'http://c.test/' AND host = 'c.test' AND status = 'fetched'`); got != 1 {
			t.Errorf("%d rows are fetched and have the final URL, want 1", got)
		}
		f.openHosts()
		claims := f.claim(2)
		for _, c := range claims {
			if c.Kind != Page || c.Priority != 0 || c.Depth != 0 || c.Metadata != "" || c.Recrawl != 0 {
				t.Errorf("claim = %+v, want zero for what older programs do not know", c)
			}
			f.fetched(c)
		}
		f.wantSoundHosts("at the end")
	})
}
