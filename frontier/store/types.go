package store

import (
	"errors"
	"time"

	"fetchd/frontier/store/database"
)

var (
	// ErrStale means that a lease was lost: its URL was reaped, recorded, or claimed again.
	ErrStale = errors.New("the lease was lost")
	// ErrNewerSchema is an error of Open, as are the next four.
	ErrNewerSchema = database.ErrNewerSchema
	// ErrOlderSchema is [database.ErrOlderSchema].
	ErrOlderSchema = database.ErrOlderSchema
	// ErrReadOnly is [database.ErrReadOnly].
	ErrReadOnly = database.ErrReadOnly
	// ErrIsolation is [database.ErrIsolation].
	ErrIsolation = database.ErrIsolation
	// ErrNormalForm is [database.ErrNormalForm].
	ErrNormalForm = database.ErrNormalForm
	// ErrUnknownURL means that the frontier does not have a URL.
	ErrUnknownURL = errors.New("the frontier does not have this URL")
)

// Status is the state of a URL.
type Status string

const (
	// Pending URLs wait for their first fetch, or for another one that a user requested.
	Pending Status = "pending"
	// Fetching URLs are leased.
	Fetching Status = "fetching"
	// Fetched URLs are done.
	Fetched Status = "fetched"
	// Failed URLs are tried again later.
	Failed Status = "failed"
	// Dead URLs failed and are not tried again.
	Dead Status = "dead"
)

// Kind is what a URL leads to.
type Kind int

const (
	// Asset is needed to show a page, and needs nothing itself: an image, a script, a font.
	Asset Kind = iota - 2
	// Requisite is needed to show a page, and may need more: a style sheet, a frame, a manifest.
	Requisite
	// Page is a document to fetch.
	Page
	// Sitemap is a list of URLs.
	Sitemap
)

// String returns "requisite", "page" or "sitemap".
func (k Kind) String() string {
	switch {
	case k < Page:
		return "requisite"
	case k == Sitemap:
		return "sitemap"
	}
	return "page"
}

const (
	// MaxPriority is the highest priority of a URL. The lowest is -MaxPriority.
	MaxPriority = 100
	// MaxMetadata is the maximum length of metadata, in bytes.
	MaxMetadata = 4 << 10
)

// Entry is a URL to put.
type Entry struct {
	URL      string
	Kind     Kind
	Priority int       // within its host, up to MaxPriority; a higher one is claimed first
	Depth    int       // number of links from a seed, which has 0
	Parent   int64     // ID of the URL with the link; zero if there is none
	Metadata string    // a JSON object, up to MaxMetadata; may be empty
	Changed  time.Time // when the page changed last, as a sitemap says; zero if unknown
	Need     Need
	// Linked says that a link led to the URL. Then it is the same as one that differs in session ids only, by
	// [traps.Key]. A requisite is not, because each page is shown with its own.
	Linked bool
}

// Need says which page needs a URL to be shown. It is zero if none does. A URL that is needed is claimed
// before the others of its host and priority, and those of the last page first.
type Need struct {
	PageID int64
	Hops   int // from the page to the URL, through style sheets and frames: one or more
}

// Entries returns an entry for each URL.
func Entries(urls ...string) []Entry {
	entries := make([]Entry, len(urls))
	for i, u := range urls {
		entries[i].URL = u
	}
	return entries
}

// Limits limit the URLs that a Put adds. Zero means no limit.
type Limits struct {
	URLs        int64 // in the whole frontier
	URLsPerHost int64
}

// BadURL is an entry of a Put that is not valid.
type BadURL struct {
	Index int // in the argument of Put
	Err   error
}

// PutResult is the result of a Put.
type PutResult struct {
	Added    int64    // new URLs
	Known    int64    // URLs that existed already, or came twice
	Over     int64    // URLs that Limits.URLs has kept out
	OverHost int64    // URLs that Limits.URLsPerHost has kept out
	Bad      []BadURL // invalid entries, in the order of Index; the others were added

	hosts int64 // new hosts
}

// ClaimParams limits a claim.
type ClaimParams struct {
	Limit  int           // maximum number of URLs; zero means one
	Lease  time.Duration // longer than a fetch's total timeout; zero means five minutes
	Worker string        // name of the worker, for people to read; may be empty
	// Ahead lets a claim take up to 32 URLs of a host that allows one fetch at a time, if its delay is so short that
	// they can start within that time. They count as one for Limit, and all but the first have Behind set.
	Ahead time.Duration
}

const (
	// maxRow is how many URLs of one host a claim takes to be fetched one after the other.
	maxRow = 32
	// maxRows is how many such URLs it takes of all hosts.
	maxRows = 128
)

// Lease is the right to record one fetch of a URL.
type Lease struct {
	ID    int64 `json:"id"`    // of the URL
	Token int64 `json:"token"` // of this claim
}

// Claim is a URL to fetch.
type Claim struct {
	Lease
	URL          string
	Host         string
	Kind         Kind
	Priority     int
	Depth        int
	Parent       int64 // as in [Entry]
	Need         Need
	Metadata     string
	Recrawl      time.Duration // RecrawlIn of its last outcome; zero if there is none
	FailureCount int           // failed fetches since the last success
	CrashCount   int           // leases that expired or were abandoned
	ETag         string        // for a conditional request; empty if the origin sent none
	LastModified string        // likewise
	BodyDigest   string        // of the last success; empty if no body was stored
	Digest       int64         // Digest of the last success
	Delay        time.Duration // of the host, if Ahead was set
	// Behind means that the URL may be fetched only after the one before it in the list, and after Delay, if
	// [Store.GoOn] permits it. Otherwise it must be released.
	Behind  bool
	Address string // of the host, see [Store.SetAddress]; empty if it is not known, or not needed
	Earlier Earlier
}

// Earlier is the record of a response in a WARC file that a later record may refer to. It is zero
// if there is none.
type Earlier struct {
	RecordID      string
	URL           string // that was requested
	Date          string // of the record: RFC 3339 in UTC, with all its digits
	PayloadDigest string
}

// FetchedParams is the part of a Fetch that successes and failures have in common.
type FetchedParams struct {
	Token      int64 // of the claim
	HTTPStatus int   // of the last response; zero if there was none
	// Attempts is the number of requests in this fetch, redirects not counted. Zero means that no
	// request was sent, so the host opens without a delay.
	Attempts int
	Duration time.Duration
	Wait     time.Duration // the part of Duration between attempts
	Bytes    int64         // of the body
	// ETag and LastModified are the validators of the response. An empty one keeps the stored
	// value, except after a 2xx of a Fetched URL, which clears it.
	ETag         string
	LastModified string
	BodyDigest   string // the name of the stored body; may be empty
	// RecrawlIn makes a Fetched URL due again after that time, see [Store.Recrawl]. Zero means never.
	RecrawlIn time.Duration
	Content
	Archived Archived
	// Earlier replaces the stored one after a 2xx of a Fetched URL, also if it is zero.
	Earlier Earlier
}

// Archived is where the response is in a WARC file. It is zero if it was not recorded.
type Archived struct {
	File           string
	Offset, Length int64 // of the record in the file, in bytes
	RecordID       string
	Date           string // of the record: RFC 3339 in UTC, with all its digits
	PayloadDigest  string // empty if the record has none
}

// Content is what a response says about its content, and what else of it is kept. The caller limits
// its size.
type Content struct {
	ContentType string // the media type without parameters
	Charset     string // of the Content-Type
	Headers     string // those kept, as a JSON object of names and lists of values; may be empty
}

// Fetch is the outcome of one claimed URL. Its retry count is Attempts − 1.
type Fetch struct {
	ID int64 // of the URL
	FetchedParams
	Status     Status // Fetched, Failed or Dead
	FinalURL   string // where a Fetched URL ended; empty means at the URL itself
	LastError  string // if Fetched, what a limit has left out of a page, or empty
	ErrorClass string // empty if Fetched
	RetryIn    time.Duration
	// Kind is that of the claim, if it matters to a URL that has become more meanwhile: one that was claimed as a
	// requisite, and is a page by now, is fetched again.
	Kind Kind
	// Unneeded says that the URL is Dead, and would perhaps not be if the claim had a Need. If it has one by now, it is
	// fetched again.
	Unneeded bool
	Title    string // of a page that was searched; empty keeps the stored one, except after a 2xx
	Digest   int64  // of the body of a page that was searched, or 0: stored as Title is
}

// HostParams are settings of a host. A nil field does not change.
type HostParams struct {
	Delay       *time.Duration // from the end of a fetch to the next start; negative means the default
	CrawlDelay  *time.Duration // of robots.txt, limited by the caller; the longer of the two delays applies
	MaxInFlight *int           // concurrent fetches
}
