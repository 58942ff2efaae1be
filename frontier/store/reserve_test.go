package store

import (
	"testing"
	"time"
)

func (f *fixture) reserve(host string, d time.Duration) Reservation {
	f.t.Helper()
	r, err := f.Reserve(f.t.Context(), host, d)
	if err != nil || r.Host != host || r.Granted() != (r.Wait == 0) {
		f.t.Fatalf("Reserve(%s) = %+v, %v", host, r, err)
	}
	return r
}

// reserved fails the test unless the host is granted.
func (f *fixture) reserved(host string, d time.Duration) Reservation {
	f.t.Helper()
	r := f.reserve(host, d)
	if !r.Granted() {
		f.t.Fatalf("Reserve(%s) = %+v, want it granted", host, r)
	}
	return r
}

func (f *fixture) settle(r Reservation) {
	f.t.Helper()
	must(f.t, f.Settle(f.t.Context(), r))
}

func TestReserve(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/")
		r := f.reserved("a.test", 5*time.Hour)
		f.claim(0)
		if again := f.reserve("a.test", time.Hour); again.Granted() || again.Wait != waitForRequest {
			t.Errorf("second Reserve = %+v, want to wait for the first", again)
		}
		f.reserved("b.test", time.Hour) // another host, new, is open
		f.wantNext("a.test", 5*time.Hour)
		f.settle(r)
		f.wantNext("a.test", time.Hour)
		f.openHosts()
		f.claim(1)
	})
}

func TestReserveIsRefused(t *testing.T) {
	rows := []struct {
		name string
		set  string
		want time.Duration
	}{
		{"open", `UPDATE hosts SET next_at = {now}, blocked_until = {now}`, 0},
		{"two may be in flight, one is", `UPDATE hosts SET max_in_flight = 2, in_flight = 1`, 0},
		{"in flight", `UPDATE hosts SET in_flight = 1`, waitForRequest},
		{"delay", `UPDATE hosts SET next_at = {now} + 7200000`, 2 * time.Hour},
		{"blocked", `UPDATE hosts SET blocked_until = {now} + 10800000`, 3 * time.Hour},
		{"the later counts", `UPDATE hosts SET in_flight = 1, next_at = {now} + 7200000, blocked_until = {now} + 10800000`, 3 * time.Hour},
		{"paused", `UPDATE hosts SET paused = TRUE`, waitForResume},
		{"paused and blocked", `UPDATE hosts SET paused = TRUE, blocked_until = {now} + 10800000`, 3 * time.Hour},
		{"the crawl is paused", `INSERT INTO settings (name, value) VALUES ('paused', 'true')`, waitForResume},
		{"the crawl is paused, the host unknown", `INSERT INTO settings SELECT 'paused', host FROM hosts`, waitForResume},
		{"reserved", `UPDATE hosts SET next_at = 9000000000000, reserved_until = 9000000000000`, waitForRequest},
		{"reserved, charged for longer", `UPDATE hosts SET next_at = {now} + 7200000, reserved_until = {now} + 3600000`, 2 * time.Hour},
	}
	onBoth(t, func(t *testing.T, f *fixture) {
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				f := f.in(t)
				f.exec(`DELETE FROM settings WHERE name = 'paused'`)
				f.exec(`DELETE FROM hosts`)
				f.exec(`INSERT INTO hosts (host) VALUES ('a.test')`)
				f.exec(row.set)
				host := "a.test"
				if row.name == "the crawl is paused, the host unknown" {
					host = "b.test"
				}
				before := f.number(`SELECT next_at FROM hosts`)
				r := f.reserve(host, time.Hour)
				got := r.Wait
				if got > time.Minute {
					got = got.Round(10 * time.Minute)
				}
				if got != row.want {
					t.Errorf("Reserve = %+v, want to wait %v", r, row.want)
				}
				if after := f.number(`SELECT next_at FROM hosts`); !r.Granted() && after != before {
					t.Errorf("next_at was %d, is %d: want it as it was", before, after)
				}
			})
		}
	})
}

func TestReserveForNoTime(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		for _, d := range []time.Duration{0, -time.Second} {
			if r, err := f.Reserve(t.Context(), "a.test", d); err == nil || r.Granted() {
				t.Errorf("Reserve for %v = %+v, %v, want an error", d, r, err)
			}
		}
	})
}

// If a worker is gone, its host stays closed only until the reservation ends.
func TestReservationEndsByItself(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/")
		r := f.reserved("a.test", time.Millisecond)
		for {
			claims, err := f.Claim(t.Context(), ClaimParams{})
			must(t, err)
			if len(claims) == 1 {
				break
			}
			pause(t, time.Millisecond)
		}
		if now := f.number(`SELECT {now}`); now < r.Until {
			t.Errorf("claimed at %d, want %d at least", now, r.Until)
		}
		// The request took longer than announced. It has ended now, and the claim is not affected.
		f.settle(r)
		if n := f.number(`SELECT in_flight FROM hosts`); n != 1 {
			t.Errorf("%d in flight, want 1", n)
		}
		if e := f.why("http://a.test/"); e.Host.NextAt.Sub(e.Now) < 50*time.Minute {
			t.Errorf("next at %v, now %v, want an hour", e.Host.NextAt, e.Now)
		}
	})
}

func TestSettle(t *testing.T) {
	rows := []struct {
		name     string
		meantime string
		want     time.Duration // until the host opens
	}{
		{"nothing happened", `UPDATE settings SET value = value`, time.Hour},
		{"a crawl delay was set", `UPDATE hosts SET crawl_delay_ms = 7200000`, 2 * time.Hour},
		{"a delay was set", `UPDATE hosts SET delay_ms = 0`, 0},
		{"charged for longer", `UPDATE hosts SET next_at = next_at + 3600000`, 6 * time.Hour},
		{"settled", `UPDATE hosts SET next_at = {now} + 10800000, reserved_until = 0`, 3 * time.Hour},
		{"settled, and charged to the same end", `UPDATE hosts SET reserved_until = 0`, 5 * time.Hour},
		{"reserved by another", `UPDATE hosts SET next_at = next_at + 3600000, reserved_until = next_at + 3600000`, 6 * time.Hour},
	}
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/")
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				f := f.in(t)
				f.exec(`UPDATE hosts SET due_at = 0, next_at = 0, reserved_until = 0, delay_ms = NULL, crawl_delay_ms = 0`)
				r := f.reserved("a.test", 5*time.Hour)
				f.exec(row.meantime)
				f.claim(0) // sees the closed host and postpones it
				f.settle(r)
				f.wantNext("a.test", row.want)
				f.settle(r)
				f.settle(Reservation{Host: "a.test", Wait: time.Second})
				f.wantNext("a.test", row.want)
			})
		}
	})
}

// A host that is not due stays so, and a blocked one stays blocked.
func TestSettleOfAHostThatIsNotDue(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.settle(f.reserved("a.test", 5*time.Hour))
		if n := f.number(`SELECT count(*) FROM hosts WHERE due_at IS NULL`); n != 1 {
			t.Errorf("a host with nothing to fetch is due, want it not to be")
		}
		f.put("http://b.test/")
		r := f.reserved("b.test", 5*time.Hour)
		must(t, f.Block(t.Context(), "b.test", 3*time.Hour))
		f.claim(0) // due after the reservation
		f.settle(r)
		if left := f.number(`SELECT due_at - {now} FROM hosts WHERE host = 'b.test'`); left < millis(2*time.Hour) || left > millis(4*time.Hour) {
			t.Errorf("due in %d ms, want the end of the block", left)
		}
	})
}
