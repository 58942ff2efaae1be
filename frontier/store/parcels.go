package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// parcel is what waits in one database for others that cannot be reached: URLs to put, or final URLs of redirects. It is
// delivered again if a worker ends between the delivery and the deletion, and does nothing then.
type parcel struct {
	Entries  []normalised `json:"entries,omitempty"`
	Limits   Limits       `json:"limits,omitzero"`
	Arrivals []arrival    `json:"arrivals,omitempty"`
}

// arrival is the final URL of a redirect from another database, and what frontier_arrive stores with it.
type arrival struct {
	item
	place
}

// place is what a row that arrives takes over from the row with the redirect.
type place struct {
	Kind     Kind   `json:"kind,omitempty"`
	Priority int    `json:"priority,omitempty"`
	Depth    int    `json:"depth,omitempty"`
	Parent   int64  `json:"parent,omitempty"`
	Metadata string `json:"metadata,omitempty"`
}

const (
	// maxParcels limits the length of all parcels in a database, in bytes. A database that is down for long then stops the
	// pages with links into it.
	maxParcels = 1 << 30
	// parcelBytes limits one.
	parcelBytes = 1 << 20
	// sendAtOnce is how many are read at once.
	sendAtOnce = 16
	// sendTime is how long the delivery of one may take. Those for the same database wait for the next time then.
	sendTime = 5 * time.Second
	// stuckAfter is how long a parcel may be refused, before it no longer keeps a crawl from ending.
	stuckAfter = 10 * time.Minute
)

// keep stores a parcel in a database that can be reached, and is not the one with this number.
func (m *shards) keep(ctx context.Context, not int, one parcel) error {
	body, err := json.Marshal(one)
	if err != nil {
		return err
	}
	if half := len(one.Entries) / 2; len(body) > parcelBytes && half > 0 {
		return errors.Join(m.keep(ctx, not, parcel{Entries: one.Entries[:half], Limits: one.Limits}),
			m.keep(ctx, not, parcel{Entries: one.Entries[half:], Limits: one.Limits}))
	}
	err = fmt.Errorf("keep what belongs into another database: %w", ErrUnreachable)
	for i := range m.parts {
		p := m.parts[(not+1+i)%len(m.parts)]
		if p.number == not {
			continue
		}
		kept := int64(0)
		failed := p.do(ctx, true, func(ctx context.Context) (err error) {
			kept, err = p.db.Update(ctx, "keep URLs for another database", `WITH room AS (UPDATE settings SET value = value::bigint + ? WHERE name = 'parcel_bytes' AND value::bigint + ? <= ? RETURNING name)
				INSERT INTO parcels (body) SELECT ? FROM room`, len(body), len(body), maxParcels, string(body))
			return err
		})
		switch {
		case failed == nil && kept == 1:
			return nil
		case failed == nil:
			failed = fmt.Errorf("database %d has more than %d bytes for others already", p.number, maxParcels)
		}
		err = errors.Join(err, failed)
	}
	return err
}

// sendFrom delivers the parcels in one database whose databases can be reached. A parcel that cannot be delivered does
// not stop those after it.
func (m *shards) sendFrom(ctx context.Context, p *part) error {
	type row struct {
		id   int64
		body string
	}
	var errs []error
	slow := map[int]bool{}
	for after := int64(0); ; {
		rows, err := p.db.Query(ctx, `SELECT id, body FROM parcels WHERE id > ? ORDER BY id LIMIT ?`, after, sendAtOnce)
		some, err := collect(rows, err, func(r *row) []any { return []any{&r.id, &r.body} })
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("read what waits for other databases: %w", err))...)
		}
		for _, r := range some {
			after = r.id
			err := m.send(ctx, p, r.id, r.body, slow)
			if err != nil && len(errs) < sendAtOnce {
				errs = append(errs, fmt.Errorf("deliver parcel %d: %w", r.id, err))
			}
		}
		if len(some) < sendAtOnce || ctx.Err() != nil {
			return errors.Join(errs...)
		}
	}
}

// send delivers a parcel, unless one of its databases is slow. It returns an error when the parcel is stuck.
func (m *shards) send(ctx context.Context, p *part, id int64, body string, slow map[int]bool) error {
	var one parcel
	failed := json.Unmarshal([]byte(body), &one)
	numbers := m.numbers(one)
	if slices.ContainsFunc(numbers, func(number int) bool { return slow[number] }) {
		return nil
	}
	if failed == nil {
		limited, cancel := context.WithTimeout(ctx, sendTime)
		failed = m.deliver(limited, one)
		late := limited.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil || errors.Is(failed, ErrUnreachable):
			return nil
		case failed != nil && late:
			for _, number := range numbers {
				slow[number] = true
			}
			return nil
		}
	}
	if failed == nil {
		_, err := p.db.Update(ctx, "delete what was delivered", `WITH gone AS (DELETE FROM parcels WHERE id = ? RETURNING octet_length(body) AS n)
			UPDATE settings SET value = GREATEST(0, value::bigint - n) FROM gone WHERE name = 'parcel_bytes'`, id)
		return err
	}
	stuck, err := p.db.Update(ctx, "keep that a parcel was refused", `UPDATE parcels SET stuck = failed_at BETWEEN 1 AND {now} - ?, failed_at = CASE failed_at WHEN 0 THEN {now} ELSE failed_at END
		WHERE id = ? AND NOT stuck AND NOT failed_at > {now} - ?`, millis(stuckAfter), id, millis(stuckAfter))
	if err != nil || stuck == 0 {
		return err
	}
	now, err := p.db.Bool(ctx, "read a parcel", `SELECT COALESCE((SELECT stuck FROM parcels WHERE id = ?), FALSE)`, id)
	if err != nil || !now {
		return err
	}
	return fmt.Errorf("it stays, and \"frontier shards list\" counts it: %w", failed)
}

// numbers returns the databases that a parcel is for.
func (m *shards) numbers(one parcel) (numbers []int) {
	for _, e := range one.Entries {
		numbers = append(numbers, m.numberOf(e.Host))
	}
	for _, a := range one.Arrivals {
		numbers = append(numbers, m.numberOf(a.FinalHost))
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

func (m *shards) deliver(ctx context.Context, one parcel) error {
	if _, err := m.put(ctx, one.Entries, one.Limits, false); err != nil {
		return err
	}
	return m.add(ctx, one.Arrivals)
}

// add stores arrivals in their databases.
func (m *shards) add(ctx context.Context, arrivals []arrival) error {
	return inGroups(m, group(arrivals, func(a arrival) int { return m.numberOf(a.FinalHost) }), func(p *part, some []arrival) error {
		if moving(m, some, func(a arrival) string { return a.FinalHost }) {
			return ErrUnreachable
		}
		return p.do(ctx, true, func(ctx context.Context) error {
			list, err := toJSON(some)
			if err == nil {
				_, err = p.db.ExecContext(ctx, `SELECT frontier_arrive($1)`, list)
			}
			if err != nil {
				return fmt.Errorf("add the final URLs of redirects: %w", err)
			}
			return nil
		})
	})
}

// elsewhere reports whether a host belongs into another database, or moves.
func (m *shards) elsewhere(p *part, host string) bool {
	return m.numberOf(host) != p.number || moving(m, []string{host}, func(host string) string { return host })
}

// arrive adds the final URLs that belong into other databases than the rows that were redirected, and takes them out of
// these: F3 says that a row keeps its URL if another row has the final one. If this ends here, the row is fetched again.
func (m *shards) arrive(ctx context.Context, p *part, fetches []item) error {
	var ids []int64
	for i := range fetches {
		if fetches[i].FinalHash != "" && m.elsewhere(p, fetches[i].FinalHost) {
			ids = append(ids, fetches[i].ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	list, err := toJSON(ids)
	if err != nil {
		return err
	}
	type row struct {
		id, token int64
		url       string
		place
	}
	rows, err := p.db.Query(ctx, `SELECT id, token, url, kind, priority, depth, parent_id, metadata FROM urls WHERE id {ids} AND status = 'fetching'`, list)
	all, err := collect(rows, err, func(r *row) []any {
		return []any{&r.id, &r.token, &r.url, &r.Kind, &r.Priority, &r.Depth, &r.Parent, &r.Metadata}
	})
	if err != nil {
		return fmt.Errorf("read the rows of redirects: %w", err)
	}
	held := make(map[Lease]row, len(all))
	for _, r := range all {
		held[Lease{ID: r.id, Token: r.token}] = r
	}
	var arrivals []arrival
	for i := range fetches {
		it := &fetches[i]
		if it.FinalHash == "" || !m.elsewhere(p, it.FinalHost) {
			continue
		}
		from, ok := held[Lease{ID: it.ID, Token: it.Token}]
		if from.url == it.FinalURL { // no redirect
			continue
		}
		if ok {
			arrivals = append(arrivals, arrival{*it, from.place})
		}
		it.FinalHash, it.FinalHost = "", ""
	}
	err = m.add(ctx, arrivals)
	if errors.Is(err, ErrUnreachable) && ctx.Err() == nil {
		err = m.keep(ctx, -1, parcel{Arrivals: arrivals})
	}
	return err
}
