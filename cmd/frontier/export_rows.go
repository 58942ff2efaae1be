package main

import (
	"strconv"
	"time"

	"fetchd/frontier/store"
)

// timestamp is a time as it is exported: RFC 3339 in UTC, null or an empty cell
// for none.
type timestamp time.Time

// MarshalJSON implements json.Marshaler.
func (t timestamp) MarshalJSON() ([]byte, error) {
	if time.Time(t).IsZero() {
		return []byte("null"), nil
	}
	return []byte(`"` + t.cell() + `"`), nil
}

func (t timestamp) cell() string {
	if time.Time(t).IsZero() {
		return ""
	}
	return stamp(time.Time(t))
}

// urlRow is a URL as it is exported. The names of its JSON are stable.
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
	ReadyAt      timestamp `json:"ready_at"`
	LeaseUntil   timestamp `json:"lease_until"`
	Worker       string    `json:"worker"`
	FetchedAt    timestamp `json:"fetched_at"`
}

func urlRowOf(u store.URL) urlRow {
	return urlRow{
		ID: u.ID, URL: u.URL, Host: u.Host, Status: string(u.Status), LastError: u.LastError, ErrorClass: u.ErrorClass,
		RetryCount: u.RetryCount, FailureCount: u.FailureCount, CrashCount: u.CrashCount, HTTPStatus: u.HTTPStatus,
		ReadyAt: timestamp(u.ReadyAt), LeaseUntil: timestamp(u.LeaseUntil), Worker: u.Worker, FetchedAt: timestamp(u.FetchedAt),
	}
}

// fetchRow is a fetch as it is exported. The names of its JSON are stable.
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
	EndedAt    timestamp `json:"ended_at"`
}

func fetchRowOf(f store.FetchRow) fetchRow {
	return fetchRow{
		ID: f.ID, URL: f.URL, FinalURL: f.FinalURL, Status: string(f.Status), HTTPStatus: f.HTTPStatus, ErrorClass: f.ErrorClass,
		LastError: f.LastError, Attempts: f.Attempts, RetryCount: f.RetryCount, DurationMS: f.Duration.Milliseconds(),
		WaitMS: f.Wait.Milliseconds(), Bytes: f.Bytes, BodyDigest: f.BodyDigest, EndedAt: timestamp(f.EndedAt),
	}
}

// columnsOf are the names of the cells of a row: those of its JSON.
func columnsOf(what string) []string {
	if what == "fetches" {
		return []string{"id", "url", "final_url", "status", "http_status", "error_class", "last_error", "attempts", "retry_count",
			"duration_ms", "wait_ms", "bytes", "body_digest", "ended_at"}
	}
	return []string{"id", "url", "host", "status", "last_error", "error_class", "retry_count", "failure_count", "crash_count",
		"http_status", "ready_at", "lease_until", "worker", "fetched_at"}
}

func (u urlRow) cells() []string {
	return []string{strconv.FormatInt(u.ID, 10), u.URL, u.Host, u.Status, u.LastError, u.ErrorClass, strconv.Itoa(u.RetryCount),
		strconv.Itoa(u.FailureCount), strconv.Itoa(u.CrashCount), strconv.Itoa(u.HTTPStatus), u.ReadyAt.cell(), u.LeaseUntil.cell(),
		u.Worker, u.FetchedAt.cell()}
}

func (f fetchRow) cells() []string {
	return []string{strconv.FormatInt(f.ID, 10), f.URL, f.FinalURL, f.Status, strconv.Itoa(f.HTTPStatus), f.ErrorClass, f.LastError,
		strconv.Itoa(f.Attempts), strconv.Itoa(f.RetryCount), strconv.FormatInt(f.DurationMS, 10), strconv.FormatInt(f.WaitMS, 10),
		strconv.FormatInt(f.Bytes, 10), f.BodyDigest, f.EndedAt.cell()}
}
