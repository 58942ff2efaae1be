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

// groups is the Queue of a frontier whose hosts are in groups. A claim has a turn of its group until its fetch has left the
// host. The group of a host may be in another database than the host.
type groups struct {
	Queue
	store *Store
	Grouping
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
	// groupAway is how long a host waits at least if the database of its group cannot be reached, and at most twice as long.
	groupAway = 5 * time.Second
	// claimRounds is how often a claim asks for more URLs, because the hosts of others have to wait.
	claimRounds = 8
)

// Claim implements [Queue]. It may return URLs together with an error, which is about others.
func (g *groups) Claim(ctx context.Context, params ClaimParams) (claims []Claim, err error) {
	params = params.withDefaults()
	more := params
	for range claimRounds {
		more.Limit = params.Limit - len(claims)
		some, err := g.Queue.Claim(ctx, more)
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

// claimed reads what is known about the hosts of claims, where these were claimed.
func (g *groups) claimed(ctx context.Context, claims []Claim) (map[string]known, error) {
	type row struct {
		host string
		known
	}
	all := make(map[string]known, len(claims))
	rows, err := divided(ctx, g.store, claims, func(c Claim) int { return g.store.DatabaseOf(c.Lease) }, func(ctx context.Context, s *Store, some []Claim) ([]row, error) {
		hosts := make([]string, len(some))
		for i, c := range some {
			hosts[i] = c.Host
		}
		list, err := toJSON(hosts)
		if err != nil {
			return nil, err
		}
		rows, err := s.db.Query(ctx, `SELECT host, address, turn_at > 0 AND turn_at <= {now}, CASE WHEN turn_at > 0 THEN {max}(0, {now} - turn_at) ELSE 0 END
			FROM hosts WHERE host {among}`, list)
		return collect(rows, err, func(r *row) []any { return []any{&r.host, &r.Address, &r.Turn, &r.Waited} })
	})
	if err != nil {
		return nil, fmt.Errorf("read the groups of hosts: %w", err)
	}
	for _, r := range rows {
		all[r.host] = r.known
	}
	return all, nil
}

// groupOf returns the group and the address of a host, wherever it is.
func (g *groups) groupOf(ctx context.Context, host string) (name, address string, err error) {
	err = g.store.onHost(ctx, host, func(ctx context.Context, s *Store, name string) (bool, error) {
		return s.db.One(ctx, `SELECT address FROM hosts WHERE host = ?`, []any{name}, &address)
	})
	if err != nil {
		return "", "", fmt.Errorf("read the group of host %s: %w", host, err)
	}
	return g.of(host, address), address, nil
}

// onGroup calls f with the database of a group. While the group moves, it waits.
func (s *Store) onGroup(ctx context.Context, name string, f func(ctx context.Context, s *Store) error) error {
	if s.many == nil {
		return f(ctx, s)
	}
	return s.many.untilMoved(ctx, hostSlot(name), func(p *part) (moves bool, err error) {
		err = p.do(ctx, true, func(ctx context.Context) error { return f(ctx, p.Store) })
		if isMoved(err) {
			return true, nil
		}
		return false, err
	})
}

// divided calls f with those of a list that belong to each database, by its number, and returns all that f returned.
func divided[T, R any](ctx context.Context, s *Store, list []T, number func(T) int, f func(ctx context.Context, s *Store, some []T) ([]R, error)) (all []R, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	if s.many == nil {
		return f(ctx, s, list)
	}
	results := make(chan []R, len(s.many.parts))
	err = inGroups(s.many, group(list, number), func(p *part, some []T) error {
		return p.do(ctx, true, func(ctx context.Context) error {
			r, err := f(ctx, p.Store, some)
			results <- r
			return err
		})
	})
	close(results)
	for r := range results {
		all = append(all, r...)
	}
	return all, err
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
	var ready []Claim
	var asks []turnAsk
	asking := make(map[Lease]Claim)
	for _, c := range claims {
		k, there := about[c.Host]
		c.Address = k.Address
		name := g.of(c.Host, k.Address)
		if name == "" && there {
			ready = append(ready, c)
			continue
		}
		asking[c.Lease] = c
		if !there {
			continue
		}
		asks = append(asks, turnAsk{Lease: c.Lease, Group: name, Host: c.Host, First: k.Turn, WaitedMS: k.Waited, LeaseMS: millis(lease)})
	}
	answers, err := g.ask(ctx, asks)
	var waits []turnWait
	for _, a := range answers {
		c := asking[a.Lease]
		delete(asking, a.Lease)
		if a.WaitMS == 0 {
			ready = append(ready, c)
		}
		if a.WaitMS > 0 || about[c.Host].Turn {
			waits = append(waits, a)
		}
	}
	for l := range asking {
		waits = append(waits, turnWait{Lease: l, WaitMS: (groupAway + rand.N(groupAway)).Milliseconds()})
	}
	return ready, errors.Join(err, g.lineUp(ctx, waits))
}

// refuse gives claims back, after an error.
func (g *groups) refuse(ctx context.Context, claims []Claim) error {
	leases := make([]Lease, len(claims))
	for i, c := range claims {
		leases[i] = c.Lease
	}
	_, err := g.Queue.Release(ctx, leases)
	return err
}

// ask asks for turns. Asks for groups in a database that cannot be reached, or in a slot that moves, have no answer.
func (g *groups) ask(ctx context.Context, asks []turnAsk) ([]turnWait, error) {
	name := func(a turnAsk) string { return a.Group }
	if m := g.store.many; m != nil {
		asks = slices.DeleteFunc(asks, func(a turnAsk) bool { return moving(m, []turnAsk{a}, name) })
	}
	answers, err := divided(ctx, g.store, asks, func(a turnAsk) int { return g.store.many.numberOf(a.Group) }, func(ctx context.Context, s *Store, some []turnAsk) ([]turnWait, error) {
		return s.kind.takeTurns(ctx, some)
	})
	if errors.Is(err, ErrUnreachable) {
		err = nil
	}
	return answers, err
}

// lineUp has hosts wait for their groups.
func (g *groups) lineUp(ctx context.Context, waits []turnWait) error {
	if g.store.many == nil {
		if len(waits) == 0 {
			return nil
		}
		return g.store.kind.lineUp(ctx, waits)
	}
	m := g.store.many
	return inGroups(m, group(waits, func(w turnWait) int { return m.numberOfToken(w.Token) }), func(p *part, some []turnWait) error {
		return p.do(ctx, true, func(ctx context.Context) error { return p.kind.lineUp(ctx, some) })
	})
}

// end ends turns, wherever they are. Those in a database that cannot be reached end with their leases.
func (g *groups) end(ctx context.Context, ends []turnEnd) error {
	err := g.store.everywhere(ctx, func(ctx context.Context, s *Store) error { return s.kind.endTurns(ctx, ends) })
	if errors.Is(err, ErrUnreachable) {
		return nil
	}
	return err
}

// ended calls f after the turns of leases have ended.
func (g *groups) ended(ctx context.Context, leases []Lease, sent bool, f func(context.Context, []Lease) ([]Lease, error)) ([]Lease, error) {
	ends := make([]turnEnd, len(leases))
	for i, l := range leases {
		ends[i] = turnEnd{l, sent}
	}
	if err := g.end(ctx, ends); err != nil {
		return nil, err
	}
	return f(ctx, leases)
}

// RecordFetch implements [Queue].
func (g *groups) RecordFetch(ctx context.Context, fetches []Fetch) ([]error, error) {
	ends := make([]turnEnd, len(fetches))
	for i, f := range fetches {
		ends[i] = turnEnd{Lease{f.ID, f.Token}, f.Attempts > 0}
	}
	if err := g.end(ctx, ends); err != nil {
		return nil, err
	}
	return g.Queue.RecordFetch(ctx, fetches)
}

// Release implements [Queue].
func (g *groups) Release(ctx context.Context, leases []Lease) ([]Lease, error) {
	return g.ended(ctx, leases, false, g.Queue.Release)
}

// Abandon implements [Queue].
func (g *groups) Abandon(ctx context.Context, leases []Lease) ([]Lease, error) {
	return g.ended(ctx, leases, true, g.Queue.Abandon)
}

// LeaveHosts implements [Queue].
func (g *groups) LeaveHosts(ctx context.Context, leases []Lease) ([]Lease, error) {
	return g.ended(ctx, leases, true, g.Queue.LeaveHosts)
}

// Extend implements [Queue]. Turns last as long as their leases. A turn in a database that cannot be reached for longer may end
// before its fetch.
func (g *groups) Extend(ctx context.Context, leases []Lease, d time.Duration) ([]Lease, error) {
	err := g.store.everywhere(ctx, func(ctx context.Context, s *Store) error { return s.kind.extendTurns(ctx, leases, d) })
	if err != nil && !errors.Is(err, ErrUnreachable) {
		return nil, err
	}
	return g.Queue.Extend(ctx, leases, d)
}

// reserve reserves a host, and a turn of its group.
func (g *groups) reserve(ctx context.Context, host string, d time.Duration) (Reservation, error) {
	refused := Reservation{Host: host}
	name, address, err := g.groupOf(ctx, host)
	if err != nil {
		return refused, err
	}
	turn := Lease{Token: rand.Int64()}
	if name != "" {
		answers, err := g.ask(ctx, []turnAsk{{Lease: turn, Group: name, Host: host, First: true, LeaseMS: millis(d)}})
		switch {
		case err != nil:
			return refused, err
		case len(answers) == 0:
			refused.Wait = groupAway
			return refused, nil
		case answers[0].WaitMS > 0:
			refused.Wait = time.Duration(answers[0].WaitMS) * time.Millisecond
			return refused, nil
		}
	}
	r, err := g.store.reserveHost(ctx, host, d)
	r.Address, r.turn = address, turn
	if name != "" && !r.Granted() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), groupAway)
		defer cancel()
		err = errors.Join(err, g.end(ctx, []turnEnd{{Lease: turn}}))
	}
	return r, err
}

// charge closes the group of a host for its delay. A group whose database cannot be reached gives no turns.
func (g *groups) charge(ctx context.Context, host string) error {
	name, _, err := g.groupOf(ctx, host)
	if err != nil || name == "" {
		return err
	}
	err = g.store.onGroup(ctx, name, func(ctx context.Context, s *Store) error {
		_, err := s.db.Update(ctx, "delay group "+name, `INSERT INTO host_groups (name, next_at) SELECT ?, {now} + 1 + ? WHERE {owns}
			ON CONFLICT (name) DO UPDATE SET next_at = {max}(host_groups.next_at, {now} + 1 + COALESCE(host_groups.delay_ms, ?))`, name, s.delayMS, name, s.delayMS)
		return err
	})
	if errors.Is(err, ErrUnreachable) {
		return nil
	}
	return err
}

// SetAddress stores that a request to a host has just ended at an address, which is as in [normal.Address]. With [ByAddress],
// that says which group the host is in. Otherwise SetAddress does nothing.
func (s *Store) SetAddress(ctx context.Context, host, address string) error {
	if s.groups == nil || s.groups.by != ByAddress {
		return nil
	}
	err := s.onHost(ctx, host, func(ctx context.Context, s *Store, name string) (bool, error) {
		n, err := s.db.Update(ctx, "store the address of host "+host, `UPDATE hosts SET address = ? WHERE host = ?`, address, name)
		return n > 0, err
	})
	if err != nil {
		return err
	}
	return s.groups.charge(ctx, host)
}

// SetGroup changes the settings of a group, known or not, that params has. Its CrawlDelay is not used.
func (s *Store) SetGroup(ctx context.Context, name string, params HostParams) error {
	var columns []string
	var values []any
	if d := params.Delay; d != nil {
		var delay any
		if *d >= 0 {
			delay = millis(*d)
		}
		columns, values = append(columns, "delay_ms"), append(values, delay)
	}
	if n := params.MaxInFlight; n != nil {
		columns, values = append(columns, "max_in_flight"), append(values, *n)
	}
	var sets []string
	for _, column := range columns {
		sets = append(sets, column+" = excluded."+column)
	}
	if len(columns) == 0 {
		return nil
	}
	return s.onGroup(ctx, name, func(ctx context.Context, s *Store) error {
		_, err := s.db.Update(ctx, "change group "+name, `INSERT INTO host_groups (name, `+strings.Join(columns, ", ")+`) SELECT ?`+strings.Repeat(", ?", len(columns))+` WHERE {owns}
			ON CONFLICT (name) DO UPDATE SET `+strings.Join(sets, ", "), append(append([]any{name}, values...), name)...)
		return err
	})
}

// copyGroups copies the groups of a slot that is closed in both databases, and who has turns of them.
func (m *mover) copyGroups(ctx context.Context, from, to *part, slot int) error {
	var rows, turns string
	err := from.db.QueryRow(ctx, `SELECT p_groups, p_turns FROM frontier_slot_groups(?)`, slot).Scan(&rows, &turns)
	if err == nil {
		_, err = to.db.ExecContext(ctx, `SELECT frontier_settle_groups($1, $2) WHERE frontier_fence($3)`, rows, turns, m.mover)
	}
	if err != nil {
		return fmt.Errorf("copy groups: %w", err)
	}
	return nil
}

// forgetGroups deletes the groups of a slot that has moved.
func (m *mover) forgetGroups(ctx context.Context, p *part, slot int) error {
	for _, query := range []string{`DELETE FROM turns WHERE frontier_slot(group_name) = ? AND frontier_fence(?)`, `DELETE FROM host_groups WHERE frontier_slot(name) = ? AND frontier_fence(?)`} {
		if _, err := p.db.Update(ctx, "delete groups that have moved", query, slot, m.mover); err != nil {
			return err
		}
	}
	return nil
}
