package rulebook

import (
	"context"
	"fmt"
	"slices"
	"time"

	"fetchd/frontier/normal"
	"fetchd/frontier/robots"
	"fetchd/frontier/store"
)

const (
	// shortFile is the size of a robots.txt that never waits for longer ones.
	shortFile = 16 << 10
	// storeTime limits the time to read or store a file.
	storeTime = 10 * time.Second
)

// Preparation is a robots.txt that is being read from the store and parsed.
type Preparation struct {
	done  chan struct{} // closed when the fields below are set
	entry Entry         // zero if the store has no such row
	err   error
}

// Prepare returns the files of claims that must be read and parsed first, by their origins. It reads the
// store once, and no file.
func (b *Book) Prepare(ctx context.Context, claims []store.Claim) (map[string]*Preparation, error) {
	var missing []string
	for _, c := range claims {
		origin, _ := normal.OriginOf(c.URL)
		if _, ok := b.Known(origin); !ok && !slices.Contains(missing, origin) {
			missing = append(missing, origin)
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	heads, err := b.heads(ctx, missing)
	if err != nil {
		return nil, err
	}
	waits := make(map[string]*Preparation)
	for origin, r := range heads {
		switch e := b.entryOf(r); {
		case e.Policy.Rules == nil:
			b.keep(origin, e)
		case e.Fresh():
			waits[origin], _ = b.prepare(origin, r.BodySize, b.stored(origin))
		}
	}
	return waits, nil
}

// source returns an origin's row, read or newly saved, and reports whether there is one.
type source func(ctx context.Context) (r store.Robots, ok bool, err error)

// prepare gets an origin's robots.txt of size bytes from a source and parses it in a goroutine. If
// that is in progress already, prepare returns it and false. Long files are read one at a time.
func (b *Book) prepare(origin string, size int, from source) (p *Preparation, ours bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.coming[origin]; p != nil {
		return p, false
	}
	p = &Preparation{done: make(chan struct{})}
	b.coming[origin] = p
	b.preparing.Go(func() {
		p.entry, p.err = b.parse(from, size > shortFile)
		b.keep(origin, p.entry)
		b.mu.Lock()
		delete(b.coming, origin)
		b.mu.Unlock()
		close(p.done)
		select {
		case b.Ready <- struct{}{}:
		default: // a value is pending already
		}
	})
	return p, true
}

func (b *Book) parse(from source, long bool) (Entry, error) {
	if long {
		if err := b.long.Acquire(b.Storing, 1); err != nil {
			return Entry{}, err
		}
		defer b.long.Release(1)
	}
	ctx, cancel := b.finishing()
	defer cancel()
	r, ok, err := from(ctx)
	if err != nil || !ok {
		return Entry{}, err
	}
	if !long {
		if err := b.short.Acquire(ctx, 1); err != nil {
			return Entry{}, err
		}
		defer b.short.Release(1)
	}
	return b.entryOf(r), nil
}

// entryOf returns the entry of a row.
func (b *Book) entryOf(r store.Robots) Entry {
	e := Entry{Policy: policyOf(r, b.Agent)}
	fresh := robots.FreshFor
	if r.Unreachable {
		e.away, e.text = time.Now().Add(-r.UnreachableFor), r.ErrorText
		fresh = min(max(b.RetryDelay, soonest, r.UnreachableFor-r.Age), latest)
	}
	e.Until = time.Now().Add(fresh - r.Age)
	return e
}

// stored returns a source that reads the store.
func (b *Book) stored(origin string) source {
	return func(ctx context.Context) (store.Robots, bool, error) {
		found, err := b.Store.Robots(ctx, []string{origin})
		if err != nil {
			return store.Robots{}, false, fmt.Errorf("read robots.txt from the store: %w", err)
		}
		r, ok := found[origin]
		return r, ok, nil
	}
}

// saved returns a source that saves the result of a fetch first.
func (b *Book) saved(r store.Robots) source {
	return func(ctx context.Context) (store.Robots, bool, error) {
		if err := b.Store.SaveRobots(ctx, r); err != nil {
			return store.Robots{}, false, err
		}
		if r.Unreachable { // the last known file still counts, and how long the origin has been unreachable
			return b.stored(r.Origin)(ctx)
		}
		return r, true, nil
	}
}

// wait waits for the entry and returns it. The error may be that of ctx.
func (p *Preparation) wait(ctx context.Context) (Entry, error) {
	select {
	case <-p.done:
		return p.entry, p.err
	case <-ctx.Done():
		return Entry{}, context.Cause(ctx)
	}
}

// Ended reports whether wait would return at once.
func (p *Preparation) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Rules returns the entry of an origin, from the store if necessary. If it is not fresh,
// robots.txt must be fetched.
func (b *Book) Rules(ctx context.Context, origin string) (Entry, error) {
	if e, ok := b.Known(origin); ok {
		return e, nil
	}
	heads, err := b.heads(ctx, []string{origin})
	if err != nil {
		return Entry{}, err
	}
	r, ok := heads[origin]
	if !ok {
		return Entry{}, nil
	}
	if e := b.entryOf(r); e.Policy.Rules == nil { // the file is not needed
		b.keep(origin, e)
		return e, nil
	}
	p, _ := b.prepare(origin, r.BodySize, b.stored(origin))
	return p.wait(ctx)
}

// Confirmed returns an entry of the rulebook if the store still has that answer. Else
// it forgets the entry and returns one that is not fresh.
func (b *Book) Confirmed(ctx context.Context, origin string, e Entry) (Entry, error) {
	heads, err := b.heads(ctx, []string{origin})
	if err != nil {
		return Entry{}, err
	}
	if r, ok := heads[origin]; ok && b.entryOf(r).Fresh() {
		return e, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropLocked(origin)
	return Entry{}, nil
}

func (b *Book) heads(ctx context.Context, origins []string) (map[string]store.Robots, error) {
	heads, err := b.Store.RobotsHeads(ctx, origins)
	if err != nil {
		return nil, fmt.Errorf("look for robots.txt in the store: %w", err)
	}
	return heads, nil
}

// save stores the result of a fetch for all workers. A preparation that has started may
// have read the old row, so save starts another one after it.
func (b *Book) save(ctx context.Context, r store.Robots) error {
	for {
		p, ours := b.prepare(r.Origin, len(r.Body), b.saved(r))
		if _, err := p.wait(ctx); ours || ctx.Err() != nil {
			return err
		}
	}
}

// SaveAnswer stores what a fetch brought, for all workers. If there is no answer, it returns how long the URLs of the
// origin wait, until the file is fetched again. pause is how long the host closes for it.
func (b *Book) SaveAnswer(ctx context.Context, r store.Robots, pause time.Duration) (deferFor time.Duration, err error) {
	if err := b.save(ctx, r); err != nil || !r.Unreachable {
		return 0, err
	}
	e, err := b.Rules(ctx, r.Origin)
	if err != nil || e.EndsURLs() {
		return 0, err
	}
	return e.Defers(b.Patience, pause), nil
}

// LearnDelay sets the delay of a host to the longest Crawl-delay of its robots.txt files. A host
// may have one for http and one for https.
func (b *Book) LearnDelay(ctx context.Context, host string) error {
	var delay time.Duration
	for _, origin := range []string{"http://" + host, "https://" + host} {
		e, err := b.Rules(ctx, origin)
		if err != nil {
			return err
		}
		if rules := e.Policy.Rules; rules != nil {
			delay = max(delay, min(rules.CrawlDelay, b.MaxDelay))
		}
	}
	ctx, cancel := b.finishing()
	defer cancel()
	return b.Store.SetHost(ctx, host, store.HostParams{CrawlDelay: &delay})
}

// Stray records that the robots.txt of a redirect's target was saved, and deletes the oldest ones from the store if
// their hosts still have no URL. If that fails, a sweep of the store will delete them.
func (b *Book) Stray(origin string) error {
	b.mu.Lock()
	b.strays = append(b.strays, origin)
	var old []string
	if len(b.strays) == 2*strayPiece {
		old, b.strays = b.strays[:strayPiece:strayPiece], slices.Clone(b.strays[strayPiece:])
	}
	b.mu.Unlock()
	if len(old) == 0 {
		return nil
	}
	ctx, cancel := b.finishing()
	defer cancel()
	_, err := b.Store.ForgetRobots(ctx, old)
	return err
}

// finishing returns a context for what must be read or stored although its visit has ended.
func (b *Book) finishing() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.Storing, storeTime)
}
