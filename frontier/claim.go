package frontier

import (
	"context"
	"errors"
	"sync"
	"time"

	"fetchd/frontier/normal"
	"fetchd/frontier/rulebook"
	"fetchd/frontier/store"
)

const (
	// claimLimit is the maximum of URLs in one claim.
	claimLimit = 128
	// Claims follow each other after firstPoll if there were URLs, and after up to lastPoll if
	// there were none.
	firstPoll = 5 * time.Millisecond
	lastPoll  = 50 * time.Millisecond
	// afterDelay is how long after its delay a host is due at the latest: the store counts in whole
	// milliseconds.
	afterDelay = 2 * time.Millisecond
	// leftEvery is how often an idle worker checks whether any URL is left.
	leftEvery = time.Second
)

// claims are the URLs that a worker holds. One goroutine claims them.
type claims struct {
	*Worker
	slowStart slowStart
	parked    []parked // at most claimLimit
	visits    sync.WaitGroup

	mu   sync.Mutex
	held map[*visit]struct{}
}

func newClaims(w *Worker) *claims { return &claims{Worker: w, held: make(map[*visit]struct{})} }

// parked is a claim whose robots.txt is being prepared.
type parked struct {
	claim store.Claim
	until time.Time // of the lease
	rules *rulebook.Preparation
}

// loop starts visits until nothing is left or ctx ends.
func (c *claims) loop(ctx context.Context) error {
	wait, asked := firstPoll, time.Time{}
	pause := lastPoll
	if hosts, delay, err := c.store.Due(ctx); err == nil { // otherwise the first claim reports the error
		c.slowStart = newSlowStart(time.Now(), hosts, delay, c.config.Open)
		pause = delay + afterDelay
	}
	for {
		if err := c.waitForCapacity(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.unpark()
		if d := max(c.backoff.wait(), c.recording.wait(), c.denied.wait()); d > 0 {
			sleep(ctx, d)
			continue
		}
		if c.slowStart.allowed(time.Now(), 1) == 0 {
			sleep(ctx, firstPoll)
			continue
		}
		n, err := c.claim()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrOutdated):
			return err
		case err != nil:
			c.reportError(ctx, "claim", err)
			sleep(ctx, time.Second)
			continue
		case n > 0:
			wait = firstPoll
		case c.open() == 0 && time.Since(asked) > leftEvery:
			left, err := c.store.Left(ctx)
			if err == nil && !left && !c.config.Endless && !c.config.Recrawl.On() {
				return nil
			}
			asked = time.Now()
		}
		if n < claimLimit { // otherwise there are more
			if c.rest(ctx, wait, pause) {
				wait = firstPoll
			} else {
				wait = min(2*wait, lastPoll)
			}
		}
	}
}

// waitForCapacity waits until another visit may start.
func (c *claims) waitForCapacity(ctx context.Context) error {
	for {
		capacity, changed := c.pool.Capacity()
		if c.busy() < min(capacity, c.config.Open) {
			return nil
		}
		select {
		case <-c.free:
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// busy returns the number of visits that count for Config.Open. Visits that wait to be searched do not,
// up to half of Open: they need no connection, and hosts with pages that take long to search would
// otherwise leave no capacity to others.
func (w *Worker) busy() int { return w.open() - min(int(w.search.visits.Load()), w.config.Open/2) }

// claim claims URLs and starts their visits, as many as there is capacity for.
func (c *claims) claim() (int, error) {
	capacity, _ := c.pool.Capacity()
	n := c.slowStart.allowed(time.Now(), min(min(capacity, c.config.Open)-c.busy(), claimLimit-len(c.parked)))
	if n <= 0 {
		return 0, nil
	}
	// The context outlives Run's: a claim that is interrupted may have succeeded, and would keep
	// its URLs until the leases expire.
	ctx, cancel := c.finishing()
	defer cancel()
	asked := time.Now()
	taken, err := c.store.Claim(ctx, store.ClaimParams{Limit: n, Lease: c.config.Lease, Worker: c.config.Name, Ahead: c.config.ahead()})
	c.measured(ctx, "claim", asked, err)
	if len(taken) == 0 {
		return 0, err
	}
	if err != nil { // of another database
		c.reportError(ctx, "claim", err)
	}
	until := asked.Add(c.config.Lease)
	if !time.Now().Before(until) { // the process was suspended, and the store may have granted the lease just now
		c.giveBack(taken)
		return 0, nil
	}
	if err := c.checkOutdated(ctx); err != nil {
		c.giveBack(taken)
		return 0, err
	}
	ready, err := c.sift(ctx, taken, until)
	if err != nil {
		c.giveBack(taken)
		return 0, err
	}
	for _, one := range taken { // also those that are parked
		if !one.Behind {
			c.slowStart.add(1)
		}
	}
	for len(ready) > 0 {
		n := 1
		for n < len(ready) && ready[n].Behind {
			n++
		}
		c.start(ready[:n], asked, until)
		ready = ready[n:]
	}
	return len(taken), nil
}

// checkOutdated returns [ErrOutdated] if another configuration applies now.
func (c *claims) checkOutdated(ctx context.Context) error {
	if c.config.Outdated == nil {
		return nil
	}
	outdated, err := c.config.Outdated(ctx)
	if err == nil && outdated {
		err = ErrOutdated
	}
	return err
}

// sift returns the claims whose visits may start, and parks the others for [claims.unpark]. Those behind a claim
// that is parked go back. It reads the store once, and no file.
func (c *claims) sift(ctx context.Context, taken []store.Claim, until time.Time) ([]store.Claim, error) {
	if c.config.IgnoreRobots {
		return taken, nil
	}
	waits, err := c.rulebook.Prepare(ctx, taken)
	if err != nil {
		return nil, err
	}
	var ready, back []store.Claim
	waiting := false
	for _, one := range taken {
		origin, _ := normal.OriginOf(one.URL)
		p := waits[origin]
		waiting = p != nil || waiting && one.Behind
		switch {
		case !waiting:
			ready = append(ready, one)
		case one.Behind:
			back = append(back, one)
		default:
			c.parked = append(c.parked, parked{claim: one, until: until, rules: p})
		}
	}
	if len(back) > 0 {
		c.giveBack(back)
	}
	return ready, nil
}

// unpark starts the visits of parked claims whose files are ready, as far as there is
// capacity.
func (c *claims) unpark() {
	capacity, _ := c.pool.Capacity()
	room := min(capacity, c.config.Open) - c.open()
	left := c.parked[:0]
	for _, p := range c.parked {
		if room > 0 && p.rules.Ended() {
			room--
			c.start([]store.Claim{p.claim}, time.Now(), p.until)
		} else {
			left = append(left, p)
		}
	}
	clear(c.parked[len(left):])
	c.parked = left
}

// rest waits for d, or until a robots.txt has been prepared. If hosts are due again before the next claim
// after an outcome, because their pause is shorter than lastPoll, it waits for an outcome and the pause
// instead, and returns true.
func (c *claims) rest(ctx context.Context, d, pause time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	recorded := c.recorder.recorded
	if pause >= lastPoll {
		recorded = nil
	}
	select {
	case <-t.C:
	case <-c.rulebook.Ready:
	case <-ctx.Done():
	case <-recorded:
		sleep(ctx, pause)
		return true
	}
	return false
}

// start runs the visits of a claim, and of those behind it, in a new goroutine.
func (c *claims) start(taken []store.Claim, asked, until time.Time) {
	r := &row{claims: c, asked: asked, until: until, rest: taken}
	c.stats.open.Add(1)
	c.stats.claimed.Add(int64(len(taken)))
	c.visits.Go(func() {
		r.run()
		c.stats.open.Add(-1)
		c.freed()
	})
}

// visit returns a new visit, which ends with [claims.ended].
func (c *claims) visit(claim store.Claim, until time.Time) *visit {
	v := &visit{w: c.Worker, claim: claim, until: until}
	v.knowAddress(claim.Host, claim.Address)
	v.ctx, v.cancel = context.WithCancelCause(c.fetching)
	c.mu.Lock()
	c.held[v] = struct{}{}
	c.mu.Unlock()
	return v
}

func (c *claims) ended(v *visit) {
	v.cancel(nil)
	c.mu.Lock()
	delete(c.held, v)
	c.mu.Unlock()
	c.stats.claimed.Add(-1)
}

// giveBackParked releases the claims whose visits never started.
func (c *claims) giveBackParked() {
	var left []store.Claim
	for _, p := range c.parked {
		left = append(left, p.claim)
	}
	if len(left) > 0 {
		c.giveBack(left)
	}
}
