package show

import (
	"cmp"
	"io"
	"iter"
	"time"

	"fetchd/frontier/store"
	"fetchd/internal/jsontext"
)

// URLs writes URLs as JSON lines.
func URLs(out io.Writer, all iter.Seq2[store.URL, error]) error {
	return export(out, all, urlRowOf)
}

// Fetches writes recorded fetches as JSON lines.
func Fetches(out io.Writer, all iter.Seq2[store.FetchRow, error]) error {
	return export(out, all, fetchRowOf)
}

// export writes all rows.
func export[S, R any](out io.Writer, all iter.Seq2[S, error], rowOf func(S) R) error {
	lines := jsontext.NewEncoder(out)
	for s, err := range all {
		if err != nil {
			return err
		}
		if err := lines.Encode(rowOf(s)); err != nil {
			return err
		}
	}
	return nil
}

// Timestamp is a shown time: RFC 3339 in UTC, or null if it is zero.
type Timestamp struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return []byte(`"` + Stamp(t.Time) + `"`), nil
}

// Stamp formats a time: RFC 3339 in UTC with milliseconds.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// urlRow is a URL as "frontier export" and "frontier why" show it. Its JSON names are stable.
type urlRow struct {
	ID           int64     `json:"id"`
	URL          string    `json:"url"`
	Host         string    `json:"host"`
	Status       string    `json:"status"`
	LastError    string    `json:"last_error"`
	ErrorClass   string    `json:"error_class"`
	RetryCount   int       `json:"retry_count"`
	FailureCount int       `json:"failure_count"`
	CrashCount   int       `json:"crash_count"`
	HTTPStatus   int       `json:"http_status"`
	ReadyAt      Timestamp `json:"ready_at"`
	LeaseUntil   Timestamp `json:"lease_until"`
	Worker       string    `json:"worker"`
	FetchedAt    Timestamp `json:"fetched_at"`
	RecrawlAt    Timestamp `json:"recrawl_at"` // when a fetched URL is due to be fetched again
	Kind         string    `json:"kind"`
	Priority     int       `json:"priority"`
	Depth        int       `json:"depth"`
	ParentURL    string    `json:"parent_url"`
	PageURL      string    `json:"page_url"` // of the page that needs it to be shown
	Title        string    `json:"title"`
	Metadata     string    `json:"metadata"`
}

func urlRowOf(u store.URL) urlRow {
	return urlRow{
		ID: u.ID, URL: u.URL, Host: u.Host, Status: string(u.Status), LastError: u.LastError, ErrorClass: u.ErrorClass,
		RetryCount: u.RetryCount, FailureCount: u.FailureCount, CrashCount: u.CrashCount, HTTPStatus: u.HTTPStatus,
		ReadyAt: Timestamp{u.ReadyAt}, LeaseUntil: Timestamp{u.LeaseUntil}, Worker: u.Worker, FetchedAt: Timestamp{u.FetchedAt}, RecrawlAt: Timestamp{u.RecrawlAt},
		Kind: u.Kind.String(), Priority: u.Priority, Depth: u.Depth, ParentURL: u.ParentURL, PageURL: u.PageURL, Title: u.Title, Metadata: u.Metadata,
	}
}

// fetchRow is an exported fetch. Its JSON names are stable.
type fetchRow struct {
	ID         int64     `json:"id"`
	URL        string    `json:"url"`
	FinalURL   string    `json:"final_url"`
	Status     string    `json:"status"`
	HTTPStatus int       `json:"http_status"`
	ErrorClass string    `json:"error_class"`
	LastError  string    `json:"last_error"`
	Attempts   int       `json:"attempts"`
	RetryCount int       `json:"retry_count"`
	DurationMS int64     `json:"duration_ms"`
	WaitMS     int64     `json:"wait_ms"`
	Bytes      int64     `json:"bytes"`
	BodyDigest string    `json:"body_digest"`
	EndedAt    Timestamp `json:"ended_at"`

	ContentType string  `json:"content_type"`
	Charset     string  `json:"charset"`
	Headers     headers `json:"headers"`

	WARCFile          string `json:"warc_file"`
	WARCOffset        int64  `json:"warc_offset"`
	WARCLength        int64  `json:"warc_length"`
	WARCRecordID      string `json:"warc_record_id"`
	WARCDate          string `json:"warc_date"`
	WARCPayloadDigest string `json:"warc_payload_digest"`
}

// headers are the kept headers of a fetch as JSON: an object, or an empty text if there are none.
type headers string

// MarshalJSON implements json.Marshaler.
func (h headers) MarshalJSON() ([]byte, error) { return []byte(cmp.Or(string(h), "{}")), nil }

func fetchRowOf(f store.FetchRow) fetchRow {
	return fetchRow{
		ID: f.ID, URL: f.URL, FinalURL: f.FinalURL, Status: string(f.Status), HTTPStatus: f.HTTPStatus, ErrorClass: f.ErrorClass,
		LastError: f.LastError, Attempts: f.Attempts, RetryCount: f.RetryCount, DurationMS: f.Duration.Milliseconds(),
		WaitMS: f.Wait.Milliseconds(), Bytes: f.Bytes, BodyDigest: f.BodyDigest, EndedAt: Timestamp{f.EndedAt},
		ContentType: f.ContentType, Charset: f.Charset, Headers: headers(f.Headers),
		WARCFile: f.Archived.File, WARCOffset: f.Archived.Offset, WARCLength: f.Archived.Length, WARCRecordID: f.Archived.RecordID,
		WARCDate: f.Archived.Date, WARCPayloadDigest: f.Archived.PayloadDigest,
	}
}
