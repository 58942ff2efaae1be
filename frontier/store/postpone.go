package store

import (
	"context"
	"time"
)

// Postpone implements [Store]. It leaves due_at, which may be early.
func (c *core) Postpone(ctx context.Context, released []Lease, d time.Duration) error {
	ids := make([]int64, len(released))
	for i, l := range released {
		ids[i] = l.ID
	}
	list, err := toJSON(ids)
	if err != nil {
		return err
	}
	// A URL may have been claimed since, and may have failed. Then it keeps a later time.
	_, err = c.db.Update(ctx, "postpone URLs", `UPDATE urls SET ready_at = {max}(ready_at, {now} + ?) WHERE status IN ('pending', 'failed') AND id {ids}`, millis(d), list)
	return err
}
