package store

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"fetchd/frontier/normal"
	"fetchd/frontier/traps"
)

// item is a Fetch as it goes to the database. frontier_record reads the JSON names, and a missing field as zero.
type item struct {
	place        int    // index in the caller's slice
	hash         []byte // of FinalURL
	ID           int64  `json:"id"`
	Token        int64  `json:"token"`
	Status       Status `json:"status"`
	FinalURL     string `json:"final_url,omitempty"`
	FinalHash    string `json:"final_hash,omitempty"`
	FinalHost    string `json:"final_host,omitempty"`
	LastError    string `json:"last_error,omitempty"`
	ErrorClass   string `json:"error_class,omitempty"`
	RetryInMS    int64  `json:"retry_in_ms,omitempty"`
	HTTPStatus   int    `json:"http_status,omitempty"`
	Attempts     int    `json:"attempts,omitempty"`
	RetryCount   int    `json:"retry_count,omitempty"`
	DurationMS   int64  `json:"duration_ms,omitempty"`
	WaitMS       int64  `json:"wait_ms,omitempty"`
	Bytes        int64  `json:"bytes,omitempty"`
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"last_modified,omitempty"`
	BodyDigest   string `json:"body_digest,omitempty"`
	ContentType  string `json:"content_type,omitempty"`
	Charset      string `json:"charset,omitempty"`
	Headers      string `json:"headers,omitempty"`
	Whole        bool   `json:"whole,omitempty"` // a 2xx, which replaces the stored validators, digest, title and earlier record
	Kind         Kind   `json:"kind,omitempty"`
	Unneeded     bool   `json:"unneeded,omitempty"`
	Title        string `json:"title,omitempty"`
	Digest       int64  `json:"digest,omitempty"`
	RecrawlInMS  int64  `json:"recrawl_in_ms,omitempty"`

	WARCFile          string `json:"warc_file,omitempty"`
	WARCOffset        int64  `json:"warc_offset,omitempty"`
	WARCLength        int64  `json:"warc_length,omitempty"`
	WARCRecordID      string `json:"warc_record_id,omitempty"`
	WARCDate          string `json:"warc_date,omitempty"`
	WARCPayloadDigest string `json:"warc_payload_digest,omitempty"`

	EarlierRecordID      string `json:"earlier_record_id,omitempty"`
	EarlierURL           string `json:"earlier_url,omitempty"`
	EarlierDate          string `json:"earlier_date,omitempty"`
	EarlierPayloadDigest string `json:"earlier_payload_digest,omitempty"`
}

// items checks fetches. It returns the valid ones, and an error for every fetch. That of a valid
// one is ErrStale, until the database says that it was recorded. Of two fetches of one URL it
// returns that of the later claim, because the other claim's lease was lost.
func items(fetches []Fetch) ([]item, []error) {
	faults := make([]error, len(fetches))
	ready := make([]item, 0, len(fetches))
	seen := make(map[int64]int, len(fetches)) // places in ready, by id
	for i, f := range fetches {
		it, err := f.item(i)
		if err != nil {
			faults[i] = err
			continue
		}
		faults[i] = fmt.Errorf("record URL %d: %w", f.ID, ErrStale)
		at, twice := seen[f.ID]
		switch {
		case !twice:
			seen[f.ID] = len(ready)
			ready = append(ready, it)
		case it.Token > ready[at].Token:
			ready[at] = it
		}
	}
	return ready, faults
}

func (f Fetch) item(place int) (item, error) {
	if f.Status != Fetched && f.Status != Failed && f.Status != Dead {
		return item{}, fmt.Errorf("record URL %d: %q is not a status of a recorded fetch", f.ID, f.Status)
	}
	it := item{
		place: place, ID: f.ID, Token: f.Token, Status: f.Status,
		LastError: clean(f.LastError), ErrorClass: clean(f.ErrorClass), RetryInMS: millis(f.RetryIn),
		HTTPStatus: f.HTTPStatus, Attempts: f.Attempts, RetryCount: max(0, f.Attempts-1),
		DurationMS: millis(f.Duration), WaitMS: millis(f.Wait), Bytes: f.Bytes,
		ETag: clean(f.ETag), LastModified: clean(f.LastModified), BodyDigest: clean(f.BodyDigest),
		ContentType: clean(f.ContentType), Charset: clean(f.Charset), Headers: clean(f.Headers),
		Whole: f.Status == Fetched && f.HTTPStatus/100 == 2, RecrawlInMS: millis(f.RecrawlIn), Kind: f.Kind, Unneeded: f.Unneeded, Title: clean(f.Title), Digest: f.Digest,
		WARCFile: clean(f.Archived.File), WARCOffset: f.Archived.Offset, WARCLength: f.Archived.Length, WARCRecordID: clean(f.Archived.RecordID),
		WARCDate: clean(f.Archived.Date), WARCPayloadDigest: clean(f.Archived.PayloadDigest),
	}
	e := f.Earlier.clean()
	it.EarlierRecordID, it.EarlierURL, it.EarlierDate, it.EarlierPayloadDigest = e.RecordID, e.URL, e.Date, e.PayloadDigest
	if f.FinalURL == "" || f.Status != Fetched {
		return it, nil
	}
	n, err := normalise(f.FinalURL, true)
	if err != nil {
		return item{}, fmt.Errorf("record URL %d: final URL: %w", f.ID, err)
	}
	it.FinalURL, it.FinalHost, it.FinalHash, it.hash = n.URL, n.Host, n.Hash, n.hash
	return it, nil
}

// normalised is an Entry as frontier_put_entries reads it. A missing field is zero.
type normalised struct {
	hash      []byte
	key       string
	URL       string `json:"url"`
	Host      string `json:"host"`
	Hash      string `json:"hash"`
	Kind      Kind   `json:"kind,omitempty"`
	Priority  int    `json:"priority,omitempty"`
	Depth     int    `json:"depth,omitempty"`
	Parent    int64  `json:"parent,omitempty"`
	Metadata  string `json:"metadata,omitempty"`
	ChangedMS int64  `json:"changed_ms,omitempty"`
	Page      int64  `json:"page,omitempty"`
	Hops      int    `json:"hops,omitempty"`
}

// normalise returns a URL. With keyed, its hash is that of its [traps.Key].
func normalise(raw string, keyed bool) (normalised, error) {
	u, err := normal.NormalizeURL(raw)
	if err != nil {
		return normalised{}, err
	}
	host, err := normal.ExtractHost(u)
	if err != nil {
		return normalised{}, err
	}
	key := u
	if keyed {
		key = traps.Key(u)
	}
	hash := normal.URLHash(key)
	return normalised{URL: u, Host: host, Hash: hex.EncodeToString(hash[:]), hash: hash[:], key: key}, nil
}

// normaliseAll separates valid entries from others. Of entries with the same key it returns the first,
// with the smallest depth, the last change, the widest kind and the first need of all.
func normaliseAll(entries []Entry) ([]normalised, []BadURL) {
	good := make([]normalised, 0, len(entries))
	seen := make(map[string]int, len(entries)) // places in good, by key
	var bad []BadURL
	for i, e := range entries {
		n, err := e.normalise()
		if err != nil {
			bad = append(bad, BadURL{Index: i, Err: err})
			continue
		}
		if at, twice := seen[n.key]; twice {
			good[at].merge(n)
			continue
		}
		seen[n.key] = len(good)
		good = append(good, n)
	}
	return good, bad
}

// merge adds another entry of the same URL. The depth of a requisite does not count.
func (n *normalised) merge(o normalised) {
	switch {
	case n.Kind < Page && o.Kind >= Page:
		n.Depth = o.Depth
	case n.Kind >= Page && o.Kind < Page:
	default:
		n.Depth = min(n.Depth, o.Depth)
	}
	n.Kind = max(n.Kind, o.Kind)
	n.ChangedMS = max(n.ChangedMS, o.ChangedMS)
	if n.Page == 0 {
		n.Page, n.Hops = o.Page, o.Hops
	}
}

func (e Entry) normalise() (normalised, error) {
	n, err := normalise(e.URL, e.Linked && e.Kind >= Page)
	switch {
	case err != nil:
		return n, err
	case e.Kind < Asset || e.Kind > Sitemap:
		return n, fmt.Errorf("kind %d is none", e.Kind)
	case e.Kind < Page && e.Need.PageID == 0:
		return n, errors.New("a requisite has no page")
	case e.Priority < -MaxPriority || e.Priority > MaxPriority:
		return n, fmt.Errorf("priority %d is not between -%d and %d", e.Priority, MaxPriority, MaxPriority)
	case e.Depth < 0 || e.Depth > math.MaxInt32:
		return n, fmt.Errorf("depth %d is not between 0 and %d", e.Depth, math.MaxInt32)
	case len(e.Metadata) > MaxMetadata:
		return n, fmt.Errorf("metadata has %d bytes, the limit is %d", len(e.Metadata), MaxMetadata)
	}
	n.Kind, n.Priority, n.Depth, n.Parent, n.Metadata = e.Kind, e.Priority, e.Depth, e.Parent, clean(e.Metadata)
	n.Page, n.Hops = e.Need.PageID, e.Need.Hops
	if !e.Changed.IsZero() {
		n.ChangedMS = e.Changed.UnixMilli()
	}
	return n, nil
}

// clean makes text valid for both databases. PostgreSQL accepts neither NUL nor invalid UTF-8,
// and an origin can send both.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func (e Earlier) clean() Earlier {
	return Earlier{clean(e.RecordID), clean(e.URL), clean(e.Date), clean(e.PayloadDigest)}
}

func (p ClaimParams) withDefaults() ClaimParams {
	p.Limit = max(1, p.Limit)
	if p.Lease <= 0 {
		p.Lease = 5 * time.Minute
	}
	p.Worker = clean(p.Worker)
	return p
}
