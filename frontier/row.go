package frontier

import (
	"slices"
	"sync"
	"time"

	"fetchd/frontier/store"
)

const (
	// rowTime limits how long URLs are held that wait for others of their host, with a third of the lease.
	rowTime = 200 * time.Millisecond
	// goOnEvery is how old the answer of the store may be whether the next URL may be fetched.
	goOnEvery = 5 * time.Millisecond
	// maxUnrecorded is how old an outcome may be that is not recorded yet when the next fetch of its row starts.
	maxUnrecorded = 2 * recordTime
)

// row has URLs of one host that were claimed together. They are fetched one after the other, and their
// outcomes are recorded together. Those that cannot be fetched soon are given back.
type row struct {
	*claims
	until   time.Time // of the leases
	asked   time.Time // when the store was last asked whether the next URL may be fetched
	waiting []settling

	mu   sync.Mutex
	rest []store.Claim // that were not started
}

// settling is a visit whose outcome is being recorded.
type settling struct {
	*visit
	*pending
}

// ahead is for how long URLs of a host are claimed ahead. Budgets of hosts need each outcome before the next fetch.
func (c *Config) ahead() time.Duration {
	if c.Budget.HostBytes > 0 {
		return 0
	}
	return min(rowTime, c.Lease/3)
}

// run runs the visits of a row.
func (r *row) run() {
	v := r.next()
	if len(r.rest) > 0 { // nothing else uses it yet
		defer time.AfterFunc(time.Until(r.asked.Add(r.config.ahead())), r.giveBackRest).Stop()
	}
	for ; v != nil; v = r.next() {
		e := v.run()
		ended := time.Now()
		if !e.plain() || v.leftHost {
			r.giveBackRest() // before the host is aborted, for example
		}
		next, more := r.following()
		if !more {
			r.settle(v, e)
			r.ended(v)
			break
		}
		r.waiting = append(r.waiting, settling{v, r.submit(v, e)})
		if !r.goOn(next, ended) {
			r.giveBackRest()
		}
	}
	r.recordedBefore(time.Time{})
}

// next starts the visit of the next URL. It returns nil if there is none.
func (r *row) next() *visit {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rest) == 0 {
		return nil
	}
	v := r.visit(r.rest[0], r.until)
	v.behind = r.giveBackRest
	r.rest = r.rest[1:]
	return v
}

// following returns the next URL without starting it.
func (r *row) following() (c store.Claim, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rest) == 0 {
		return c, false
	}
	return r.rest[0], true
}

// giveBackRest gives the URLs back that were not started.
func (r *row) giveBackRest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rest) == 0 {
		return
	}
	r.giveBack(r.rest)
	r.stats.claimed.Add(-int64(len(r.rest)))
	r.rest = nil
}

// goOn waits until the next URL, c, may be fetched after a visit has ended. It returns false if the rest is to be given
// back.
func (r *row) goOn(c store.Claim, ended time.Time) bool {
	if c.Delay > 0 {
		sleep(r.draining, time.Until(ended.Add(c.Delay)))
	}
	r.recordedBefore(time.Now().Add(-maxUnrecorded))
	for wait := time.Since(r.asked); wait > goOnEvery; {
		if err := r.checkOutdated(r.fetching); err != nil {
			return false
		}
		r.asked = time.Now()
		var ok bool
		var err error
		wait, ok, err = r.store.GoOn(r.fetching, c)
		r.called(r.fetching, "go_on", "look whether a host is open", r.asked, err)
		if err != nil || !ok || wait > c.Delay+afterDelay {
			return false
		}
		if c.Delay > 0 && wait > 0 {
			sleep(r.draining, wait)
		}
	}
	return r.draining.Err() == nil
}

// recordedBefore waits until outcomes that are older than a time, or all if it is zero, are recorded.
func (r *row) recordedBefore(t time.Time) {
	for len(r.waiting) > 0 && (t.IsZero() || r.waiting[0].since.Before(t)) {
		<-r.waiting[0].done
		r.ended(r.waiting[0].visit)
		r.waiting = slices.Delete(r.waiting, 0, 1)
	}
}
