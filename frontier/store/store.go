package store

import (
	"context"
	"iter"
	"time"
)

// Store is one frontier. It is safe for concurrent use, also by several stores in several processes.
type Store interface {
	// The queue of URLs.

	// Put adds URLs in their normal form, in this order, as far as limits allow. Of a URL that exists
	// already, only these change: Depth becomes the smaller one, a page that was fetched before
	// Changed, and is due to be fetched again at some time, is due now, and a URL that was only a requisite may become
	// more, or a URL a requisite too. Then it is fetched again if what it was has decided its outcome.
	Put(ctx context.Context, entries []Entry, limits Limits) (PutResult, error)
	// PutRequisites adds URLs that a page needs, in the same way. The limits of a page hold for all calls of one process.
	PutRequisites(ctx context.Context, page int64, entries []Entry, limits RequisiteLimits) (RequisiteResult, error)
	// AllowRequisite reports whether a redirect of a requisite may lead to a URL, by the limits of hosts. If so, its host
	// counts.
	AllowRequisite(ctx context.Context, page int64, url string, limits RequisiteLimits) (bool, error)
	// Twins returns the pages with the same body as that of a claim. digest is that of the body, and limit limits Others.
	Twins(ctx context.Context, c Claim, digest int64, limit int) (Twins, error)
	// AddPattern adds URLs to those of a pattern, and returns their number.
	AddPattern(ctx context.Context, p Pattern) (total int64, err error)
	// Pattern returns how many URLs of a host have a pattern, as far as they were added.
	Pattern(ctx context.Context, host, pattern string) (urls int64, err error)
	// Patterns returns at most limit patterns with so many URLs, those with the most first.
	Patterns(ctx context.Context, atLeast int64, limit int) ([]Pattern, error)
	// Claim leases ready URLs: at most one of a host, unless SetHost allowed more. Of a host it takes
	// those of the highest priority first, and of these the one that has waited longest. It takes more with
	// params.Ahead, but a URL alone while one of them has a crash: all are counted if the worker is killed. It never
	// waits. If nothing is due, or the crawl is paused, it returns none.
	Claim(ctx context.Context, params ClaimParams) ([]Claim, error)
	// GoOn reports whether c, which was claimed ahead, may be fetched, and after how long. It may not if its lease
	// was lost, or if a pause, a deferral or a setting has changed what a claim would do.
	GoOn(ctx context.Context, c Claim) (wait time.Duration, ok bool, err error)
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
	// Recrawl makes some URLs pending that are due to be fetched again, and returns their number, which
	// is zero if none is due. It keeps their validators.
	Recrawl(ctx context.Context) (int64, error)
	// Left reports whether any URL is pending, failed or being fetched, so that there is more to
	// do, now or later. It is cheap, however many URLs there are.
	Left(ctx context.Context) (bool, error)

	// Hosts, and when they open.

	// DelayHosts reports that a request to each of hosts has just ended. Their URLs are not claimed
	// until the delay has passed. Each host is a separate statement, so locks have no order to keep.
	DelayHosts(ctx context.Context, hosts []string) error
	// Block closes a host for retryAfter. If that is zero, it closes the host for 60 s, and for
	// twice as long each further time up to a day, until the host was open for 30 minutes. It
	// never shortens a block. Fetches that end during a block have the same cause, so they do not
	// double it.
	Block(ctx context.Context, host string, retryAfter time.Duration) error
	// SetHost changes the settings of a host, known or not, that params has.
	SetHost(ctx context.Context, host string, params HostParams) error
	// SetGroup changes the settings of a group, known or not, that params has. Its CrawlDelay is not used.
	SetGroup(ctx context.Context, name string, params HostParams) error
	// SetAddress stores that a request to a host has just ended at an address, which is as in [normal.Address]. With [ByAddress],
	// that says which group the host is in. Otherwise SetAddress does nothing.
	SetAddress(ctx context.Context, host, address string) error
	// Reserve asks for a host for one request that no claim covers, such as that of a redirect.
	// The request ends within d, which must be more than zero. If it is granted, no other worker
	// claims or reserves the host until Settle, or until d has passed. If not, the host is paused
	// or closed, has its maximum of fetches, or is reserved, and the result says when to ask
	// again. An unknown host is added. Only next_at keeps the host closed, so it opens by then even if the
	// caller crashes. reserved_until records why. A turn of the host's group is reserved too.
	Reserve(ctx context.Context, host string, d time.Duration) (Reservation, error)
	// Settle reports that the request of a reservation has ended. The host opens after its delay,
	// or later if it was charged for more. Settle does nothing if r was not granted, was settled
	// before, or has expired and the host was used since.
	Settle(ctx context.Context, r Reservation) error
	// Pause stops claims of one host, or of the whole crawl if host is empty.
	Pause(ctx context.Context, host string) error
	// Resume undoes the Pause with the same argument, and no other.
	Resume(ctx context.Context, host string) error
	// Knows reports whether a host was ever named to the frontier: by a URL, by a redirect, or by
	// a call that sets, blocks, charges, reserves or pauses it. The frontier has no URL of an
	// unknown host. Knows reads one row.
	Knows(ctx context.Context, host string) (bool, error)
	// OtherPorts returns hosts with the same name as a host and another port, at most three.
	OtherPorts(ctx context.Context, host string) ([]string, error)
	// AbortHost makes the pending and failed URLs of a host dead, with an error class and a text
	// of the caller, and returns their number. It does not affect URLs that are put later.
	// RetryFailed with that class undoes it. Like RetryFailed it takes several transactions.
	AbortHost(ctx context.Context, host, class, text string) (int64, error)
	// HostBytes returns the sum of the bodies of a host.
	HostBytes(ctx context.Context, host string) (int64, error)
	// TotalBytes returns the sum over all hosts, whose rows it reads.
	TotalBytes(ctx context.Context) (int64, error)

	// robots.txt.

	// Robots returns what is known about origins, by origin. One that was never saved is missing.
	Robots(ctx context.Context, origins []string) (map[string]Robots, error)
	// RobotsHeads is Robots without the bodies, which may be long.
	RobotsHeads(ctx context.Context, origins []string) (map[string]Robots, error)
	// SaveRobots stores the result of a fetch of an origin's robots.txt. If the origin was
	// unreachable, the body of its last answer stays. It refuses a body of more than 512 KiB.
	SaveRobots(ctx context.Context, r Robots) error
	// ForgetRobots deletes the rows of those origins whose hosts have no URL, a few in each
	// transaction, and returns how many it deleted.
	ForgetRobots(ctx context.Context, origins []string) (int64, error)
	// RefreshRobots has the files of origins fetched again, by the next worker that needs them, and
	// returns how many of them were stored.
	RefreshRobots(ctx context.Context, origins []string) (int64, error)
	// RobotsToRefresh returns origins whose files are to be fetched again. A worker that has one of
	// them in memory must not use it any more.
	// It returns some after the given one, in a fixed order, and the origin to continue from, which is
	// empty at the end.
	RobotsToRefresh(ctx context.Context, after string) (origins []string, next string, err error)
	// SweepRobots looks at some origins after the given one, in a fixed order. It deletes the same
	// rows as ForgetRobots, if they were saved at least age ago. It returns the origin to continue
	// from, which is empty at the end.
	SweepRobots(ctx context.Context, after string, age time.Duration) (next string, deleted int64, err error)
	// Defer keeps the URLs of an origin from being claimed for d, because its robots.txt is unreachable. Other
	// URLs of its host are claimed as before, and a claim costs the same however many URLs are deferred
	// back. It never shortens a deferral. SaveRobots of an answer, RefreshRobots and RetryFailed end it. It
	// leaves due_at, which may be early.
	Defer(ctx context.Context, origin string, d time.Duration) error
	// DeferredOrigins returns at most limit origins that are deferred, those first that have been unreachable for
	// longest. It reads the rows of all hosts.
	DeferredOrigins(ctx context.Context, limit int) ([]DeferredOrigin, error)

	// Workers and settings.

	// Due returns how many hosts a claim would find due, and the default delay.
	Due(ctx context.Context) (hosts int64, delay time.Duration, err error)
	// WorkerSeen records that the worker with this name runs. Call it every ten seconds. process is
	// what another worker needs to see whether it still runs, or empty. started says that it has started now.
	WorkerSeen(ctx context.Context, name, process string, started bool) error
	// EndLeases ends the leases of a worker that is gone, so that [Store.Reap] takes them back. It returns
	// how many.
	EndLeases(ctx context.Context, worker string) (int64, error)
	// WorkerStopped removes a worker that stops and holds no URL any more.
	WorkerStopped(ctx context.Context, name string) error
	// Workers returns the workers that run or have vanished, and those that hold URLs, by name.
	Workers(ctx context.Context) ([]WorkerState, error)
	// Setting returns a setting that the caller has stored for all workers, or an empty string.
	Setting(ctx context.Context, name string) (value string, err error)
	// SetSetting stores a setting.
	SetSetting(ctx context.Context, name, value string) error
	// AddToSetting adds n to a setting that is a number, and 0 at first.
	AddToSetting(ctx context.Context, name string, n int64) error

	// What people and programs read.

	// Counts reads the whole table, so call it every few seconds at most.
	Counts(ctx context.Context) (Counts, error)
	// Stats reads whole tables, as Counts does. hosts is the length of each list of hosts.
	Stats(ctx context.Context, hosts int) (n Stats, err error)
	// Why returns the state that decides when a URL is fetched next, or [ErrUnknownURL]. Of a URL with a session id it
	// returns that of the URL which is known instead. IDs does the same.
	Why(ctx context.Context, url string) (Explanation, error)
	// IDs returns the ids of URLs. One that the frontier does not have is missing.
	IDs(ctx context.Context, urls []string) (map[string]int64, error)
	// URLsOf returns the URLs with these ids. One that the frontier does not have is missing.
	URLsOf(ctx context.Context, ids []int64) (map[int64]string, error)
	// URLs yields every URL in the order of ids, a page at a time. It may or may not see concurrent
	// changes. It ends after the first error.
	URLs(ctx context.Context) iter.Seq2[URL, error]
	// Fetches yields every recorded fetch, in the same way as URLs.
	Fetches(ctx context.Context) iter.Seq2[FetchRow, error]
	// LastFetch returns the id of the newest outcome, or 0 if there is none.
	LastFetch(ctx context.Context) (id int64, err error)
	// FetchesAfter returns at most limit outcomes after an id, in the order of ids. Ids are given before
	// transactions commit, so a missing one may still come. It does not return what follows until that is too late.
	FetchesAfter(ctx context.Context, id int64, limit int) ([]WatchedFetch, error)

	// Operations that may change many rows.

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
	// Postpone makes URLs wait for d whose leases were released. Other URLs of their hosts do not wait. A
	// worker may have claimed some of them since; these do not change. It leaves due_at, which may be early.
	Postpone(ctx context.Context, released []Lease, d time.Duration) error
	// Prune deletes rows, some in each transaction, and then calls progress, which may be nil, with
	// the numbers so far. A URL that is deleted is unknown afterwards: it can be put again, and is
	// then fetched without validators. Outcomes outlive their URLs.
	Prune(ctx context.Context, params PruneParams, progress func(Pruned)) (done Pruned, err error)

	// Close closes the database. No other call may be in flight.
	Close() error
}
