// Package rulebook has the robots.txt of the origins that a worker meets: it reads the files that the store has,
// parses them, keeps the rules in memory, and stores what a fetch brought. It fetches nothing.
package rulebook

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"fetchd/frontier/normal"
	"fetchd/frontier/robots"
	"fetchd/frontier/store"
)

const (
	// maxBytes limits the memory of parsed robots.txt files. The store has all files.
	maxBytes = 64 << 20
	// strayPiece is how many robots.txt of redirect targets are deleted at once. At most twice as
	// many are kept.
	strayPiece = 16
	// contenders is how many entries are compared to choose one to drop.
	contenders = 32
)

// Config configures a [Book].
type Config struct {
	Store      store.Store
	Agent      string        // the crawler's user agent, whose product token selects the rules
	RetryDelay time.Duration // before an unreachable file is fetched again, within limits
	Patience   time.Duration // how long the URLs of an origin wait for its unreachable file
	MaxDelay   time.Duration // limit of a Crawl-delay
}

// Book caches parsed robots.txt files. It is safe for concurrent use.
type Book struct {
	Config
	// Storing ends when nothing is read or stored any more. It is set before the first call.
	Storing context.Context
	// Ready receives a value when a preparation ends.
	Ready chan struct{}

	// At most two files are parsed at once: a short one and a long one. A long one is also
	// saved and read under the same semaphore, so that claims and outcomes wait in the
	// store for at most one.
	short, long *semaphore.Weighted
	preparing   sync.WaitGroup

	mu      sync.Mutex
	entries map[string]Entry        // by origin
	bytes   int                     // of the entries
	coming  map[string]*Preparation // by origin
	// strays are origins that redirects led to and whose robots.txt was saved, oldest first. A redirecting
	// host can name any number of hosts.
	strays []string
}

// New returns an empty book.
func New(c Config) *Book {
	return &Book{
		Config: c, short: semaphore.NewWeighted(1), long: semaphore.NewWeighted(1), Ready: make(chan struct{}, 1),
		entries: make(map[string]Entry), coming: make(map[string]*Preparation),
	}
}

// Wait waits until all preparations have ended.
func (b *Book) Wait() { b.preparing.Wait() }

// Known returns the entry of an origin, and reports whether it is fresh.
func (b *Book) Known(origin string) (Entry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[origin]
	return e, ok && e.Fresh()
}

// OnceEnough reports whether one attempt at the robots.txt of an origin is enough: it was unreachable, or the other
// origin of its host answers. More attempts would cost turns of a host that works.
func (b *Book) OnceEnough(origin string, entry Entry) bool {
	scheme, host, _ := strings.Cut(origin, "://")
	other, known := b.Known(map[string]string{"http": "https", "https": "http"}[scheme] + "://" + host)
	return entry.unreachable() || known && !other.unreachable()
}

// keep stores a fresh entry. To make space it drops the largest of a few entries first,
// so that a few hosts with long files do not displace many others.
func (b *Book) keep(origin string, e Entry) {
	if !e.Fresh() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropLocked(origin)
	for b.bytes+e.size(origin) > maxBytes && len(b.entries) > 0 {
		b.dropLocked(b.largestLocked())
	}
	b.entries[origin] = e
	b.bytes += e.size(origin)
}

// largestLocked returns the origin of the largest of a few entries.
func (b *Book) largestLocked() (origin string) {
	size, seen := 0, 0
	for o, e := range b.entries { // in random order
		if n := e.size(o); n > size {
			origin, size = o, n
		}
		if seen++; seen == contenders {
			break
		}
	}
	return origin
}

// Refresh drops the rules of some origins after the given one, those whose robots.txt a user wants to be
// fetched again. It returns the origin to continue from.
func (b *Book) Refresh(ctx context.Context, after string) (next string, err error) {
	origins, next, err := b.Store.RobotsToRefresh(ctx, after)
	if err != nil {
		return after, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, origin := range origins {
		b.dropLocked(origin)
	}
	return next, nil
}

// dropLocked removes the entry of an origin.
func (b *Book) dropLocked(origin string) {
	if e, ok := b.entries[origin]; ok {
		b.bytes -= e.size(origin)
		delete(b.entries, origin)
	}
}

const (
	// entryBytes is the memory of an entry without its origin and its rules.
	entryBytes = 256
	// soonest and latest limit the delay before an unreachable robots.txt is fetched
	// again. Between them the delay is that of URL retries.
	soonest = time.Second
	latest  = 10 * time.Minute
)

// Entry is the policy of an origin. The zero entry is not fresh.
type Entry struct {
	Policy robots.Policy
	Until  time.Time // when the file is fetched again
	away   time.Time // since when it has been unreachable, or zero
	text   string    // what fetchd said about that
}

// Fresh reports whether the policy may be used without another fetch of the file.
func (e Entry) Fresh() bool { return time.Now().Before(e.Until) }

// unreachable reports whether the file could not be fetched last.
func (e Entry) unreachable() bool { return !e.away.IsZero() }

// Cause says why the file is unreachable: the error class, and what fetchd said.
func (e Entry) Cause() string {
	if e.text == "" {
		return e.Policy.Cause
	}
	return e.Policy.Cause + ": " + e.text
}

// EndsURLs reports whether the file is unreachable because of a name that does not exist or is not valid. Then its URLs
// fail in the same way.
func (e Entry) EndsURLs() bool {
	return e.Policy.Cause == "dns_not_found" || e.Policy.Cause == "invalid_request"
}

// Defers returns how long the URLs of an origin wait for its unreachable file: until it is fetched again, which is
// after a pause of the host, but not beyond patience. It is zero if they wait no longer. Other URLs of the host get their
// turns after the pause, before the file is fetched again.
func (e Entry) Defers(patience, pause time.Duration) time.Duration {
	if !e.Policy.Deferred() {
		return 0
	}
	left := patience - time.Since(e.away)
	if left <= 0 {
		return 0
	}
	return max(min(pause+time.Until(e.Until), left), time.Millisecond)
}

// size is the memory of an entry.
func (e Entry) size(origin string) int {
	n := entryBytes + len(origin) + len(e.text)
	if e.Policy.Rules != nil {
		n += e.Policy.Rules.Size()
	}
	return n
}

// policyOf returns the policy of a stored answer. If the file is unreachable, an older answer may
// apply.
func policyOf(r store.Robots, product string) robots.Policy {
	if !r.Unreachable {
		return robots.Judge(robots.Answer{Status: r.Status, ErrorClass: r.ErrorClass, Body: r.Body}, product)
	}
	var stale *robots.Rules
	if r.HasBody && r.UnreachableFor >= robots.DeferFor {
		stale = robots.Judge(robots.Answer{Status: r.BodyStatus, Body: r.Body}, product).Rules
	}
	return robots.Judge(robots.Answer{Status: r.Status, ErrorClass: r.ErrorClass}, product).After(r.UnreachableFor, stale)
}

// State is what is known about the robots.txt that applies to a URL.
type State struct {
	Origin string // scheme://host, and :port unless it is the scheme's default
	// Refresh reports that a user wants the file to be fetched again, which no worker has done yet.
	Refresh bool
	// Known reports whether a worker has fetched the file and Refresh is false. If it is false, the
	// fields below are zero.
	Known    bool
	Decision robots.Decision
	// Status is that of the last fetch; zero if there was no response.
	Status int
	// Rules are those of the last file, also of one that is too old; nil if there is none.
	Rules    *robots.Rules
	Sitemaps []string // that this file names
	Size     int      // of this file, in bytes
	// Cause says briefly why there is no file, or why an old one is still used. Text is what fetchd said
	// about the error; it may be empty.
	Cause, Text string
	// Age is the time since the last fetch. Fresh reports whether workers use the answer without
	// another fetch. The result of a fetch that failed is never fresh.
	Age   time.Duration
	Fresh bool
	// UnreachableFor is how long fetches have failed; zero if the last one succeeded.
	UnreachableFor time.Duration
}

// Ask returns what the store knows about the robots.txt that applies to a URL in its normal
// form, and what a worker with this user agent does. It fetches nothing.
func Ask(ctx context.Context, s store.Store, userAgent, url string) (State, error) {
	origin, path := normal.OriginOf(url)
	found, err := s.Robots(ctx, []string{origin})
	if err != nil {
		return State{}, fmt.Errorf("read robots.txt from the store: %w", err)
	}
	r, known := found[origin]
	if !known || r.Forgotten {
		return State{Origin: origin, Refresh: r.Forgotten}, nil
	}
	return stateOf(r, userAgent, path), nil
}

func stateOf(r store.Robots, userAgent, path string) State {
	policy := policyOf(r, userAgent)
	s := State{
		Origin: r.Origin, Known: true, Decision: policy.Decide(path), Cause: policy.Cause, Text: r.ErrorText, Status: r.Status,
		Age: r.Age, Fresh: !r.Unreachable && r.Age < robots.FreshFor, UnreachableFor: r.UnreachableFor,
	}
	if r.HasBody && r.BodyStatus/100 == 2 {
		s.Rules, s.Sitemaps, s.Size = robots.Parse(r.Body, userAgent), robots.Sitemaps(r.Body), r.BodySize
	}
	return s
}
