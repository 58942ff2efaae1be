package store

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"fetchd/frontier/normal"
)

func TestGroupOf(t *testing.T) {
	grouping := func(by string, exceptions ...string) Grouping {
		g, err := NewGrouping(by, exceptions)
		must(t, err)
		return g
	}
	domain, address := grouping(ByDomain, "alone.example", "b.shop.example"), grouping(ByAddress, "192.0.2.0/24", "2001:db8::1", "::ffff:198.51.100.7", "alone.example")
	for _, row := range []struct {
		name          string
		g             Grouping
		host, address string
		want          string
	}{
		{"a domain", domain, "www.a.example", "", "a.example"},
		{"the domain", domain, "a.example:8080", "", "a.example"},
		{"a domain below a country", domain, "www.a.co.uk", "", "a.co.uk"},
		{"a suffix that anyone may use", domain, "a.github.io", "", "a.github.io"},
		{"a suffix", domain, "co.uk", "", "co.uk"},
		{"one label", domain, "localhost:80", "", "localhost"},
		{"an address is its own domain", domain, "192.0.2.7:81", "", "192.0.2.7"},
		{"an exception", domain, "alone.example", "", ""},
		{"below an exception", domain, "www.alone.example:81", "", ""},
		{"an exception within a domain", domain, "x.b.shop.example", "", ""},
		{"next to an exception", domain, "xb.shop.example", "", "shop.example"},
		{"an address", address, "a.example", "203.0.113.7", "203.0.113.7"},
		{"an address that is not known", address, "a.example", "", ""},
		{"an address as a host", address, "203.0.113.7:81", "", "203.0.113.7"},
		{"IPv6 as a host", address, "[2001:db8::2]:81", "", "[2001:db8::2]"},
		{"IPv4 in IPv6", address, "[::ffff:cb00:7107]:81", "", "203.0.113.7"},
		{"IPv4 in IPv6 by domain", domain, "[::ffff:cb00:7107]:81", "", "203.0.113.7"},
		{"an excepted address, as IPv6", address, "a.example", "198.51.100.7", ""},
		{"an excepted network", address, "a.example", "192.0.2.7", ""},
		{"an excepted address", address, "a.example", "[2001:db8::1]", ""},
		{"an excepted name", address, "www.alone.example", "203.0.113.7", ""},
		{"no grouping", Grouping{}, "a.example", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := row.g.of(row.host, row.address); got != row.want {
				t.Errorf("group of %s at %s = %q, want %q", row.host, row.address, got, row.want)
			}
		})
	}
	for _, wrong := range []string{"", "a b", "*.a.example", "=", "a.example/x", "a.example:81", "http://a.example", "192.0.2.0/33", "192.0.2.300"} {
		if g, err := NewGrouping(ByDomain, []string{wrong}); err == nil {
			t.Errorf("exception %q = %+v, want an error", wrong, g)
		}
	}
	if _, err := NewGrouping("port", nil); err == nil {
		t.Error("NewGrouping accepts another kind")
	}
}

// grouped opens the frontier of f again, with groups and a delay.
func (f *fixture) grouped(by string, delay time.Duration) *fixture {
	f.t.Helper()
	g, err := NewGrouping(by, nil)
	must(f.t, err)
	s, err := Open(f.t.Context(), f.dsn, Config{Delay: delay, Groups: g})
	must(f.t, err)
	f.t.Cleanup(func() { s.Close() })
	return &fixture{Store: s, t: f.t, dsn: f.dsn}
}

// turns fails the test unless so many fetches have a turn.
func (f *fixture) turns(n int64) {
	f.t.Helper()
	if got := f.number(`SELECT count(*) FROM turns`); got != n {
		f.t.Errorf("%d turns, want %d", got, n)
	}
}

// opens returns in how long a group opens.
func (f *fixture) opens(group string) time.Duration {
	f.t.Helper()
	return time.Duration(f.number(`SELECT COALESCE(max(next_at), 0) - {now} FROM host_groups WHERE name = '`+group+`'`)) * time.Millisecond
}

// TestTurns checks that a claim takes a turn of its group, and that each end of it opens the group: with the delay if a
// request was sent.
func TestTurns(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		for _, row := range []struct {
			name string
			end  func(f *fixture, c Claim) error
			sent bool
		}{
			{"recorded", func(f *fixture, c Claim) error {
				return f.record(Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token, HTTPStatus: 200, Attempts: 1}, Status: Fetched})
			}, true},
			{"recorded without a request", func(f *fixture, c Claim) error {
				return f.record(Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token}, Status: Dead, ErrorClass: "robots_disallowed"})
			}, false},
			{"released", func(f *fixture, c Claim) error { _, err := f.Release(t.Context(), []Lease{c.Lease}); return err }, false},
			{"abandoned", func(f *fixture, c Claim) error { _, err := f.Abandon(t.Context(), []Lease{c.Lease}); return err }, true},
			{"left", func(f *fixture, c Claim) error { _, err := f.LeaveHosts(t.Context(), []Lease{c.Lease}); return err }, true},
			{"expired", func(f *fixture, _ Claim) error {
				_, err := f.Store.db.Update(t.Context(), "expire", `UPDATE turns SET ends_at = {now}`)
				return err
			}, true},
		} {
			t.Run(row.name, func(t *testing.T) {
				f := f.in(t).grouped(ByDomain, time.Hour)
				f.exec(`DELETE FROM fetches`)
				f.exec(`DELETE FROM urls`)
				f.exec(`DELETE FROM hosts`)
				f.exec(`DELETE FROM turns`)
				f.exec(`DELETE FROM host_groups`)
				f.put("http://a.one.example/", "http://b.one.example/", "http://a.two.example/")
				claims := f.claim(2)
				f.turns(2)
				f.openHosts()
				f.claim(0)
				for _, c := range claims {
					must(t, row.end(f, c))
				}
				f.exec(`UPDATE hosts SET next_at = 0, due_at = 0, turn_at = 1 WHERE host = 'b.one.example'`)
				want := 1
				if row.sent {
					want = 0
				}
				if got := slices.DeleteFunc(f.claimAll(), func(c Claim) bool { return c.Host != "b.one.example" }); len(got) != want {
					t.Errorf("claimed %v, want %d URLs of the group", got, want)
				}
				if left := f.opens("one.example"); row.sent != (left > 50*time.Minute) {
					t.Errorf("the group opens in %v", left)
				}
			})
		}
	})
}

func (f *fixture) claimAll() []Claim {
	f.t.Helper()
	claims, err := f.Claim(f.t.Context(), ClaimParams{Limit: 100})
	must(f.t, err)
	return claims
}

// TestPromises checks who gets a turn of a group, and when the others may ask again.
func TestPromises(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		const delay = 10 * time.Second
		f = f.grouped(ByDomain, delay)
		next := int64(0)
		ask := func(asks ...turnAsk) []turnWait {
			t.Helper()
			for i := range asks {
				next++
				asks[i].Lease, asks[i].Group, asks[i].Host, asks[i].LeaseMS = Lease{ID: next, Token: 1}, "one.example", fmt.Sprint(next), 60_000
			}
			waits, err := f.kind.takeTurns(t.Context(), asks)
			must(t, err)
			slices.SortFunc(waits, func(a, b turnWait) int { return cmp.Compare(a.ID, b.ID) })
			return waits
		}
		check := func(what string, got []turnWait, promised bool, want ...time.Duration) {
			t.Helper()
			for i, w := range got {
				wait := time.Duration(w.WaitMS) * time.Millisecond
				if off := wait - want[i]; off.Abs() > 5*time.Second || w.Promised != (promised && want[i] > 0) || (wait == 0) != (want[i] == 0) {
					t.Errorf("%s: number %d waits %v, promised %v, want about %v, %v", what, i+1, wait, w.Promised, want[i], promised)
				}
			}
		}
		first := func(waited time.Duration) turnAsk { return turnAsk{First: true, WaitedMS: waited.Milliseconds()} }
		check("the first asks", ask(turnAsk{}, turnAsk{}, turnAsk{}), true, 0, delay, 2*delay)
		check("a later one", ask(turnAsk{}), true, 3*delay)
		busy := ask(first(time.Second), turnAsk{}, first(2*time.Second))
		check("one that comes first, while another has the turn", busy[:1], false, 2*delay)
		check("another one", busy[1:2], true, 4*delay)
		check("one that has waited longer", busy[2:], false, delay)
		must(t, f.kind.endTurns(t.Context(), []turnEnd{{Lease: Lease{ID: 1, Token: 1}}}))
		check("the group is open, but promised", ask(turnAsk{}), true, 5*delay)
		check("those that come first", ask(first(0), first(time.Second)), false, delay, 0)
		f.exec(`UPDATE host_groups SET promised_at = {now} - 100, next_at = {now} + 30000`)
		f.exec(`DELETE FROM turns`)
		check("the delay of the group is longer than that of the host", ask(turnAsk{}), true, 30*time.Second)
		f.exec(`UPDATE host_groups SET promised_at = {now} + 295000`)
		for _, w := range ask(turnAsk{}, turnAsk{}) {
			if wait := time.Duration(w.WaitMS) * time.Millisecond; w.Promised || wait < promisedAhead/2 || wait > promisedAhead {
				t.Errorf("one more than can be promised: %v, %v", wait, w.Promised)
			}
		}
	})
}

// TestManyInGroup checks the settings of a group, and that a claim asks for other groups when one is busy.
func TestManyInGroup(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f = f.grouped(ByDomain, time.Hour)
		three, none := 3, time.Duration(0)
		must(t, f.SetGroup(t.Context(), "one.example", HostParams{MaxInFlight: &three, Delay: &none}))
		var urls []string
		for i := range 40 {
			urls = append(urls, fmt.Sprintf("http://h%d.one.example/", i))
		}
		f.put(append(urls, "http://two.example/")...)
		var got []string
		for range 3 {
			claims, err := f.Claim(t.Context(), ClaimParams{Limit: 10})
			must(t, err)
			for _, c := range claims {
				got = append(got, normal.Domain(c.Host))
				if c.Host == "two.example" {
					f.fetched(c)
				}
			}
		}
		slices.Sort(got)
		if want := []string{"one.example", "one.example", "one.example", "two.example"}; !slices.Equal(got, want) {
			t.Errorf("claimed of %v, want %v", got, want)
		}
		f.turns(3)
		wait := -time.Second
		must(t, f.SetGroup(t.Context(), "one.example", HostParams{Delay: &wait}))
		if n := f.number(`SELECT count(*) FROM host_groups WHERE delay_ms IS NULL`); n != 2 {
			t.Errorf("%d groups have the delay of the crawl, want 2", n)
		}
	})
}

// refused fails the test if the host is reserved.
func (f *fixture) refused(host string) {
	f.t.Helper()
	if r := f.reserve(host, time.Minute); r.Granted() {
		f.t.Errorf("Reserve(%s) = %+v, want it refused", host, r)
	}
}

// TestManyOfHost checks that a host with many fetches at a time gets one turn after the other, and leaves turns to others.
func TestManyOfHost(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f = f.grouped(ByDomain, 10*time.Second)
		var urls []string
		for i := range 50 {
			urls = append(urls, fmt.Sprintf("http://a.one.example/%d", i))
		}
		f.put(urls...)
		many := 40
		must(t, f.SetHost(t.Context(), "a.one.example", HostParams{MaxInFlight: &many}))
		f.claim(1)
		for what, query := range map[string]string{"host": `SELECT turn_at - {now} FROM hosts`, "closed host": `SELECT next_at - {now} FROM hosts`, "group": `SELECT promised_at - {now} FROM host_groups`} {
			if n := f.number(query); n < 1_000 || n > 11_000 {
				t.Errorf("%s: %d ms, want the next turn", what, n)
			}
		}
		f.put("http://b.one.example/")
		f.claim(0)
		if n := f.number(`SELECT turn_at - {now} FROM hosts WHERE host = 'b.one.example'`); n < 11_000 || n > 21_000 {
			t.Errorf("the other host has its turn in %d ms, want the one after", n)
		}
	})
}

// TestGroupByAddress checks that hosts are in no group before their addresses are known, and share turns afterwards, also
// with redirects.
func TestGroupByAddress(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f = f.grouped(ByAddress, time.Hour)
		f.put("http://a.example/", "http://b.example/", "http://c.example/", "http://203.0.113.7/")
		for _, c := range f.claim(4) {
			if c.Address != "" {
				t.Errorf("%s has the address %s", c.Host, c.Address)
			}
			if c.Host != "203.0.113.7" && c.Host != "c.example" {
				must(t, f.SetAddress(t.Context(), c.Host, "203.0.113.7"))
			}
			if c.Host != "a.example" {
				_, err := f.Release(t.Context(), []Lease{c.Lease})
				must(t, err)
			}
		}
		f.turns(0)
		if left := f.opens("203.0.113.7"); left < 50*time.Minute {
			t.Errorf("the group opens in %v, want an hour after the last request", left)
		}
		if got := f.claimAll(); len(got) != 1 || got[0].Host != "c.example" {
			t.Errorf("claimed %v, want only the host without an address", got)
		}
		if r := f.reserve("b.example", time.Minute); r.Wait < 50*time.Minute {
			t.Errorf("Reserve = %+v, want a wait of an hour", r)
		}
		f.exec(`UPDATE host_groups SET next_at = 0`)
		f.openHosts()
		r := f.reserved("b.example", time.Minute)
		if r.Address != "203.0.113.7" {
			t.Errorf("Reserve = %+v, want the address", r)
		}
		f.turns(1)
		f.refused("203.0.113.7")
		f.settle(r)
		f.turns(0)
		if left := f.opens("203.0.113.7"); left < 50*time.Minute {
			t.Errorf("the group opens in %v, want an hour", left)
		}
		// A host that is closed keeps no turn of its group.
		f.exec(`UPDATE host_groups SET next_at = 0`)
		f.refused("b.example")
		f.turns(0)
		must(t, f.DelayHosts(t.Context(), []string{"b.example"}))
		if left := f.opens("203.0.113.7"); left < 50*time.Minute {
			t.Errorf("the group opens in %v after DelayHosts, want an hour", left)
		}
	})
}

// TestTurnsLast checks that a turn lasts as long as its lease, and that prune deletes groups that are not used.
func TestTurnsLast(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f = f.grouped(ByDomain, time.Hour)
		f.put("http://a.one.example/", "http://b.two.example/")
		one := f.claim(2)[0]
		f.exec(`UPDATE turns SET ends_at = {now} + 1000`)
		held, err := f.Extend(t.Context(), []Lease{one.Lease}, time.Hour)
		if err != nil || len(held) != 1 {
			t.Fatalf("Extend = %v, %v", held, err)
		}
		if n := f.number(`SELECT count(*) FROM turns WHERE ends_at > {now} + 3000000`); n != 1 {
			t.Errorf("%d turns last an hour, want 1", n)
		}
		f.exec(`DELETE FROM turns WHERE url_id <> ` + fmt.Sprint(one.ID))
		f.exec(`UPDATE host_groups SET promised_at = 0`)
		f.exec(`INSERT INTO turns (url_id, token, group_name, started_at, ends_at) VALUES (1, 7, 'two.example', 1, 2)`)
		_, err = f.Prune(t.Context(), PruneParams{Hosts: true}, nil)
		must(t, err)
		f.turns(1)
		if n := f.number(`SELECT count(*) FROM host_groups`); n != 1 {
			t.Errorf("%d groups are left, want the one with a turn", n)
		}
	})
}

// byAddress opens a frontier of some databases, with groups by address.
func byAddress(t *testing.T, databases int) (m *many, at func(number int) *fixture) {
	t.Helper()
	plain := openSeveral(t, databases)
	by, err := NewGrouping(ByAddress, nil)
	must(t, err)
	s, err := Open(t.Context(), plain.dsns[0], Config{Delay: time.Hour, Groups: by}, plain.dsns[1:]...)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	m = &many{fixture: &fixture{Store: s, t: t, dsn: plain.dsn}, dsns: plain.dsns}
	return m, func(number int) *fixture { return &fixture{Store: s.many.parts[number].Store, t: t} }
}

// addressIn returns an address whose group is in a database.
func (m *many) addressIn(number int) string {
	m.t.Helper()
	for i := range 256 {
		if address := fmt.Sprintf("203.0.113.%d", i); m.many.numberOf(address) == number {
			return address
		}
	}
	m.t.Fatalf("no address is in database %d", number)
	return ""
}

// openGroups ends all delays of hosts and groups.
func (m *many) openGroups() {
	m.t.Helper()
	for _, p := range m.many.parts {
		f := &fixture{Store: p.Store, t: m.t}
		f.exec(`UPDATE host_groups SET next_at = 0, promised_at = 0`)
		f.exec(`UPDATE hosts SET next_at = 0, due_at = 0, turn_at = 0`)
	}
}

// putGroups puts a URL of a host in each of three databases, which are in a group in the fourth, and one of another group.
func (m *many) putGroups() {
	m.t.Helper()
	for number := range 3 {
		m.put("http://" + m.hostIn(number, 0) + "/")
		must(m.t, m.SetAddress(m.t.Context(), m.hostIn(number, 0), m.addressIn(3)))
	}
	m.put("http://"+m.hostIn(0, 1)+"/", "http://"+m.hostIn(0, 1)+"/2")
	must(m.t, m.SetAddress(m.t.Context(), m.hostIn(0, 1), m.addressIn(1)))
}

// TestGroupsOfMany checks turns of groups that are in other databases than their hosts.
func TestGroupsOfMany(t *testing.T) {
	t.Parallel()
	m, _ := byAddress(t, 4)
	m.putGroups()
	current := m.many.table.Load()
	old := *current
	old.Slots = slices.Clone(current.Slots)
	old.Slots[hostSlot(m.hostIn(0, 0))] = 1 // its row is not there
	m.many.table.Store(&old)
	if n := m.claimAll(); len(n) != 0 {
		t.Errorf("claimed %v while the groups are closed", n)
	}
	m.many.table.Store(current)
	m.openGroups()
	const turns = `SELECT count(*) FROM turns`
	claims := m.claimAll()
	if len(claims) != 2 || m.total(turns) != 2 {
		t.Fatalf("claimed %v with %d turns, want one URL of each group", claims, m.total(turns))
	}
	held, err := m.Extend(t.Context(), leasesOf(claims), 2*time.Hour)
	if n := m.total(turns + ` WHERE ends_at > {now} + 7000000`); err != nil || len(held) != 2 || n != 2 {
		t.Errorf("Extend = %v, %v, and %d turns are longer", held, err, n)
	}
	for _, c := range claims {
		m.fetched(c)
	}
	if n := m.total(turns); n != 0 {
		t.Errorf("%d turns are left", n)
	}
	if n := m.total(`SELECT count(*) FROM host_groups WHERE next_at > {now} + 3000000`); n != 2 {
		t.Errorf("%d groups are closed for an hour, want 2", n)
	}
}

// TestGroupsOneDown checks that a database that is down delays only its groups.
func TestGroupsOneDown(t *testing.T) {
	t.Parallel()
	m, at := byAddress(t, 4)
	m.putGroups()
	m.openGroups()
	down := m.many.parts[3]
	down.mu.Lock()
	down.failed = true
	down.mu.Unlock()
	claims := m.claimAll()
	if len(claims) != 1 || claims[0].Address != m.addressIn(1) {
		t.Fatalf("claimed %v, want only a URL of the other group", claims)
	}
	r, err := m.Reserve(t.Context(), m.hostIn(1, 0), time.Minute)
	if err != nil || r.Granted() || r.Wait != groupAway {
		t.Errorf("Reserve = %+v, %v, want a short wait", r, err)
	}
	if held, err := m.Extend(t.Context(), leasesOf(claims), time.Hour); err != nil || len(held) != 1 {
		t.Errorf("Extend = %v, %v, want the lease in a database that answers", held, err)
	}
	at(1).exec(`UPDATE hosts SET next_at = 0`)
	must(t, m.DelayHosts(t.Context(), []string{m.hostIn(1, 0)}))
	if n := at(1).number(`SELECT min(next_at) - {now} FROM hosts`); n < 3_000_000 {
		t.Errorf("the host opens in %d ms, want an hour", n)
	}
	m.fetched(claims[0])
}

// TestMoveGroups checks that a group moves with its slot, with its settings and with who has a turn of it.
func TestMoveGroups(t *testing.T) {
	t.Parallel()
	m, at := byAddress(t, 2)
	const group = "203.0.113.7"
	from := m.many.numberOf(group)
	m.put("http://one.test/", "http://two.test/")
	for _, host := range []string{"one.test", "two.test"} {
		must(t, m.SetAddress(t.Context(), host, group))
	}
	at(from).exec(`UPDATE host_groups SET next_at = 0`)
	five := 5 * time.Hour
	must(t, m.SetGroup(t.Context(), group, HostParams{Delay: &five}))
	claims := m.claimAll()
	if len(claims) != 1 {
		t.Fatalf("claimed %v, want one URL of the group", claims)
	}
	must(t, m.again().MoveSlots(t.Context(), []int{hostSlot(group)}, 1-from, nil))
	must(t, m.many.refresh(t.Context()))
	if n := at(from).number(`SELECT count(*) FROM host_groups`) + at(from).number(`SELECT count(*) FROM turns`); n != 0 {
		t.Errorf("%d rows are left where the group was", n)
	}
	if n := at(1 - from).number(`SELECT count(*) FROM turns`); n != 1 {
		t.Errorf("%d turns have moved, want 1", n)
	}
	m.refused(map[string]string{"one.test": "two.test", "two.test": "one.test"}[claims[0].Host])
	m.fetched(claims[0])
	if left := at(1 - from).opens(group); left < 4*time.Hour {
		t.Errorf("the group opens in %v, want its five hours", left)
	}
}
