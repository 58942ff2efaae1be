// Package rulebook has the robots.txt of the origins that a worker meets: it reads the files that the store has,
// parses them, keeps the rules in memory, and stores what a fetch brought. It fetches nothing.
package rulebook

import (
	"context"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

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

// Store is what a Book calls of a [store.Store].
type Store interface {
	Reader
	RobotsHeads(ctx context.Context, origins []string) (map[string]store.Robots, error)
	SaveRobots(ctx context.Context, r store.Robots) error
	RobotsToRefresh(ctx context.Context, after string) (origins []string, next string, err error)
	ForgetRobots(ctx context.Context, origins []string) (int64, error)
	SetHost(ctx context.Context, host string, params store.HostParams) error
}

// Reader has the robots.txt of origins.
type Reader interface {
	Robots(ctx context.Context, origins []string) (map[string]store.Robots, error)
}

// Config configures a [Book].
type Config struct {
	Store      Store
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
	return entry.Unreachable() || known && !other.Unreachable()
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
