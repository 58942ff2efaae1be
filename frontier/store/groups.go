package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"fetchd/frontier/normal"
)

// Grouping makes hosts share a delay and a number of open fetches: those of one registrable domain, or those at one
// address. The zero value keeps each host for itself.
type Grouping struct {
	by       string
	names    []string
	prefixes []netip.Prefix
}

// The kinds of groups.
const (
	ByHost    = "host"
	ByDomain  = "domain"
	ByAddress = "address"
)

// NewGrouping returns a grouping. An exception is a domain, whose hosts and those below it are in no group, or addresses
// as an address or in CIDR notation, which form none.
func NewGrouping(by string, exceptions []string) (Grouping, error) {
	g := Grouping{by: by}
	if by != ByHost && by != ByDomain && by != ByAddress {
		return g, fmt.Errorf("%q is not a kind of groups: use %s, %s or %s", by, ByHost, ByDomain, ByAddress)
	}
	for _, text := range exceptions {
		if prefix, ok := parsePrefix(text); ok {
			g.prefixes = append(g.prefixes, prefix)
			continue
		}
		u, err := normal.NormalizeURL("http://" + text + "/")
		if err != nil || u != "http://"+normal.Name(normal.HostOf(u))+"/" || !domainName.MatchString(normal.HostOf(u)) {
			return g, fmt.Errorf("%q is neither a domain nor an address, nor addresses such as 192.0.2.0/24", text)
		}
		g.names = append(g.names, normal.HostOf(u))
	}
	return g, nil
}

var domainName = regexp.MustCompile(`^[a-z0-9._-]+$`)

// parsePrefix reads an address, or addresses in CIDR notation. Those of IPv4 in IPv6 are of IPv4.
func parsePrefix(text string) (netip.Prefix, bool) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		address, err := netip.ParseAddr(strings.Trim(text, "[]"))
		if err != nil {
			return prefix, false
		}
		prefix = netip.PrefixFrom(address, address.BitLen())
	}
	if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix, true
}

func (g Grouping) on() bool { return g.by == ByDomain || g.by == ByAddress }

// of returns the group of a host, or an empty string if it is in none, or if its address is not known.
func (g Grouping) of(host, address string) string {
	name := normal.Name(host)
	if slices.ContainsFunc(g.names, func(one string) bool { return name == one || strings.HasSuffix(name, "."+one) }) {
		return ""
	}
	group := address
	if g.by == ByDomain {
		group = normal.Domain(host)
	} else if normal.IsAddress(name) {
		group = normal.Domain(name)
	}
	if at, err := netip.ParseAddr(strings.Trim(group, "[]")); err == nil &&
		slices.ContainsFunc(g.prefixes, func(p netip.Prefix) bool { return p.Contains(at.Unmap()) }) {
		return ""
	}
	return group
}

// groups is a Store whose hosts are in groups. A claim has a turn of its group until its fetch has left the
// host.
type groups struct {
	engine
	Grouping
}

// engine is the Store of one database, with what groups need of it.
type engine interface {
	Store
	base() *core
	takeTurns(ctx context.Context, asks []turnAsk) ([]turnWait, error)
	endTurns(ctx context.Context, ends []turnEnd) error
	extendTurns(ctx context.Context, leases []Lease, d time.Duration) error
	// lineUp closes the hosts of claims that have to wait, and releases these.
	lineUp(ctx context.Context, waits []turnWait) error
}

// turnAsk asks for a turn of a group.
type turnAsk struct {
	Lease
	Group string `json:"group"`
	Host  string `json:"host"`
	// First is for a host that has waited for its turn, which was promised for WaitedMS ago, and for a redirect.
	First    bool  `json:"first"`
	WaitedMS int64 `json:"waited_ms"`
	LeaseMS  int64 `json:"lease_ms"`
}

// turnWait answers an ask. WaitMS is zero if the turn was given.
type turnWait struct {
	Lease
	WaitMS int64 `json:"wait_ms"`
	// Promised means that the host comes first then.
	Promised bool `json:"promised"`
}

// turnEnd ends a turn. Sent says that a request was sent.
type turnEnd struct {
	Lease
	Sent bool `json:"sent"`
}

const (
	// promisedAhead is how far ahead turns are promised. Hosts that would have to wait longer ask again.
	promisedAhead = 5 * time.Minute
	// giveBackTime is how long a turn may take to be given back whose host could not be reserved. It would end with its lease.
	giveBackTime = 5 * time.Second
	// claimRounds is how often a claim asks for more URLs, because the hosts of others have to wait.
	claimRounds = 8
)

// Claim implements [Store]. It may return URLs together with an error, which is about others.
func (g *groups) Claim(ctx context.Context, params ClaimParams) (claims []Claim, err error) {
	params = params.withDefaults()
	params.Ahead = 0 // each URL needs its own turn
	more := params
	for range claimRounds {
		more.Limit = params.Limit - len(claims)
		some, err := g.engine.Claim(ctx, more)
		ready, admitted := g.admit(ctx, some, params.Lease)
		claims = append(claims, ready...)
		if err = errors.Join(err, admitted); err != nil || len(ready) == len(some) {
			return claims, err
		}
	}
	return claims, nil
}

// known is what is known about the group of a host.
type known struct {
	Address string
	Turn    bool  // its promised turn has come
	Waited  int64 // ms ago
}

// claimed reads what is known about the hosts of claims.
func (g *groups) claimed(ctx context.Context, claims []Claim) (map[string]known, error) {
	type row struct {
		host string
		known
	}
	all := make(map[string]known, len(claims))
	hosts := make([]string, len(claims))
	for i, c := range claims {
		hosts[i] = c.Host
	}
	list, err := toJSON(hosts)
	if err != nil {
		return nil, err
	}
	rows, err := g.base().db.Query(ctx, `SELECT host, address, turn_at > 0 AND turn_at <= {now}, CASE WHEN turn_at > 0 THEN {max}(0, {now} - turn_at) ELSE 0 END
		FROM hosts WHERE host {among}`, list)
	some, err := collect(rows, err, func(r *row) []any { return []any{&r.host, &r.Address, &r.Turn, &r.Waited} })
	if err != nil {
		return nil, fmt.Errorf("read the groups of hosts: %w", err)
	}
	for _, r := range some {
		all[r.host] = r.known
	}
	return all, nil
}

// groupOf returns the group and the address of a host.
func (g *groups) groupOf(ctx context.Context, host string) (name, address string, err error) {
	if _, err := g.base().db.One(ctx, `SELECT address FROM hosts WHERE host = ?`, []any{host}, &address); err != nil {
		return "", "", fmt.Errorf("read the group of host %s: %w", host, err)
	}
	return g.of(host, address), address, nil
}

// admit returns the claims whose groups have a turn for them. The others go back, and their hosts wait.
func (g *groups) admit(ctx context.Context, claims []Claim, lease time.Duration) ([]Claim, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	about, err := g.claimed(ctx, claims)
	if err != nil {
		return nil, errors.Join(err, g.refuse(ctx, claims))
	}
	var ready, asked []Claim
	var asks []turnAsk
	for _, c := range claims {
		k := about[c.Host]
		c.Address = k.Address
		name := g.of(c.Host, k.Address)
		if name == "" {
			ready = append(ready, c)
			continue
		}
		asked = append(asked, c)
		asks = append(asks, turnAsk{Lease: c.Lease, Group: name, Host: c.Host, First: k.Turn, WaitedMS: k.Waited, LeaseMS: millis(lease)})
	}
	if len(asks) == 0 {
		return ready, nil
	}
	answers, err := g.takeTurns(ctx, asks)
	if err != nil {
		return ready, errors.Join(err, g.refuse(ctx, asked))
	}
	byLease := make(map[Lease]Claim, len(asked))
	for _, c := range asked {
		byLease[c.Lease] = c
	}
	var waits []turnWait
	for _, a := range answers {
		c := byLease[a.Lease]
		if a.WaitMS == 0 {
			ready = append(ready, c)
		}
		if a.WaitMS > 0 || about[c.Host].Turn {
			waits = append(waits, a)
		}
	}
	if len(waits) > 0 {
		err = g.lineUp(ctx, waits)
	}
	return ready, err
}

// refuse gives claims back, after an error.
func (g *groups) refuse(ctx context.Context, claims []Claim) error {
	leases := make([]Lease, len(claims))
	for i, c := range claims {
		leases[i] = c.Lease
	}
	_, err := g.engine.Release(ctx, leases)
	return err
}

// ended calls f after the turns of leases have ended.
func (g *groups) ended(ctx context.Context, leases []Lease, sent bool, f func(context.Context, []Lease) ([]Lease, error)) ([]Lease, error) {
	ends := make([]turnEnd, len(leases))
	for i, l := range leases {
		ends[i] = turnEnd{l, sent}
	}
	if err := g.endTurns(ctx, ends); err != nil {
		return nil, err
	}
	return f(ctx, leases)
}

// RecordFetch implements [Store].
func (g *groups) RecordFetch(ctx context.Context, fetches []Fetch) ([]error, error) {
	ends := make([]turnEnd, len(fetches))
	for i, f := range fetches {
		ends[i] = turnEnd{Lease{f.ID, f.Token}, f.Attempts > 0}
	}
	if err := g.endTurns(ctx, ends); err != nil {
		return nil, err
	}
	return g.engine.RecordFetch(ctx, fetches)
}

// Release implements [Store].
func (g *groups) Release(ctx context.Context, leases []Lease) ([]Lease, error) {
	return g.ended(ctx, leases, false, g.engine.Release)
}

// Abandon implements [Store].
func (g *groups) Abandon(ctx context.Context, leases []Lease) ([]Lease, error) {
	return g.ended(ctx, leases, true, g.engine.Abandon)
}

// LeaveHosts implements [Store].
func (g *groups) LeaveHosts(ctx context.Context, leases []Lease) ([]Lease, error) {
	return g.ended(ctx, leases, true, g.engine.LeaveHosts)
}

// Extend implements [Store]. Turns last as long as their leases.
func (g *groups) Extend(ctx context.Context, leases []Lease, d time.Duration) ([]Lease, error) {
	if err := g.extendTurns(ctx, leases, d); err != nil {
		return nil, err
	}
	return g.engine.Extend(ctx, leases, d)
}

// Reserve implements [Store]. It also reserves a turn of the group.
func (g *groups) Reserve(ctx context.Context, host string, d time.Duration) (Reservation, error) {
	refused := Reservation{Host: host}
	name, address, err := g.groupOf(ctx, host)
	if err != nil {
		return refused, err
	}
	turn := Lease{Token: rand.Int64()}
	if name != "" {
		answers, err := g.takeTurns(ctx, []turnAsk{{Lease: turn, Group: name, Host: host, First: true, LeaseMS: millis(d)}})
		if err != nil {
			return refused, err
		}
		if wait := answers[0].WaitMS; wait > 0 {
			refused.Wait = time.Duration(wait) * time.Millisecond
			return refused, nil
		}
	}
	r, err := g.engine.Reserve(ctx, host, d)
	r.Address, r.turn = address, turn
	if name != "" && !r.Granted() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTime)
		defer cancel()
		err = errors.Join(err, g.endTurns(ctx, []turnEnd{{Lease: turn}}))
	}
	return r, err
}

// charge closes the group of a host for its delay.
func (g *groups) charge(ctx context.Context, host string) error {
	name, _, err := g.groupOf(ctx, host)
	if err != nil || name == "" {
		return err
	}
	_, err = g.base().db.Update(ctx, "delay group "+name, `INSERT INTO host_groups (name, next_at) VALUES (?, {now} + 1 + ?)
		ON CONFLICT (name) DO UPDATE SET next_at = {max}(host_groups.next_at, {now} + 1 + COALESCE(host_groups.delay_ms, ?))`, name, g.base().delayMS, g.base().delayMS)
	return err
}

// SetAddress implements [Store].
func (g *groups) SetAddress(ctx context.Context, host, address string) error {
	if g.by != ByAddress {
		return nil
	}
	if _, err := g.base().db.Update(ctx, "store the address of host "+host, `UPDATE hosts SET address = ? WHERE host = ?`, address, host); err != nil {
		return err
	}
	return g.charge(ctx, host)
}

// DelayHosts implements [Store].
func (g *groups) DelayHosts(ctx context.Context, hosts []string) error {
	if err := g.engine.DelayHosts(ctx, hosts); err != nil {
		return err
	}
	for _, host := range hosts {
		if err := g.charge(ctx, host); err != nil {
			return err
		}
	}
	return nil
}

// Settle implements [Store].
func (g *groups) Settle(ctx context.Context, r Reservation) error {
	if r.Granted() && r.turn != (Lease{}) {
		if err := g.endTurns(ctx, []turnEnd{{r.turn, true}}); err != nil {
			return err
		}
	}
	return g.engine.Settle(ctx, r)
}
