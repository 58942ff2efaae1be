package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"time"

	"fetchd/frontier/store/database"
)

// URL is a row of the frontier. Times are zero where they do not apply.
type URL struct {
	ID           int64
	URL          string
	Host         string
	Status       Status
	LastError    string
	ErrorClass   string
	RetryCount   int // of its last fetch
	FailureCount int // failed fetches since the last success
	CrashCount   int // leases that expired or were abandoned
	HTTPStatus   int
	ReadyAt      time.Time // the URL is not claimed before
	LeaseUntil   time.Time
	Worker       string // that holds the lease
	FetchedAt    time.Time
	RecrawlAt    time.Time // when a Fetched URL is due to be fetched again
	Place
}

// Place is where a URL came from, and how urgent it is.
type Place struct {
	Kind      Kind
	Priority  int
	Depth     int
	Metadata  string
	ParentURL string // empty if there is none, or if it was deleted
	PageURL   string // of the page that needs it; likewise
	Hops      int    // from that page
	Title     string // of the page; may be empty
}

// Host is the state that decides when a host may be fetched from.
type Host struct {
	NextAt       time.Time // after the delay
	TurnAt       time.Time // when the host asks for a turn of its group; in the past or zero if it does not wait for one
	BlockedUntil time.Time
	Delay        time.Duration // the effective one
	InFlight     int
	MaxInFlight  int
	Paused       bool
}

// FetchRow is a recorded fetch.
type FetchRow struct {
	ID         int64
	URL        string // that was requested
	FinalURL   string // in its normal form; empty if none was recorded
	Status     Status
	HTTPStatus int
	ErrorClass string
	LastError  string
	Attempts   int
	RetryCount int // Attempts − 1
	Duration   time.Duration
	Wait       time.Duration
	Bytes      int64
	BodyDigest string
	EndedAt    time.Time
	Content
	Archived Archived
}

// Counts are the numbers of URLs in each status, and of hosts.
type Counts struct {
	Pending, Fetching, Fetched, Failed, Dead int64
	Scheduled                                int64 // those of Fetched that will be fetched again

	Hosts         int64
	HostsInFlight int64 // with a fetch in flight
	HostsBlocked  int64 // after a 429 or 503
	HostsWaiting  int64 // that will be due later
	HostsDue      int64 // that a claim would look at now
	HostsPaused   int64
	NextDue       time.Duration // until the first of HostsWaiting is due; zero if there is none
	Paused        bool          // the crawl as a whole

	Waits           Waits
	OriginsDeferred int64     // whose URLs wait for an unreachable robots.txt
	LastOutcome     time.Time // when the last outcome was recorded; zero if there is none
}

// Waits are the numbers of pending and failed URLs by what they wait for. The first that applies counts, in this
// order, so the sum is that of all.
type Waits struct {
	CrawlPaused       int64
	HostPaused        int64
	RobotsUnreachable int64 // for the robots.txt of their origin
	HostBlocked       int64 // for the end of a pause after a 429 or 503
	BackingOff        int64 // for the time of their retry
	HostInFlight      int64 // for the end of fetches of their host
	HostDelay         int64 // for the delay of their host
	Turn              int64 // for their turn among the URLs of their host, and for a worker
}

// Wait is one of Waits, with the reason code of "frontier why".
type Wait struct {
	Code string
	URLs int64
}

// List returns all numbers in their order.
func (w Waits) List() []Wait {
	return []Wait{{"crawl_paused", w.CrawlPaused}, {"host_paused", w.HostPaused}, {"robots_unreachable", w.RobotsUnreachable},
		{"host_blocked", w.HostBlocked}, {"backing_off", w.BackingOff}, {"host_in_flight", w.HostInFlight}, {"host_delay", w.HostDelay}, {"its_turn", w.Turn}}
}

const urlColumns = `u.id, u.url, h.host, u.status, u.last_error, u.error_class, u.retry_count, u.failure_count, u.crash_count,
	u.http_status, u.ready_at, u.lease_until, u.worker, u.fetched_at, u.recrawl_at,
	u.kind, u.priority, u.depth, u.metadata, COALESCE((SELECT p.url FROM urls p WHERE p.id = u.parent_id), ''),
	COALESCE((SELECT p.url FROM urls p WHERE p.id = u.page_id), ''), u.hops, u.title`

// columns returns where urlColumns go.
func (u *URL) columns() []any {
	return []any{&u.ID, &u.URL, &u.Host, &u.Status, &u.LastError, &u.ErrorClass, &u.RetryCount, &u.FailureCount,
		&u.CrashCount, &u.HTTPStatus, instant{&u.ReadyAt}, instant{&u.LeaseUntil}, &u.Worker, instant{&u.FetchedAt}, instant{&u.RecrawlAt},
		&u.Kind, &u.Priority, &u.Depth, &u.Metadata, &u.ParentURL, &u.PageURL, &u.Hops, &u.Title}
}

// Due implements [Store].
func (s *core) Due(ctx context.Context) (hosts int64, delay time.Duration, err error) {
	hosts, err = s.db.Int(ctx, "count due hosts", `SELECT count(*) FROM hosts WHERE due_at <= {now}`)
	return hosts, time.Duration(s.delayMS) * time.Millisecond, err
}

// Counts implements [Store].
func (s *core) Counts(ctx context.Context) (Counts, error) {
	var n Counts
	err := s.db.QueryRow(ctx, `SELECT u.pending, u.fetching, u.fetched, u.failed, u.dead, u.scheduled,
			h.every, h.flying, h.blocked, h.waiting, h.due, h.paused, h.next, EXISTS (SELECT 1 FROM settings WHERE name = 'paused')
		FROM (SELECT count(CASE status WHEN 'pending' THEN 1 END) AS pending, count(CASE status WHEN 'fetching' THEN 1 END) AS fetching,
			count(CASE status WHEN 'fetched' THEN 1 END) AS fetched, count(CASE status WHEN 'failed' THEN 1 END) AS failed,
			count(CASE status WHEN 'dead' THEN 1 END) AS dead,
			count(CASE WHEN status = 'fetched' AND recrawl_at > 0 THEN 1 END) AS scheduled FROM urls AS a) AS u,
		(SELECT count(*) AS every, count(CASE WHEN in_flight > 0 THEN 1 END) AS flying,
			count(CASE WHEN blocked_until > {now} THEN 1 END) AS blocked,
			count(CASE WHEN due_at > {now} THEN 1 END) AS waiting, count(CASE WHEN due_at <= {now} THEN 1 END) AS due,
			count(CASE WHEN paused THEN 1 END) AS paused, COALESCE(min(CASE WHEN due_at > {now} THEN due_at - {now} END), 0) AS next FROM hosts AS b) AS h`).
		Scan(&n.Pending, &n.Fetching, &n.Fetched, &n.Failed, &n.Dead, &n.Scheduled,
			&n.Hosts, &n.HostsInFlight, &n.HostsBlocked, &n.HostsWaiting, &n.HostsDue, &n.HostsPaused, span{&n.NextDue}, &n.Paused)
	if err == nil {
		err = s.countWaits(ctx, &n)
	}
	if err != nil {
		return Counts{}, fmt.Errorf("count: %w", err)
	}
	return n, nil
}

// countWaits counts the URLs that wait by host and origin first, because what they wait for is mostly a property of these.
func (s *core) countWaits(ctx context.Context, n *Counts) error {
	var w Waits
	err := s.db.QueryRow(ctx, `SELECT COALESCE(sum(CASE WHEN paused THEN n END), 0), COALESCE(sum(CASE WHEN NOT paused AND deferred > now THEN n END), 0),
			COALESCE(sum(CASE WHEN open AND blocked_until > now THEN n END), 0),
			COALESCE(sum(CASE WHEN open AND blocked_until <= now THEN later END), 0),
			COALESCE(sum(CASE WHEN open AND blocked_until <= now AND in_flight >= max_in_flight THEN n - later END), 0),
			COALESCE(sum(CASE WHEN open AND blocked_until <= now AND in_flight < max_in_flight AND next_at > now THEN n - later END), 0),
			COALESCE(sum(CASE WHEN open AND blocked_until <= now AND in_flight < max_in_flight AND next_at <= now THEN n - later END), 0),
			(SELECT count(CASE WHEN http_deferred_until > x.now THEN 1 END) + count(CASE WHEN https_deferred_until > x.now THEN 1 END) FROM hosts AS y, (SELECT {now} AS now) AS x),
			COALESCE((SELECT ended_at FROM fetches ORDER BY id DESC LIMIT 1), 0)
		FROM (SELECT h.*, u.n, u.later, t.now, CASE WHEN u.secure THEN h.https_deferred_until ELSE h.http_deferred_until END AS deferred,
				NOT h.paused AND CASE WHEN u.secure THEN h.https_deferred_until ELSE h.http_deferred_until END <= t.now AS open
			FROM (SELECT host_id, `+scheme+` = 's' AS secure, count(*) AS n, sum(CASE WHEN ready_at > (SELECT {now}) THEN 1 ELSE 0 END) AS later
				FROM urls AS a WHERE status IN ('pending', 'failed') GROUP BY host_id, `+scheme+`) AS u
			JOIN hosts h ON h.id = u.host_id CROSS JOIN (SELECT {now} AS now) AS t) AS w`).
		Scan(&w.HostPaused, &w.RobotsUnreachable, &w.HostBlocked, &w.BackingOff, &w.HostInFlight, &w.HostDelay, &w.Turn, &n.OriginsDeferred, instant{&n.LastOutcome})
	if n.Paused {
		w = Waits{CrawlPaused: w.HostPaused + w.RobotsUnreachable + w.HostBlocked + w.BackingOff + w.HostInFlight + w.HostDelay + w.Turn}
	}
	n.Waits = w
	return err
}

// URLs implements [Store].
func (s *core) URLs(ctx context.Context) iter.Seq2[URL, error] {
	query := `SELECT ` + urlColumns + ` FROM urls u JOIN hosts h ON h.id = u.host_id WHERE u.id > ? ORDER BY u.id LIMIT ?`
	return pages(ctx, s.db, query, (*URL).columns, func(u URL) int64 { return u.ID })
}

const fetchColumns = `f.id, f.url, f.final_url, f.status, f.http_status, f.error_class, f.last_error, f.attempts, f.retry_count,
	f.duration_ms, f.wait_ms, f.bytes, f.body_digest, f.ended_at, f.content_type, f.charset, f.headers,
	f.warc_file, f.warc_offset, f.warc_length, f.warc_record_id, f.warc_date, f.warc_payload_digest`

// columns returns where fetchColumns go.
func (f *FetchRow) columns() []any {
	return []any{&f.ID, &f.URL, &f.FinalURL, &f.Status, &f.HTTPStatus, &f.ErrorClass, &f.LastError, &f.Attempts,
		&f.RetryCount, span{&f.Duration}, span{&f.Wait}, &f.Bytes, &f.BodyDigest, instant{&f.EndedAt}, &f.ContentType, &f.Charset, &f.Headers,
		&f.Archived.File, &f.Archived.Offset, &f.Archived.Length, &f.Archived.RecordID, &f.Archived.Date, &f.Archived.PayloadDigest}
}

// Fetches implements [Store].
func (s *core) Fetches(ctx context.Context) iter.Seq2[FetchRow, error] {
	query := `SELECT ` + fetchColumns + ` FROM fetches f WHERE f.id > ? ORDER BY f.id LIMIT ?`
	return pages(ctx, s.db, query, (*FetchRow).columns, func(f FetchRow) int64 { return f.ID })
}

// pages yields rows in the order of ids. It reads each page before it yields its rows: a slow
// caller then holds no snapshot, which would keep SQLite's log growing.
func pages[T any](ctx context.Context, db *database.DB, query string, columns func(*T) []any, id func(T) int64) iter.Seq2[T, error] {
	const size = 1000
	return func(yield func(T, error) bool) {
		for after := int64(0); ; {
			rows, err := db.Query(ctx, query, after, size)
			page, err := collect(rows, err, columns)
			if err != nil {
				yield(*new(T), fmt.Errorf("read rows after %d: %w", after, err))
				return
			}
			for _, row := range page {
				if !yield(row, nil) {
					return
				}
			}
			if len(page) < size {
				return
			}
			after = id(page[size-1])
		}
	}
}

// Explanation is the state that decides when a URL is fetched next.
type Explanation struct {
	URL      URL
	Host     Host
	Deferred time.Time // until when Defer keeps the URLs of its origin from being claimed; zero if it does not
	Paused   bool      // the crawl as a whole
	Now      time.Time // by the database's clock
}

// Why implements [Store].
func (s *core) Why(ctx context.Context, url string) (Explanation, error) {
	var e Explanation
	n, err := normalise(url, false)
	if err != nil {
		return Explanation{}, err
	}
	keyed, err := normalise(url, true)
	if err != nil {
		return Explanation{}, err
	}
	var deferred time.Time
	row := s.db.QueryRow(ctx, `SELECT `+urlColumns+`, h.next_at, abs(h.turn_at), h.blocked_until,
			{max}(COALESCE(h.delay_ms, (SELECT CAST(value AS BIGINT) FROM settings WHERE name = '`+callerSetting+DelaySetting+`'), ?), h.crawl_delay_ms), h.in_flight, h.max_in_flight, h.paused,
			CASE WHEN substr(u.url, 5, 1) = 's' THEN h.https_deferred_until ELSE h.http_deferred_until END, EXISTS (SELECT 1 FROM settings WHERE name = 'paused'), {now}
		FROM urls u JOIN hosts h ON h.id = u.host_id WHERE u.url_hash IN (?, ?) ORDER BY CASE WHEN u.url_hash = ? THEN 0 ELSE 1 END LIMIT 1`, s.delayMS, n.hash, keyed.hash, n.hash)
	err = row.Scan(append(e.URL.columns(), instant{&e.Host.NextAt}, instant{&e.Host.TurnAt}, instant{&e.Host.BlockedUntil}, span{&e.Host.Delay}, &e.Host.InFlight, &e.Host.MaxInFlight, &e.Host.Paused,
		instant{&deferred}, &e.Paused, instant{&e.Now})...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Explanation{}, ErrUnknownURL
	case err != nil:
		return Explanation{}, fmt.Errorf("read a URL: %w", err)
	}
	if deferred.After(e.Now) {
		e.Deferred = deferred
	}
	return e, nil
}
