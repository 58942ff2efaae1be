package main

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"time"

	"fetchd/frontier/store"
)

// timestamp is an exported time: RFC 3339 in UTC, or null or an empty cell if it is zero.
type timestamp time.Time

// MarshalJSON implements json.Marshaler.
func (t timestamp) MarshalJSON() ([]byte, error) {
	if time.Time(t).IsZero() {
		return []byte("null"), nil
	}
	return []byte(`"` + t.String() + `"`), nil
}

// String returns the time as a cell.
func (t timestamp) String() string {
	if time.Time(t).IsZero() {
		return ""
	}
	return stamp(time.Time(t))
}

// urlRow is an exported URL. Its JSON names are stable.
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
	RecrawlAt    timestamp `json:"recrawl_at"` // when a fetched URL is due to be fetched again
	Kind         string    `json:"kind"`
	Priority     int       `json:"priority"`
	Depth        int       `json:"depth"`
	ParentURL    string    `json:"parent_url"`
	Metadata     string    `json:"metadata"`
}

func urlRowOf(u store.URL) urlRow {
	return urlRow{
		ID: u.ID, URL: u.URL, Host: u.Host, Status: string(u.Status), LastError: u.LastError, ErrorClass: u.ErrorClass,
		RetryCount: u.RetryCount, FailureCount: u.FailureCount, CrashCount: u.CrashCount, HTTPStatus: u.HTTPStatus,
		ReadyAt: timestamp(u.ReadyAt), LeaseUntil: timestamp(u.LeaseUntil), Worker: u.Worker, FetchedAt: timestamp(u.FetchedAt), RecrawlAt: timestamp(u.RecrawlAt),
		Kind: u.Kind.String(), Priority: u.Priority, Depth: u.Depth, ParentURL: u.ParentURL, Metadata: u.Metadata,
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
	EndedAt    timestamp `json:"ended_at"`

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

// headers are the kept headers of a fetch as JSON: an object, or an empty cell if there are none.
type headers string

// MarshalJSON implements json.Marshaler.
func (h headers) MarshalJSON() ([]byte, error) { return []byte(cmp.Or(string(h), "{}")), nil }

func fetchRowOf(f store.FetchRow) fetchRow {
	return fetchRow{
		ID: f.ID, URL: f.URL, FinalURL: f.FinalURL, Status: string(f.Status), HTTPStatus: f.HTTPStatus, ErrorClass: f.ErrorClass,
		LastError: f.LastError, Attempts: f.Attempts, RetryCount: f.RetryCount, DurationMS: f.Duration.Milliseconds(),
		WaitMS: f.Wait.Milliseconds(), Bytes: f.Bytes, BodyDigest: f.BodyDigest, EndedAt: timestamp(f.EndedAt),
		ContentType: f.ContentType, Charset: f.Charset, Headers: headers(f.Headers),
		WARCFile: f.Archived.File, WARCOffset: f.Archived.Offset, WARCLength: f.Archived.Length, WARCRecordID: f.Archived.RecordID,
		WARCDate: f.Archived.Date, WARCPayloadDigest: f.Archived.PayloadDigest,
	}
}

// columnsOf returns the columns of a row type, which are its JSON names.
func columnsOf(row reflect.Type) []string {
	var names []string
	for field := range row.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// cellsOf returns the fields of a row as text.
func cellsOf(row any) []string {
	var cells []string
	for _, value := range reflect.ValueOf(row).Fields() {
		cells = append(cells, fmt.Sprint(value.Interface()))
	}
	return cells
}
