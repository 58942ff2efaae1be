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
	return newFixture(f.t, s, f.dsn)
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
				_, err := f.base().db.Update(t.Context(), "expire", `UPDATE turns SET ends_at = {now}`)
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
			waits, err := f.takeTurns(t.Context(), asks)
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
		must(t, f.endTurns(t.Context(), []turnEnd{{Lease: Lease{ID: 1, Token: 1}}}))
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
