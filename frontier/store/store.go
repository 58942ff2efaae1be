package store

import (
	"context"
	"errors"
	"iter"
	"time"

	"fetchd/frontier/store/database"
)

// Store is one frontier in one database. It is safe for concurrent use, also by several stores in
// several processes.
type Store interface {
	// Put adds URLs in their normal form, in this order, as far as limits allow. Of a URL that exists
	// already, only these change: Depth becomes the smaller one, and a page that was fetched before
	// Changed, and is due to be fetched again at some time, is due now.
	Put(ctx context.Context, entries []Entry, limits Limits) (PutResult, error)
	// Claim leases ready URLs: at most one of a host, unless SetHost allowed more. Of a host it takes
	// those of the highest priority first, and of these the one that has waited longest. It never
	// waits. If nothing is due, or the crawl is paused, it returns none.
	Claim(ctx context.Context, params ClaimParams) ([]Claim, error)
	// RecordFetch records fetches in one transaction and opens their hosts, each after its delay
	// if it received a request. The first result has one entry for each fetch: nil if it was
	// recorded, an error that matches [ErrStale] if the lease was lost, or another error if the
	// fetch is not valid.
	//
	// The row of a Fetched URL gets FinalURL in its normal form, unless another row has that URL.
	RecordFetch(ctx context.Context, fetches []Fetch) ([]error, error)
	// Extend makes leases last at least d from now, and returns those that were still held.
	Extend(ctx context.Context, leases []Lease, d time.Duration) ([]Lease, error)
	// Release returns URLs that were claimed but not requested. Their hosts open at once, and
	// nothing is counted. It returns the leases that were still held.
	Release(ctx context.Context, leases []Lease) ([]Lease, error)
	// Postpone makes URLs wait for d whose leases were released. Other URLs of their hosts do not wait. A
	// worker may have claimed some of them since; these do not change.
	Postpone(ctx context.Context, released []Lease, d time.Duration) error
	// Abandon returns URLs whose fetches were lost. It counts a crash for each, and its host opens
	// after its delay. It returns the leases that were still held.
	Abandon(ctx context.Context, leases []Lease) ([]Lease, error)
	// LeaveHosts reports that the last request to the hosts of these claims has ended, although their
	// fetches continue at other hosts. The hosts open after their delay, and the leases stay. It
	// returns the leases that were held and had not departed before.
	LeaveHosts(ctx context.Context, leases []Lease) ([]Lease, error)
	// Reap makes the URLs of expired leases pending again and counts a crash for each. It returns
	// their number.
	Reap(ctx context.Context) (int64, error)

	// DelayHosts reports that a request to each of hosts has just ended. Their URLs are not claimed
	// until the delay has passed.
	DelayHosts(ctx context.Context, hosts []string) error
	// Reserve asks for a host for one request that no claim covers, such as that of a redirect.
	// The request ends within d, which must be more than zero. If it is granted, nobody else
	// claims or reserves the host until Settle, or until d has passed. If not, the host is paused
	// or closed, has its maximum of fetches, or is reserved, and the result says when to ask
	// again. An unknown host is added.
	Reserve(ctx context.Context, host string, d time.Duration) (Reservation, error)
	// Settle reports that the request of a reservation has ended. The host opens after its delay,
	// or later if it was charged for more. Settle does nothing if r was not granted, was settled
	// before, or has expired and the host was used since.
	Settle(ctx context.Context, r Reservation) error
	// Block closes a host for retryAfter. If that is zero, it closes the host for 60 s, and for
	// twice as long each further time up to a day, until the host was open for 30 minutes. It
	// never shortens a block.
	Block(ctx context.Context, host string, retryAfter time.Duration) error
	// SetHost changes the settings of a host, known or not, that params has.
	SetHost(ctx context.Context, host string, params HostParams) error
	// AbortHost makes the pending and failed URLs of a host dead, with an error class and a text
	// of the caller, and returns their number. It does not affect URLs that are put later.
	// RetryFailed with that class undoes it. Like RetryFailed it takes several transactions.
	AbortHost(ctx context.Context, host, class, text string) (int64, error)
	// Knows reports whether a host was ever named to the frontier: by a URL, by a redirect, or by
	// a call that sets, blocks, charges, reserves or pauses it. The frontier has no URL of an
	// unknown host. Knows reads one row.
	Knows(ctx context.Context, host string) (bool, error)
	// Pause stops claims of one host, or of the whole crawl if host is empty.
	Pause(ctx context.Context, host string) error
	// Resume undoes the Pause with the same argument, and no other.
	Resume(ctx context.Context, host string) error

	// Defer keeps the URLs of an origin from being claimed for d, because its robots.txt is unreachable. Other
	// URLs of its host are claimed as before, and a claim costs the same however many URLs are deferred
	// back. It never shortens a deferral. SaveRobots of an answer, RefreshRobots and RetryFailed end it.
	Defer(ctx context.Context, origin string, d time.Duration) error
	// DeferredOrigins returns at most limit origins that are deferred, those first that have been unreachable for
	// longest. It reads the rows of all hosts.
	DeferredOrigins(ctx context.Context, limit int) ([]DeferredOrigin, error)
	// SaveRobots stores the result of a fetch of an origin's robots.txt. If the origin was
	// unreachable, the body of its last answer stays. It refuses a body of more than 512 KiB.
	SaveRobots(ctx context.Context, r Robots) error
	// Robots returns what is known about origins, by origin. One that was never saved is missing.
	Robots(ctx context.Context, origins []string) (map[string]Robots, error)
	// RobotsHeads is Robots without the bodies, which may be long.
	RobotsHeads(ctx context.Context, origins []string) (map[string]Robots, error)
	// RefreshRobots has the files of origins fetched again, by the next worker that needs them, and
	// returns how many of them were stored.
	RefreshRobots(ctx context.Context, origins []string) (int64, error)
	// RobotsToRefresh returns origins whose files are to be fetched again. A worker that has one of
	// them in memory must not use it any more.
	// It returns some after the given one, in a fixed order, and the origin to continue from, which is
	// empty at the end.
	RobotsToRefresh(ctx context.Context, after string) (origins []string, next string, err error)
	// ForgetRobots deletes the rows of those origins whose hosts have no URL, a few in each
	// transaction, and returns how many it deleted.
	ForgetRobots(ctx context.Context, origins []string) (int64, error)
	// SweepRobots looks at some origins after the given one, in a fixed order. It deletes the same
	// rows as ForgetRobots, if they were saved at least age ago. It returns the origin to continue
	// from, which is empty at the end.
	SweepRobots(ctx context.Context, after string, age time.Duration) (next string, deleted int64, err error)

	// RetryFailed makes URLs of host pending whose last fetch failed with class, including dead URLs,
	// and returns their number. An empty host or class means any. It resets their failures and
	// crashes. If robots.txt ended them, that file is fetched again.
	//
	// It changes some URLs in each transaction, and then calls progress, which may be nil, with
	// the number so far. After an error it returns the number of URLs that are pending. The next
	// call continues with the others.
	RetryFailed(ctx context.Context, class, host string, progress func(done int64)) (int64, error)
	// Refetch makes URLs of host, or of any host if that is empty, pending that were fetched at
	// least age ago, and returns their number. It keeps their validators, so that the next fetch can
	// be conditional. It runs as RetryFailed does.
	Refetch(ctx context.Context, age time.Duration, host string, progress func(done int64)) (int64, error)
	// Prune deletes rows, some in each transaction, and then calls progress, which may be nil, with
	// the numbers so far. A URL that is deleted is unknown afterwards: it can be put again, and is
	// then fetched without validators. Outcomes outlive their URLs.
	Prune(ctx context.Context, params PruneParams, progress func(Pruned)) (Pruned, error)
	// Recrawl makes some URLs pending that are due to be fetched again, and returns their number, which
	// is zero if none is due. It keeps their validators.
	Recrawl(ctx context.Context) (int64, error)
	// Left reports whether any URL is pending, failed or being fetched, so that there is more to
	// do, now or later. It is cheap, however many URLs there are.
	Left(ctx context.Context) (bool, error)
	// Due returns how many hosts a claim would find due, and the default delay.
	Due(ctx context.Context) (hosts int64, delay time.Duration, err error)
	// Counts reads the whole table, so call it every few seconds at most.
	Counts(ctx context.Context) (Counts, error)
	// Stats reads whole tables, as Counts does. hosts is the length of each list of hosts.
	Stats(ctx context.Context, hosts int) (Stats, error)
	// LastFetch returns the highest id of an outcome, or zero.
	LastFetch(ctx context.Context) (int64, error)
	// FetchesAfter returns at most limit outcomes after an id, in the order of ids. While an outcome with a
	// smaller id may still be committed, it does not return those after it.
	FetchesAfter(ctx context.Context, after int64, limit int) ([]WatchedFetch, error)
	// IDs returns the ids of URLs. One that the frontier does not have is missing.
	IDs(ctx context.Context, urls []string) (map[string]int64, error)
	// WorkerSeen records that the worker with this name runs. Call it every ten seconds. started says
	// that it has started now.
	WorkerSeen(ctx context.Context, name string, started bool) error
	// WorkerStopped removes a worker that stops and holds no URL any more.
	WorkerStopped(ctx context.Context, name string) error
	// Workers returns the workers that run or have vanished, and those that hold URLs, by name.
	Workers(ctx context.Context) ([]WorkerState, error)
	// Why returns the state that decides when a URL is fetched next, or [ErrUnknownURL].
	Why(ctx context.Context, url string) (Explanation, error)
	// HostUse returns what the fetches of a host have used, and TotalUse the sum over all hosts, whose
	// rows it reads.
	HostUse(ctx context.Context, host string) (Use, error)
	TotalUse(ctx context.Context) (Use, error)
	// Setting returns a setting that the caller has stored for all workers, or an empty string.
	Setting(ctx context.Context, name string) (string, error)
	// SetSetting stores a setting.
	SetSetting(ctx context.Context, name, value string) error
	// AddToSetting adds n to a setting that is a number, and 0 at first.
	AddToSetting(ctx context.Context, name string, n int64) error
	// URLs yields every URL in the order of ids, a page at a time. It may or may not see concurrent
	// changes. It ends after the first error.
	URLs(ctx context.Context) iter.Seq2[URL, error]
	// Fetches yields every recorded fetch, in the same way as URLs.
	Fetches(ctx context.Context) iter.Seq2[FetchRow, error]

	// Close closes the database. No other call may be in flight.
	Close() error
}

var (
	// ErrStale means that a lease was lost: its URL was reaped, recorded, or claimed again.
	ErrStale = errors.New("the lease was lost")
	// Open returns these if it cannot use a database; package database says when.
	ErrNewerSchema = database.ErrNewerSchema
	ErrOlderSchema = database.ErrOlderSchema
	ErrReadOnly    = database.ErrReadOnly
	ErrIsolation   = database.ErrIsolation
	ErrNormalForm  = database.ErrNormalForm
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
	// Page is a document to fetch.
	Page Kind = iota
	// Sitemap is a list of URLs.
	Sitemap
)

// String returns "page" or "sitemap".
func (k Kind) String() string {
	if k == Sitemap {
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
}

// ClaimParams limits a claim.
type ClaimParams struct {
	Limit  int           // maximum number of URLs; zero means one
	Lease  time.Duration // longer than a fetch's total timeout; zero means five minutes
	Worker string        // name of the worker, for people to read; may be empty
}

// Lease is the right to record one fetch of a URL.
type Lease struct {
	ID    int64 // of the URL
	Token int64 // of this claim
}

// Claim is a URL to fetch.
type Claim struct {
	Lease
	URL          string
	Host         string
	Kind         Kind
	Priority     int
	Depth        int
	Metadata     string
	Recrawl      time.Duration // RecrawlIn of its last outcome; zero if there is none
	FailureCount int           // failed fetches since the last success
	CrashCount   int           // leases that expired or were abandoned
	ETag         string        // for a conditional request; empty if the origin sent none
	LastModified string        // likewise
	BodyDigest   string        // of the last success; empty if no body was stored
	Earlier      Earlier
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
}

// HostParams are settings of a host. A nil field does not change.
type HostParams struct {
	Delay       *time.Duration // from the end of a fetch to the next start; negative means the default
	CrawlDelay  *time.Duration // of robots.txt, limited by the caller; the longer of the two delays applies
	MaxInFlight *int           // concurrent fetches
}
