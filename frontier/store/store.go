package store

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Store is one frontier in one database. It is safe for concurrent use, by many
// stores in many processes too.
type Store interface {
	// Put adds URLs in their normal form. One that is there already stays as it is.
	Put(ctx context.Context, urls []string) (PutResult, error)
	// Claim takes ready URLs, no more than one of a host unless it was set to allow more.
	// It never waits: with nothing due, or the crawl paused, it returns none.
	Claim(ctx context.Context, params ClaimParams) ([]Claim, error)
	// RecordFetch writes fetches down, all in one transaction, and opens their hosts again,
	// each after its delay if it was asked for anything.
	// The first result has one entry for each fetch: nil where it was recorded, an
	// error that matches [ErrStale] where the lease was lost, or what is wrong with it.
	RecordFetch(ctx context.Context, fetches []Fetch) ([]error, error)
	// Extend makes leases last at least d from now, and returns those that were still held.
	Extend(ctx context.Context, leases []Lease, d time.Duration) ([]Lease, error)
	// Release gives URLs back that were claimed and not asked for, and returns those that
	// were still held. The host is open again at once and nothing is counted.
	Release(ctx context.Context, leases []Lease) ([]Lease, error)
	// Abandon gives URLs back whose fetches were lost half way, and returns those that were
	// still held. A crash is counted for each, and its host opens after its delay.
	Abandon(ctx context.Context, leases []Lease) ([]Lease, error)
	// Depart tells that the last request to the hosts of these claims has ended, though
	// their fetches go on elsewhere: the hosts open after their delay, and the leases
	// stay. It returns those that were held and had not left before.
	Depart(ctx context.Context, leases []Lease) ([]Lease, error)
	// Reap makes the URLs of expired leases pending again, counts a crash for each, and
	// returns how many they were.
	Reap(ctx context.Context) (int64, error)

	// Charge tells that a request to each of hosts has just ended: none is claimed
	// before its delay has passed.
	Charge(ctx context.Context, hosts []string) error
	// Reserve asks for a host for one request that no claim is for, such as a redirect's,
	// which ends within d. If it is granted, nobody claims or reserves the host before it
	// is settled, or before d has passed. If not, the answer says when to ask again: the
	// host is paused or closed, has all the fetches it may have, or is reserved. A host
	// that is not known is added. It is an error if d is not more than zero.
	Reserve(ctx context.Context, host string, d time.Duration) (Reservation, error)
	// Settle tells that the request of a reservation has ended: the host opens after its
	// delay, or later if it was charged for more. It does nothing if r was not granted, is
	// settled, or has run out and the host was used since.
	Settle(ctx context.Context, r Reservation) error
	// Block keeps a host closed for retryAfter or, if that is zero, for 60 s, twice as long
	// each further time up to a day, until it was open for 30 minutes. It never shortens a block.
	Block(ctx context.Context, host string, retryAfter time.Duration) error
	// SetHost changes what params names of a host, known or not.
	SetHost(ctx context.Context, host string, params HostParams) error
	// AbortHost makes the URLs that wait for a host dead, with an error class and a text
	// of the caller's, and returns how many they were. Those put later are not concerned,
	// and RetryFailed with the class takes it back.
	AbortHost(ctx context.Context, host, class, text string) (int64, error)
	// Knows says whether a host was ever named to the frontier: by a URL, by a redirect,
	// or by a call that sets, blocks, charges, reserves or pauses it. Of one that was not,
	// it holds no URL. It reads one row.
	Knows(ctx context.Context, host string) (bool, error)
	// Pause stops claims: of one host, or of the whole crawl if host is empty.
	Pause(ctx context.Context, host string) error
	// Resume takes back the Pause with the same argument, and no other.
	Resume(ctx context.Context, host string) error

	// SaveRobots keeps what a try to read an origin's robots.txt gave. If the origin was
	// unreachable, the body of its last answer stays. A body of more than 512 KiB is an error.
	SaveRobots(ctx context.Context, r Robots) error
	// Robots tells what is known of origins, by origin; one that was never saved is missing.
	Robots(ctx context.Context, origins []string) (map[string]Robots, error)
	// RobotsHeads is Robots without the bodies, which may be long.
	RobotsHeads(ctx context.Context, origins []string) (map[string]Robots, error)
	// ForgetRobots deletes the rows of those origins whose hosts have no URL, a few in each
	// transaction, and returns how many it deleted.
	ForgetRobots(ctx context.Context, origins []string) (int64, error)
	// SweepRobots looks at some origins after the given one, in a fixed order. It deletes
	// the same rows as ForgetRobots, if they were saved at least age ago. It returns the
	// origin to continue from, which is empty at the end.
	SweepRobots(ctx context.Context, after string, age time.Duration) (next string, deleted int64, err error)

	// RetryFailed makes URLs pending whose last fetch failed in class, or in any class if that is
	// empty, dead ones too. Their failures and crashes are forgotten, and before that what
	// robots.txt said where that ended them: it is asked for again. It returns how many they were.
	RetryFailed(ctx context.Context, class string) (int64, error)
	// Refetch makes URLs pending that were fetched at least age ago, and returns how many
	// they were. Their validators stay, so that a fetch can be conditional.
	Refetch(ctx context.Context, age time.Duration) (int64, error)
	// Left says whether a URL is pending, failed or being fetched, and so whether there is
	// more to do, now or later. It reads next to nothing, however many URLs there are.
	Left(ctx context.Context) (bool, error)
	// Due tells how many hosts a claim would find due, and the default delay.
	Due(ctx context.Context) (hosts int64, delay time.Duration, err error)
	// Counts reads the whole table: ask for it every few seconds at most.
	Counts(ctx context.Context) (Counts, error)
	// Why tells what decides on a URL's next fetch, or returns [ErrUnknownURL].
	Why(ctx context.Context, url string) (Explanation, error)
	// URLs yields every URL in the order of ids, a page at a time: changes
	// made meanwhile may or may not be seen. It ends after the first error.
	URLs(ctx context.Context) iter.Seq2[URL, error]
	// Fetches yields every fetch that was recorded, as URLs does.
	Fetches(ctx context.Context) iter.Seq2[FetchRow, error]

	// Close waits for nothing; the caller has ended its calls before.
	Close() error
}

// Claimer is the part of a [Repository] that a worker uses.
type Claimer interface {
	Claim(ctx context.Context, params ClaimParams) ([]Claim, error)
	Extend(ctx context.Context, leases []Lease, d time.Duration) ([]Lease, error)
	Release(ctx context.Context, leases []Lease) ([]Lease, error)
	Abandon(ctx context.Context, leases []Lease) ([]Lease, error)
	Depart(ctx context.Context, leases []Lease) ([]Lease, error)
	Charge(ctx context.Context, hosts []string) error
	Reserve(ctx context.Context, host string, d time.Duration) (Reservation, error)
	Settle(ctx context.Context, r Reservation) error
	Block(ctx context.Context, host string, retryAfter time.Duration) error
	SaveRobots(ctx context.Context, r Robots) error
	Robots(ctx context.Context, origins []string) (map[string]Robots, error)
	RecordFetch(ctx context.Context, fetches []Fetch) ([]error, error)
	UpdateFetched(ctx context.Context, id int64, params FetchedParams) error
	UpdateFetchedWithFinalURL(ctx context.Context, id int64, finalURL string, params FetchedParams) error
	UpdateFailed(ctx context.Context, id int64, reason string, params FailedParams) error
}

var (
	// ErrStale says that a lease was lost: its URL was reaped, recorded, or claimed again.
	ErrStale = errors.New("the lease was lost")
	// ErrNewerSchema says that a newer version of this program has been at the database.
	ErrNewerSchema = errors.New("the database was made by a newer version of this program")
	// ErrNormalForm says that the database's URLs were normalised by other rules.
	ErrNormalForm = errors.New("the database holds URLs in another version of the normal form")
	// ErrUnknownURL says that the frontier does not hold a URL.
	ErrUnknownURL = errors.New("the frontier does not hold this URL")
)

// Status says where a URL is on its way.
type Status string

const (
	// Pending URLs wait for their first fetch, or for one that was asked for.
	Pending Status = "pending"
	// Fetching URLs are under a lease.
	Fetching Status = "fetching"
	// Fetched URLs are done.
	Fetched Status = "fetched"
	// Failed URLs will be tried again later.
	Failed Status = "failed"
	// Dead URLs will not.
	Dead Status = "dead"
)

// BadURL is an entry of a Put that is no URL to fetch.
type BadURL struct {
	Index int // in the slice that was put
	Err   error
}

// PutResult says what a Put did.
type PutResult struct {
	Added int64    // URLs that were not there before
	Known int64    // URLs that were, or that came twice
	Bad   []BadURL // in the order of Index; the others went in
}

// ClaimParams says how much to claim, and for how long.
type ClaimParams struct {
	Limit  int           // at most so many; zero means one
	Lease  time.Duration // more than a fetch's total timeout; zero means five minutes
	Worker string        // who claims, for people to read; may be empty
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
	FailureCount int    // failed fetches since the last that did not fail
	CrashCount   int    // leases that expired or were abandoned
	ETag         string // for a conditional request; empty if none was sent
	LastModified string // likewise
	BodyDigest   string // of the last success; empty if no body was kept
}

// FetchedParams is what is kept of any fetch.
type FetchedParams struct {
	Token      int64 // the claim's
	HTTPStatus int   // of the last response; zero if there was none
	// Attempts are the requests of this fetch, without redirects. Zero says that none
	// was sent: the host is then not charged, and opens without a delay.
	Attempts int
	Duration time.Duration
	Wait     time.Duration // the part of Duration spent between attempts
	Bytes    int64         // of the body
	// ETag and LastModified are the answer's validators. Empty keeps the one that is
	// known, but for a 2xx of a Fetched URL: that without one forgets it.
	ETag         string
	LastModified string
	BodyDigest   string // the name under which the body was stored; may be empty
}

// FailedParams is what is kept of a fetch that failed.
type FailedParams struct {
	FetchedParams
	ErrorClass string
	Dead       bool          // not to be tried again
	RetryIn    time.Duration // how long it waits at least, unless Dead
}

// Fetch is the outcome of one claimed URL. The count of retries is Attempts − 1.
type Fetch struct {
	ID int64 // of the URL
	FetchedParams
	Status     Status // Fetched, Failed or Dead
	FinalURL   string // where a Fetched one ended; empty means at the URL itself
	LastError  string // empty if Fetched
	ErrorClass string // likewise
	RetryIn    time.Duration
}

// HostParams are what can be set of a host. A nil field stays as it is.
type HostParams struct {
	Delay       *time.Duration // from a fetch's end to the next start; negative means the default
	CrawlDelay  *time.Duration // of robots.txt, capped by the caller; the larger of the two counts
	MaxInFlight *int           // fetches at a time
}
