package frontier

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"fetchd/frontier/normal"
	"fetchd/frontier/robots"
	"fetchd/frontier/store"
)

const (
	// rulebookBytes limits the memory of parsed robots.txt files. The store has all files.
	rulebookBytes = 64 << 20
	// entryBytes is the memory of an entry without its origin and its rules.
	entryBytes = 256
	// shortFile is the size of a robots.txt that never waits for longer ones.
	shortFile = 16 << 10
	// contenders is how many entries are compared to choose one to drop.
	contenders = 32
)

// rulebook caches parsed robots.txt files. It is safe for concurrent use.
type rulebook struct {
	// At most two files are parsed at once: a short one and a long one. A long one is also
	// saved and read under the same semaphore, so that claims and outcomes wait in the
	// store for at most one.
	short, long *semaphore.Weighted

	ready chan struct{} // receives a value when a preparation ends

	mu      sync.Mutex
	entries map[string]rulebookEntry // by origin
	bytes   int                      // of the entries
	coming  map[string]*preparation  // by origin
}

// rulebookEntry is the policy of an origin. The zero entry is not fresh.
type rulebookEntry struct {
	policy robots.Policy
	until  time.Time
	away   time.Time // since when it has been unreachable, or zero
	text   string    // what fetchd said about that
}

// preparation is a robots.txt that is being read from the store and parsed.
type preparation struct {
	done  chan struct{} // closed when the fields below are set
	entry rulebookEntry // zero if the store has no such row
	err   error
}

func newRulebook() *rulebook {
	return &rulebook{
		short: semaphore.NewWeighted(1), long: semaphore.NewWeighted(1), ready: make(chan struct{}, 1),
		entries: make(map[string]rulebookEntry), coming: make(map[string]*preparation),
	}
}

// newEntry returns the entry of a row for the crawler with the name product. again is the
// delay before an unreachable file is fetched again.
func newEntry(r store.Robots, product string, again time.Duration) rulebookEntry {
	e := rulebookEntry{policy: policyOf(r, product)}
	fresh := robots.FreshFor
	if r.Unreachable {
		e.away, e.text = time.Now().Add(-r.UnreachableFor), r.ErrorText
		fresh = min(max(again, robotsSoonest, r.UnreachableFor-r.Age), robotsLatest)
	}
	e.until = time.Now().Add(fresh - r.Age)
	return e
}

func (e rulebookEntry) fresh() bool { return time.Now().Before(e.until) }

// unreachable reports whether the file could not be fetched last.
func (e rulebookEntry) unreachable() bool { return !e.away.IsZero() }

// cause says why the file is unreachable: the error class, and what fetchd said.
func (e rulebookEntry) cause() string {
	if e.text == "" {
		return e.policy.Cause
	}
	return e.policy.Cause + ": " + e.text
}

// endsURLs reports whether the file is unreachable because of a name that does not exist or is not valid. Then its URLs
// fail in the same way.
func (e rulebookEntry) endsURLs() bool {
	return e.policy.Cause == "dns_not_found" || e.policy.Cause == "invalid_request"
}

// defers returns how long the URLs of an origin wait for its unreachable file: until it is fetched again, which is
// after a pause of the host, but not beyond patience. It is zero if they wait no longer. Other URLs of the host get their
// turns after the pause, before the file is fetched again.
func (e rulebookEntry) defers(patience, pause time.Duration) time.Duration {
	if !e.policy.Deferred() {
		return 0
	}
	left := patience - time.Since(e.away)
	if left <= 0 {
		return 0
	}
	return max(min(pause+time.Until(e.until), left), time.Millisecond)
}

// size is the memory of an entry.
func (e rulebookEntry) size(origin string) int {
	n := entryBytes + len(origin) + len(e.text)
	if e.policy.Rules != nil {
		n += e.policy.Rules.Size()
	}
	return n
}

// known returns the entry of an origin, and reports whether it is fresh.
func (b *rulebook) known(origin string) (rulebookEntry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[origin]
	return e, ok && e.fresh()
}

// missing returns the origins of claims without a fresh entry, each once.
func (b *rulebook) missing(claims []store.Claim) []string {
	var origins []string
	seen := make(map[string]bool)
	for _, c := range claims {
		origin, _ := normal.OriginOf(c.URL)
		if _, ok := b.known(origin); !ok && !seen[origin] {
			seen[origin] = true
			origins = append(origins, origin)
		}
	}
	return origins
}

// keep stores a fresh entry. To make space it drops the largest of a few entries first,
// so that a few hosts with long files do not displace many others.
func (b *rulebook) keep(origin string, e rulebookEntry) {
	if !e.fresh() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropLocked(origin)
	for b.bytes+e.size(origin) > rulebookBytes && len(b.entries) > 0 {
		b.dropLocked(b.largestLocked())
	}
	b.entries[origin] = e
	b.bytes += e.size(origin)
}

// largestLocked returns the origin of the largest of a few entries.
func (b *rulebook) largestLocked() (origin string) {
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

// drop removes the entries of origins.
func (b *rulebook) drop(origins []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, origin := range origins {
		b.dropLocked(origin)
	}
}

// dropLocked removes the entry of an origin.
func (b *rulebook) dropLocked(origin string) {
	if e, ok := b.entries[origin]; ok {
		b.bytes -= e.size(origin)
		delete(b.entries, origin)
	}
}

// source returns an origin's row, read or newly saved, and reports whether there is one.
type source func(ctx context.Context) (r store.Robots, ok bool, err error)

// prepare gets an origin's robots.txt of size bytes from a source and parses it in a goroutine. If
// that is in progress already, prepare returns it and false. Long files are read one at a time.
func (w *Worker) prepare(origin string, size int, from source) (p *preparation, ours bool) {
	b := w.rulebook
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.coming[origin]; p != nil {
		return p, false
	}
	p = &preparation{done: make(chan struct{})}
	b.coming[origin] = p
	w.others.Go(func() {
		if size > shortFile {
			p.entry, p.err = w.parseLong(from)
		} else {
			p.entry, p.err = w.parseShort(from)
		}
		b.keep(origin, p.entry)
		b.mu.Lock()
		delete(b.coming, origin)
		b.mu.Unlock()
		close(p.done)
		select {
		case b.ready <- struct{}{}:
		default: // a value is pending already
		}
	})
	return p, true
}

func (w *Worker) parseLong(from source) (rulebookEntry, error) {
	if err := w.rulebook.long.Acquire(w.storing, 1); err != nil {
		return rulebookEntry{}, err
	}
	defer w.rulebook.long.Release(1)
	ctx, cancel := w.finishing()
	defer cancel()
	r, ok, err := from(ctx)
	if err != nil || !ok {
		return rulebookEntry{}, err
	}
	return w.entryOf(r), nil
}

func (w *Worker) parseShort(from source) (rulebookEntry, error) {
	ctx, cancel := w.finishing()
	defer cancel()
	r, ok, err := from(ctx)
	if err != nil || !ok {
		return rulebookEntry{}, err
	}
	if err := w.rulebook.short.Acquire(ctx, 1); err != nil {
		return rulebookEntry{}, err
	}
	defer w.rulebook.short.Release(1)
	return w.entryOf(r), nil
}

func (w *Worker) entryOf(r store.Robots) rulebookEntry {
	return newEntry(r, w.config.UserAgent, w.config.Policy.RetryDelay)
}

// stored returns a source that reads the store.
func (w *Worker) stored(origin string) source {
	return func(ctx context.Context) (store.Robots, bool, error) {
		found, err := w.store.Robots(ctx, []string{origin})
		if err != nil {
			return store.Robots{}, false, fmt.Errorf("read robots.txt from the store: %w", err)
		}
		r, ok := found[origin]
		return r, ok, nil
	}
}

// saved returns a source that saves the result of a fetch first.
func (w *Worker) saved(r store.Robots) source {
	return func(ctx context.Context) (store.Robots, bool, error) {
		if err := w.store.SaveRobots(ctx, r); err != nil {
			return store.Robots{}, false, err
		}
		if r.Unreachable { // the last known file still counts, and how long the origin has been unreachable
			return w.stored(r.Origin)(ctx)
		}
		return r, true, nil
	}
}

// wait waits for the entry and returns it. The error may be that of ctx.
func (p *preparation) wait(ctx context.Context) (rulebookEntry, error) {
	select {
	case <-p.done:
		return p.entry, p.err
	case <-ctx.Done():
		return rulebookEntry{}, context.Cause(ctx)
	}
}

// ended reports whether wait would return at once.
func (p *preparation) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// rules returns the entry of an origin, from the store if necessary. If it is not fresh,
// robots.txt must be fetched.
func (w *Worker) rules(ctx context.Context, origin string) (rulebookEntry, error) {
	if e, ok := w.rulebook.known(origin); ok {
		return e, nil
	}
	heads, err := w.heads(ctx, []string{origin})
	if err != nil {
		return rulebookEntry{}, err
	}
	r, ok := heads[origin]
	if !ok {
		return rulebookEntry{}, nil
	}
	if e := w.entryOf(r); e.policy.Rules == nil { // the file is not needed
		w.rulebook.keep(origin, e)
		return e, nil
	}
	p, _ := w.prepare(origin, r.BodySize, w.stored(origin))
	return p.wait(ctx)
}

// confirmed returns an entry of the rulebook if the store still has that answer. Else
// it forgets the entry and returns one that is not fresh.
func (w *Worker) confirmed(ctx context.Context, origin string, e rulebookEntry) (rulebookEntry, error) {
	heads, err := w.heads(ctx, []string{origin})
	if err != nil {
		return rulebookEntry{}, err
	}
	if r, ok := heads[origin]; ok && w.entryOf(r).fresh() {
		return e, nil
	}
	w.rulebook.mu.Lock()
	defer w.rulebook.mu.Unlock()
	w.rulebook.dropLocked(origin)
	return rulebookEntry{}, nil
}

func (w *Worker) heads(ctx context.Context, origins []string) (map[string]store.Robots, error) {
	heads, err := w.store.RobotsHeads(ctx, origins)
	if err != nil {
		return nil, fmt.Errorf("look for robots.txt in the store: %w", err)
	}
	return heads, nil
}

// save stores the result of a fetch for all workers. A preparation that has started may
// have read the old row, so save starts another one after it.
func (w *Worker) save(ctx context.Context, r store.Robots) error {
	for {
		p, ours := w.prepare(r.Origin, len(r.Body), w.saved(r))
		if _, err := p.wait(ctx); ours || ctx.Err() != nil {
			return err
		}
	}
}

// parked is a claim whose robots.txt is being prepared.
type parked struct {
	claim store.Claim
	until time.Time // of the lease
	rules *preparation
}

// sift returns the claims whose visits may start, and parks the others for
// [Worker.unpark]. It reads the store once, and no file.
func (w *Worker) sift(ctx context.Context, claims []store.Claim, until time.Time) ([]store.Claim, error) {
	if w.config.IgnoreRobots {
		return claims, nil
	}
	missing := w.rulebook.missing(claims)
	if len(missing) == 0 {
		return claims, nil
	}
	heads, err := w.heads(ctx, missing)
	if err != nil {
		return nil, err
	}
	waits := make(map[string]*preparation)
	for origin, r := range heads {
		switch e := w.entryOf(r); {
		case e.policy.Rules == nil:
			w.rulebook.keep(origin, e)
		case e.fresh():
			waits[origin], _ = w.prepare(origin, r.BodySize, w.stored(origin))
		}
	}
	var ready []store.Claim
	for _, c := range claims {
		origin, _ := normal.OriginOf(c.URL)
		if p := waits[origin]; p != nil {
			w.parked = append(w.parked, parked{claim: c, until: until, rules: p})
		} else {
			ready = append(ready, c)
		}
	}
	return ready, nil
}

// unpark starts the visits of parked claims whose files are ready, as far as there is
// capacity.
func (w *Worker) unpark() {
	capacity, _ := w.pool.Capacity()
	room := min(capacity, w.config.Open) - w.open()
	left := w.parked[:0]
	for _, p := range w.parked {
		if room > 0 && p.rules.ended() {
			room--
			w.start(p.claim, p.until)
		} else {
			left = append(left, p)
		}
	}
	clear(w.parked[len(left):])
	w.parked = left
}

// rest waits for d, or until a robots.txt has been prepared. If hosts are due again before the next claim
// after an outcome, because their pause is shorter than lastPoll, it waits for an outcome and the pause
// instead, and returns true.
func (w *Worker) rest(ctx context.Context, d, pause time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	recorded := w.recorded
	if pause >= lastPoll {
		recorded = nil
	}
	select {
	case <-t.C:
	case <-w.rulebook.ready:
	case <-ctx.Done():
	case <-recorded:
		sleep(ctx, pause)
		return true
	}
	return false
}
