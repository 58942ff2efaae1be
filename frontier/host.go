package frontier

import (
	"context"
	"net/netip"
	"time"

	"fetchd/frontier/normal"
	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

// reserve reserves a host for this visit once it is open. The visit holds the host of its claim,
// until it waits for another one. While it waits, it holds none: two visits that wait for each
// other's hosts would otherwise wait for ever. Call release after the request.
func (v *visit) reserve(patience context.Context, host string) (bool, *ending) {
	if host == v.held && v.unused {
		return true, nil
	}
	v.release()
	if host == v.claim.Host && !v.leftHost {
		return true, nil
	}
	if !v.w.queues.try(host) {
		if e := v.leaveHost(); e != nil {
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

// ask asks the store for a host until it is granted. The visit must have the host's turn.
func (v *visit) ask(patience context.Context, host string) (bool, *ending) {
	for {
		asked, d := time.Now(), v.w.config.TotalTimeout+leaseReserve
		r, err := v.w.store.Reserve(patience, host, d)
		if err == nil && r.Granted() {
			v.held, v.reservation, v.unused, v.heldUntil = host, r, true, asked.Add(d)
			v.knowAddress(host, r.Address)
			return true, nil
		}
		if err != nil && patience.Err() == nil {
			v.w.reportError(v.ctx, "reserve a host", err)
			return false, v.back()
		}
		ends, _ := patience.Deadline()
		if patience.Err() != nil || r.Wait > time.Until(ends) {
			return false, v.impatient()
		}
		if e := v.leaveHost(); e != nil {
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

// leaveHost opens the claim's own host, because the rest of the fetch is at other hosts.
func (v *visit) leaveHost() *ending {
	if v.leftHost {
		return nil
	}
	if v.behind != nil {
		v.behind()
	}
	left, err := v.w.store.LeaveHosts(v.ctx, []store.Lease{v.claim.Lease})
	switch {
	case err != nil:
		return v.storeFailed("leave a host", err)
	case len(left) == 0:
		return &ending{how: forget}
	}
	v.leftHost = true
	return nil
}

// release reports that the request to the reserved host has ended.
func (v *visit) release() {
	if v.held == "" {
		return
	}
	// If this fails, the reservation expires.
	v.w.persist("give a reserved host back", func(ctx context.Context) error { return v.w.store.Settle(ctx, v.reservation) })
	v.w.queues.leave(v.held)
	v.held = ""
}

// addressesOf returns where requests went, by host. There is no address behind a proxy.
func addressesOf(hops []*pb.Hop) map[string]string {
	seen := make(map[string]string)
	for _, h := range hops {
		if at, err := netip.ParseAddrPort(h.GetExchange().GetRemoteAddress()); err == nil {
			seen[normal.HostOf(h.GetUrl())] = normal.Address(at.Addr())
		}
	}
	return seen
}

// knowAddress remembers which address the store has.
func (v *visit) knowAddress(host, address string) {
	if v.addresses == nil {
		v.addresses = make(map[string]string)
	}
	v.addresses[host] = address
}

// storeAddresses stores addresses that are new.
func (v *visit) storeAddresses(seen map[string]string) {
	for host, address := range seen {
		if v.addresses[host] != address {
			v.w.persist("store an address", func(ctx context.Context) error { return v.w.store.SetAddress(ctx, host, address) })
			v.knowAddress(host, address)
		}
	}
}
