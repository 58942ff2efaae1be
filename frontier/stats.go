package frontier

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"fetchd/frontier/outage"
	"fetchd/frontier/store"
)

// Record is a recorded outcome. Its JSON is one line of --outcomes.
type Record struct {
	Time       time.Time `json:"time"`
	ID         int64     `json:"id"` // of the URL in the frontier
	URL        string    `json:"url"`
	FinalURL   string    `json:"final_url,omitempty"` // as fetchd reported it; empty unless fetched
	Status     string    `json:"status"`              // fetched, failed or dead
	HTTPStatus int       `json:"http_status,omitempty"`
	ErrorClass string    `json:"error_class,omitempty"`
	LastError  string    `json:"last_error,omitempty"`
	Attempts   int       `json:"attempts"`
	RetryCount int       `json:"retry_count"`
	DurationMS int64     `json:"duration_ms"`
	WaitMS     int64     `json:"wait_ms"`
	Bytes      int64     `json:"bytes"`
	BodySHA256 string    `json:"body_sha256,omitempty"`

	WARCFile          string `json:"warc_file,omitempty"` // of the last response, if the crawl is recorded
	WARCOffset        int64  `json:"warc_offset,omitempty"`
	WARCLength        int64  `json:"warc_length,omitempty"`
	WARCRecordID      string `json:"warc_record_id,omitempty"`
	WARCDate          string `json:"warc_date,omitempty"`
	WARCPayloadDigest string `json:"warc_payload_digest,omitempty"`

	ContentType string          `json:"content_type,omitempty"` // without parameters
	Charset     string          `json:"charset,omitempty"`
	Headers     json.RawMessage `json:"headers,omitempty"` // names of Config.KeepHeaders to lists of values
}

// Stats counts what one worker has done since it started.
type Stats struct {
	Open      int64 // visits in flight; a row of URLs of one host is one
	Completed int64 // fetched
	Failed    int64 // to be tried again later
	Dead      int64 // not to be tried again
	// Disallowed counts those of Dead that robots.txt forbids.
	Disallowed int64
	Retried    int64 // attempts within fetches, after the first of each
	Lost       int64 // fetches whose service was lost
	Stale      int64 // outcomes whose lease was lost
	Errors     int64 // errors of the store, or of the place of bodies
	Bytes      int64 // of bodies
	Robots     int64 // fetches of a robots.txt, successful or not
}

type stats struct {
	claimed                                                                                atomic.Int64 // URLs of all visits, and behind them
	open, completed, failed, dead, disallowed, retried, lost, stale, errors, bytes, robots atomic.Int64
}

// reporter counts and logs what a worker does.
type reporter struct {
	logger  *slog.Logger
	metrics *Metrics
	stats   stats
	outage  outage.Outage // of the store
}

// Stats returns the counts so far. It is safe for concurrent use.
func (r *reporter) Stats() Stats {
	s := &r.stats
	return Stats{Open: s.open.Load(), Completed: s.completed.Load(), Failed: s.failed.Load(), Dead: s.dead.Load(), Disallowed: s.disallowed.Load(),
		Retried: s.retried.Load(), Lost: s.lost.Load(), Stale: s.stale.Load(), Errors: s.errors.Load(), Bytes: s.bytes.Load(), Robots: s.robots.Load()}
}

// open returns the number of visits.
func (r *reporter) open() int { return int(r.stats.open.Load()) }

// count counts a recorded outcome, and returns it.
func (r *reporter) count(c store.Claim, f store.Fetch) Record {
	rec := Record{
		Time: time.Now().UTC(), ID: c.ID, URL: c.URL, FinalURL: f.FinalURL, Status: string(f.Status), HTTPStatus: f.HTTPStatus,
		ErrorClass: f.ErrorClass, LastError: f.LastError, Attempts: f.Attempts, RetryCount: max(0, f.Attempts-1),
		DurationMS: f.Duration.Milliseconds(), WaitMS: f.Wait.Milliseconds(), Bytes: f.Bytes, BodySHA256: f.BodyDigest,
		ContentType: f.ContentType, Charset: f.Charset, Headers: json.RawMessage(f.Headers),
		WARCFile: f.Archived.File, WARCOffset: f.Archived.Offset, WARCLength: f.Archived.Length, WARCRecordID: f.Archived.RecordID,
		WARCDate: f.Archived.Date, WARCPayloadDigest: f.Archived.PayloadDigest,
	}
	switch f.Status {
	case store.Fetched:
		r.stats.completed.Add(1)
	case store.Failed:
		r.stats.failed.Add(1)
	default:
		r.stats.dead.Add(1)
		if rec.ErrorClass == ClassRobotsDisallowed {
			r.stats.disallowed.Add(1)
		}
	}
	r.stats.retried.Add(int64(rec.RetryCount))
	r.stats.bytes.Add(rec.Bytes)
	r.metrics.outcomes.WithLabelValues(rec.Status, rec.ErrorClass).Inc()
	r.metrics.retries.Add(float64(rec.RetryCount))
	r.metrics.bytes.Add(float64(rec.Bytes))
	return rec
}

// leaseLost counts a URL whose lease was lost.
func (r *reporter) leaseLost() {
	r.stats.stale.Add(1)
	r.metrics.stale.Inc()
}

// called measures a call of the store, and reports its error unless the end of ctx may have caused it.
func (r *reporter) called(ctx context.Context, name, doing string, started time.Time, err error) {
	r.measured(ctx, name, started, err)
	if err != nil && ctx.Err() == nil {
		r.reportError(ctx, doing, err)
	}
}

// measured measures a call of the store. A success may end an outage.
func (r *reporter) measured(ctx context.Context, name string, started time.Time, err error) {
	r.metrics.storeCall(name, time.Since(started), err)
	if err == nil {
		r.outage.Worked(ctx, r.logger)
	}
}

// reportError counts an error of the store. The log has the first one of an outage.
func (r *reporter) reportError(ctx context.Context, doing string, err error) {
	r.countError(doing)
	r.logger.Log(ctx, r.outage.Failed(), "cannot "+doing, slog.Any("error", err))
}

func (r *reporter) countError(doing string) {
	r.stats.errors.Add(1)
	r.metrics.errors.WithLabelValues(doing).Inc()
}

// cannotStore counts an error of a place of results, and delays claims. The log has one error for
// each delay, because every fetch in flight has the same one.
func (r *reporter) cannotStore(ctx context.Context, b *backoff, doing string, err error) {
	r.countError(doing)
	if b.failed() {
		r.logger.ErrorContext(ctx, "cannot "+doing, slog.Any("error", err))
	}
}

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

	Requisites         int64 // new URLs that pages need
	Excluded           int64 // requisites that are excluded, each time that they are named
	OverRequisites     int64 // requisites that a limit of their page has left out, likewise
	OverRequisiteHosts int64 // requisites that Requisites.MaxHosts has left out, likewise
	Traps              Traps
	// Cut counts the pages of which a limit has left out links, by the limit.
	Cut map[string]int64
}

// found counts under a lock.
type found struct {
	mu  sync.Mutex
	now Found
}

func (f *found) read() Found {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now
	now.Cut = maps.Clone(now.Cut)
	return now
}

func (f *found) add(change func(*Found)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.now)
}
