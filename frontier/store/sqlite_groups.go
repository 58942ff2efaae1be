package store

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// turnGroup is a row of host_groups, while turns are given.
type turnGroup struct {
	name                   string
	now, next, promised    int64
	pause, step, max, used int64
	ends                   int64 // when the first of those that have a turn is expected to end
	behind                 int64 // how many of those that come first wait
}

// takeTurns implements engine, as frontier_take_turns does.
func (s *sqliteDB) takeTurns(ctx context.Context, asks []turnAsk) (waits []turnWait, err error) {
	asks = slices.Clone(asks)
	late := map[bool]int{false: 1}
	slices.SortStableFunc(asks, func(a, b turnAsk) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(late[a.First], late[b.First]), cmp.Compare(b.WaitedMS, a.WaitedMS), cmp.Compare(a.Host, b.Host))
	})
	err = s.do(ctx, "take turns of groups", func(t tx) error {
		waits = waits[:0]
		var g turnGroup
		for i, a := range asks {
			if a.Group != g.name {
				if g, err = t.group(a.Group); err != nil {
					return err
				}
			}
			var before turnWait
			if i > 0 {
				before = waits[i-1]
			}
			w := g.answer(a, i > 0 && asks[i-1].Host == a.Host, before)
			if w.WaitMS == 0 {
				_, err := t.Exec(`INSERT INTO turns (url_id, token, group_name, started_at, ends_at) VALUES (?, ?, ?, ?, ?)`, a.ID, a.Token, a.Group, g.now, g.now+a.LeaseMS)
				if err != nil {
					return err
				}
			}
			if waits = append(waits, w); i+1 == len(asks) || asks[i+1].Group != a.Group {
				if _, err := t.Exec(`UPDATE host_groups SET next_at = ?, promised_at = ? WHERE name = ?`, g.next, g.promised, g.name); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return waits, nil
}

// group reads a group, adds it if it is missing, and ends turns whose leases have expired.
func (t tx) group(name string) (g turnGroup, err error) {
	if _, err := t.Exec(`INSERT INTO host_groups (name) VALUES (?) ON CONFLICT DO NOTHING`, name); err != nil {
		return g, err
	}
	var fetch, ended int64
	_, err = t.One(`SELECT name, {now}, next_at, promised_at, fetch_ms, COALESCE(delay_ms, ?2) + 1, max_in_flight,
			COALESCE((SELECT max(ends_at) FROM turns WHERE group_name = ?1 AND ends_at <= {now}), 0), (SELECT count(*) FROM turns WHERE group_name = ?1 AND ends_at > {now}),
			fetch_ms + COALESCE((SELECT min(started_at) FROM turns WHERE group_name = ?1 AND ends_at > {now}), {now})
		FROM host_groups WHERE name = ?1`, []any{name, t.delayMS}, &g.name, &g.now, &g.next, &g.promised, &fetch, &g.pause, &g.max, &ended, &g.used, &g.ends)
	if err != nil {
		return g, err
	}
	g.step = (g.pause+fetch)/g.max + 1
	if ended > 0 {
		g.next = max(g.next, ended+g.pause)
		_, err = t.Exec(`DELETE FROM turns WHERE group_name = ? AND ends_at <= ?`, name, g.now)
	}
	return g, err
}

// answer gives a turn, or says when to ask again. The answer before may be to another claim of the same host.
func (g *turnGroup) answer(a turnAsk, same bool, before turnWait) turnWait {
	w := turnWait{Lease: a.Lease}
	if g.used < g.max && g.next <= g.now && (a.First || g.promised <= g.now) {
		g.used++
		g.promised = max(g.promised, g.now)
		return w
	}
	if same && before.WaitMS > 0 {
		w.WaitMS, w.Promised = before.WaitMS, before.Promised
		return w
	}
	ahead, opens := promisedAhead.Milliseconds(), max(g.next, g.now+1)
	if g.used >= g.max {
		opens = max(opens, max(g.ends, g.now)+g.pause)
	}
	switch last := max(opens, g.promised+g.step); {
	case a.First:
		w.WaitMS = opens - g.now + g.behind*g.step
		g.behind++
	case last <= g.now+ahead:
		g.promised, w.WaitMS, w.Promised = last, last-g.now, true
	default:
		w.WaitMS = ahead/2 + rand.Int64N(ahead/2)
	}
	return w
}

// endTurns implements engine.
func (s *sqliteDB) endTurns(ctx context.Context, ends []turnEnd) error {
	return s.do(ctx, "end turns of groups", func(t tx) error {
		for _, e := range ends {
			var name string
			var ms int64
			held, err := t.One(`DELETE FROM turns WHERE url_id = ? AND token = ? RETURNING group_name, {now} - started_at`, []any{e.ID, e.Token}, &name, &ms)
			if err == nil && held && e.Sent {
				_, err = t.Exec(`UPDATE host_groups SET next_at = max(next_at, {now} + 1 + COALESCE(delay_ms, ?)),
					fetch_ms = CASE WHEN fetch_ms = 0 THEN ? ELSE (7 * fetch_ms + ?) / 8 END WHERE name = ?`, t.delayMS, ms, ms, name)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// extendTurns implements engine.
func (s *sqliteDB) extendTurns(ctx context.Context, leases []Lease, d time.Duration) error {
	return s.do(ctx, "extend turns of groups", func(t tx) error {
		for _, l := range leases {
			if _, err := t.Exec(`UPDATE turns SET ends_at = max(ends_at, {now} + ?) WHERE url_id = ? AND token = ?`, millis(d), l.ID, l.Token); err != nil {
				return err
			}
		}
		return nil
	})
}

// lineUp implements engine.
func (s *sqliteDB) lineUp(ctx context.Context, waits []turnWait) error {
	return s.do(ctx, "have hosts wait for their groups", func(t tx) error {
		for _, w := range waits {
			set := `turn_at = 0`
			if w.WaitMS > 0 {
				set = `next_at = max(next_at, {now} + ?2)`
			}
			switch {
			case w.Promised:
				set += `, turn_at = {now} + ?2`
			case w.WaitMS > 0: // one whose turn has come stays first
				set += `, turn_at = CASE WHEN turn_at > 0 AND turn_at <= {now} THEN turn_at ELSE -{now} - ?2 END`
			}
			_, err := t.Exec(`UPDATE hosts SET `+set+` WHERE id = (SELECT host_id FROM urls WHERE id = ?1) AND ?2 >= 0`, w.ID, w.WaitMS)
			if err == nil && w.WaitMS > 0 {
				_, err = t.end(tx.free, released, w.ID, w.Token)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
