package frontier

import (
	"context"
	"time"

	"fetchd/frontier/normal"
	"fetchd/frontier/store"
)

// turn waits until the host of a redirect's target is open and has it to itself.
// Not granted means that it took too long.
func (v *visit) turn(next string, kind chainKind) (granted bool, e *ending) {
	u, err := normal.NormalizeURL(next)
	if err != nil {
		return false, nil // fetchd would refuse it, or it is nothing that a frontier could hold
	}
	patience, cancel := context.WithTimeout(v.ctx, v.w.config.MaxRedirectWait)
	defer cancel()
	defer context.AfterFunc(v.w.draining, cancel)()
	if kind == pageChain {
		if e, known := v.askForeign(patience, u); e != nil || !known {
			return false, e
		}
	}
	host := hostOf(u)
	if kind == robotsChain && host == v.claim.Host {
		if e := v.depart(); e != nil { // a robots.txt is nobody's granted fetch
			return false, e
		}
	}
	return v.reserve(patience, host)
}

// reserve closes a host to everybody else, once it is open. The visit's own host is
// its already, as long as it has not waited for another. While it waits it has none:
// two visits that waited for each other's would wait for ever. release gives the
// host back.
func (v *visit) reserve(patience context.Context, host string) (bool, *ending) {
	if host == v.held && v.unused {
		return true, nil
	}
	v.release()
	if host == v.claim.Host && !v.departed {
		return true, nil
	}
	if !v.w.queues.try(host) {
		if e := v.depart(); e != nil {
			return false, e
		}
		if err := v.wait(func() error { return v.w.queues.wait(patience, host) }); err != nil {
			return false, v.impatient()
		}
	}
	granted, e := v.ask(patience, host)
	if !granted {
		v.w.queues.leave(host)
	}
	return granted, e
}

// ask asks the store for a host whose turn this visit has, until it is granted.
func (v *visit) ask(patience context.Context, host string) (bool, *ending) {
	for {
		asked, d := time.Now(), v.w.config.TotalTimeout+leaseReserve
		r, err := v.w.store.Reserve(patience, host, d)
		if err == nil && r.Granted() {
			v.held, v.reservation, v.unused, v.heldUntil = host, r, true, asked.Add(d)
			return true, nil
		}
		if err != nil && patience.Err() == nil {
			v.w.trouble(v.ctx, "reserve a host", err)
			return false, v.back()
		}
		ends, _ := patience.Deadline()
		if patience.Err() != nil || r.Wait > time.Until(ends) {
			return false, v.impatient()
		}
		if e := v.depart(); e != nil {
			return false, e
		}
		err = v.wait(func() error {
			sleep(patience, r.Wait)
			return patience.Err()
		})
		if err != nil || v.w.draining.Err() != nil {
			return false, v.impatient()
		}
	}
}

// wait runs f, which may take longer than the lease lasts.
func (v *visit) wait(f func() error) error {
	set := func(waiting bool) {
		v.mu.Lock()
		v.waiting = waiting
		v.mu.Unlock()
	}
	set(true)
	defer set(false)
	return f()
}

// impatient is the end of a visit that waits no longer; nil if it may go on
// without what it waited for.
func (v *visit) impatient() *ending {
	if v.w.draining.Err() != nil && v.ctx.Err() == nil {
		return v.back()
	}
	return v.stopped()
}

// depart gives the claim's own host back: what is left of the fetch is elsewhere.
func (v *visit) depart() *ending {
	if v.departed {
		return nil
	}
	left, err := v.w.store.Depart(v.ctx, []store.Lease{v.claim.Lease})
	switch {
	case err != nil && v.ctx.Err() != nil:
		return v.stopped()
	case err != nil:
		v.w.trouble(v.ctx, "leave a host", err)
		return v.back()
	case len(left) == 0:
		return &ending{how: forget}
	}
	v.departed = true
	return nil
}

// stopped is the end of a visit whose context is over; nil if only patience was.
func (v *visit) stopped() *ending {
	if v.ctx.Err() == nil {
		return nil
	}
	return v.broken(context.Cause(v.ctx))
}

// release tells that the request to the reserved host has ended.
func (v *visit) release() {
	if v.held == "" {
		return
	}
	// Where that fails it opens by itself, later.
	v.w.finishingDo("give a reserved host back", func(ctx context.Context) error { return v.w.store.Settle(ctx, v.reservation) })
	v.w.queues.leave(v.held)
	v.held = ""
}
