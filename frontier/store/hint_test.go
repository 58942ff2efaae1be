package store

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// late counts the URLs that a claim could take now and whose hosts are not due.
const late = `SELECT count(*) FROM urls u JOIN hosts h ON h.id = u.host_id
	WHERE u.status IN ('pending', 'failed') AND u.ready_at <= {now} AND NOT h.paused AND h.in_flight < h.max_in_flight
		AND CASE WHEN u.url LIKE 'https:%' THEN h.https_deferred_until ELSE h.http_deferred_until END <= {now}
		AND h.next_at <= {now} AND h.blocked_until <= {now} AND COALESCE(h.due_at > {now}, TRUE)`

// walk does random operations on a few hosts.
type walk struct {
	*fixture
	*rand.Rand
	added  int
	claims []Claim
	held   []Reservation
}

func (w *walk) host() string { return fmt.Sprintf("h%d.test", w.IntN(4)) }

func (w *walk) origin() string { return []string{"http://", "https://"}[w.IntN(2)] + w.host() }

// take removes some of the claims.
func (w *walk) take() (some []Claim) {
	n := w.IntN(len(w.claims) + 1)
	some, w.claims = w.claims[:n], w.claims[n:]
	return some
}

func (w *walk) leases() (leases []Lease) {
	for _, c := range w.take() {
		leases = append(leases, c.Lease)
	}
	return leases
}

func (w *walk) put() error {
	limits := []Limits{{}, {}, {URLs: 200, URLsPerHost: 60}}[w.IntN(3)]
	var entries []Entry
	for range w.IntN(5) {
		w.added++
		entries = append(entries, Entry{URL: fmt.Sprintf("%s/%d", w.origin(), w.IntN(w.added)), Priority: w.IntN(3), Depth: w.IntN(3), Changed: time.Now()})
	}
	_, err := w.Put(w.t.Context(), entries, limits)
	return err
}

func (w *walk) record() error {
	var fetches []Fetch
	for _, c := range w.take() {
		f := Fetch{ID: c.ID, Status: []Status{Fetched, Failed, Dead}[w.IntN(3)], RetryIn: time.Duration(w.IntN(20)) * time.Millisecond,
			FetchedParams: FetchedParams{Token: c.Token, HTTPStatus: 200, Attempts: w.IntN(2), RecrawlIn: time.Duration(w.IntN(20)) * time.Millisecond}}
		if w.IntN(3) == 0 {
			f.FinalURL = fmt.Sprintf("%s/%d", w.origin(), w.IntN(w.added+1))
		}
		fetches = append(fetches, f)
	}
	_, err := w.RecordFetch(w.t.Context(), fetches)
	return err
}

func (w *walk) set() error {
	delay := time.Duration(w.IntN(4)) * time.Millisecond
	return w.SetHost(w.t.Context(), w.host(), HostParams{Delay: &delay, MaxInFlight: new(1 + w.IntN(4))})
}

func (w *walk) reserve() error {
	if len(w.held) > 0 && w.IntN(2) == 0 {
		r := w.held[0]
		w.held = w.held[1:]
		return w.Settle(w.t.Context(), r)
	}
	r, err := w.Reserve(w.t.Context(), w.host(), time.Duration(1+w.IntN(10))*time.Millisecond)
	w.held = append(w.held, r)
	return err
}

func (w *walk) deferSome() error {
	switch w.IntN(4) {
	case 0:
		return w.SaveRobots(w.t.Context(), Robots{Origin: w.origin(), Status: 404})
	case 1:
		_, err := w.RefreshRobots(w.t.Context(), []string{w.origin(), w.origin()})
		return err
	}
	return w.Defer(w.t.Context(), w.origin(), time.Duration(1+w.IntN(20))*time.Millisecond)
}

// step does one operation and returns its name.
func (w *walk) step() (string, error) {
	ctx := w.t.Context()
	var err error
	switch n := w.IntN(22); n {
	case 0, 1, 2:
		return "put", w.put()
	case 3, 4, 5, 6:
		var claims []Claim
		claims, err = w.Claim(ctx, ClaimParams{Limit: 1 + w.IntN(6)})
		w.claims = append(w.claims, claims...)
		return "claim", err
	case 7, 8, 9:
		return "record", w.record()
	case 10:
		_, err = w.Release(ctx, w.leases())
		return "release", err
	case 11:
		_, err = w.Abandon(ctx, w.leases())
		return "abandon", err
	case 12:
		_, err = w.LeaveHosts(ctx, w.leases())
		return "leave", err
	case 13:
		if _, err = w.base().db.Update(ctx, "expire", `UPDATE urls SET lease_until = 1 WHERE status = 'fetching' AND id = ?`, 1+w.IntN(w.added+1)); err == nil {
			_, err = w.Reap(ctx)
		}
		return "reap", err
	case 14:
		_, err = w.Recrawl(ctx)
		return "recrawl", err
	case 15:
		return "set", w.set()
	case 16:
		return "reserve", w.reserve()
	case 17:
		if w.IntN(2) == 0 {
			return "block", w.Block(ctx, w.host(), time.Duration(1+w.IntN(20))*time.Millisecond)
		}
		return "delay", w.DelayHosts(ctx, []string{w.host()})
	case 20, 21:
		return "defer", w.deferSome()
	case 18:
		if w.IntN(4) == 0 {
			return "pause", w.Pause(ctx, w.host())
		}
		return "resume", w.Resume(ctx, w.host())
	default:
		switch w.IntN(3) {
		case 0:
			_, err = w.RetryFailed(ctx, "", "", nil)
		case 1:
			_, err = w.Refetch(ctx, 0, w.host(), nil)
		default:
			_, err = w.AbortHost(ctx, w.host(), "x", "x")
		}
		return "again", err
	}
}

// wantSoundHosts fails the test if a host is not due although a claim could take one of its URLs, or if one of the
// numbers of a host is wrong.
func (f *fixture) wantSoundHosts(when string) {
	f.t.Helper()
	for what, query := range map[string]string{
		"URLs can be claimed and their hosts are not due": late,
		"hosts have another number of fetches in flight":  `SELECT count(*) FROM hosts h WHERE in_flight <> (SELECT count(*) FROM urls u WHERE u.host_id = h.id AND u.status = 'fetching' AND u.holds = 1)`,
		"hosts have too many fetches in flight":           `SELECT count(*) FROM hosts WHERE in_flight > 4`,
		"rows have a URL of another host":                 `SELECT count(*) FROM urls u JOIN hosts h ON h.id = u.host_id WHERE replace(u.url, 'https://', 'http://') NOT LIKE 'http://' || h.host || '/%'`,
	} {
		if got := f.number(query); got != 0 {
			f.t.Fatalf("%s: %d %s", when, got, what)
		}
	}
	f.wantURLCounts()
}

func newWalk(f *fixture, seed uint64) *walk {
	f.base().delayMS = 1
	return &walk{fixture: f, Rand: rand.New(rand.NewPCG(seed, 0))}
}

func TestHintIsNeverLate(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		seed := uint64(time.Now().UnixNano())
		w := newWalk(f, seed)
		for n := range 400 {
			name, err := w.step()
			when := fmt.Sprintf("seed %d, step %d, %s", seed, n, name)
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			f.wantSoundHosts(when)
		}
		if n := f.number(`SELECT count(*) FROM fetches`); n < 20 {
			t.Errorf("%d outcomes, want a walk that reaches most states", n)
		}
	})
}

// Operations at once neither make a hint late nor deadlock.
func TestHintIsNotLateAfterManyAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		check := serverLog(t)
		seed := uint64(time.Now().UnixNano())
		var wg sync.WaitGroup
		for n := range uint64(4) {
			w := newWalk(open(t, f.dsn), seed+n)
			wg.Go(func() {
				for range 300 {
					if name, err := w.step(); err != nil {
						t.Errorf("seed %d: %s: %v", seed, name, err)
						return
					}
				}
			})
		}
		wg.Wait()
		f.wantSoundHosts(fmt.Sprintf("seed %d", seed))
		check()
	})
}
