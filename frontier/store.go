package frontier

import (
	"context"
	"time"

	"fetchd/frontier/rulebook"
	"fetchd/frontier/store"
)

// Store is what a worker calls of a [store.Store].
type Store interface {
	QueueStore
	HostStore
	rulebook.Store
	SweepRobots(ctx context.Context, after string, age time.Duration) (next string, deleted int64, err error)
	WorkerSeen(ctx context.Context, name string, started bool) error
	WorkerStopped(ctx context.Context, name string) error
}

// QueueStore has the URLs: from Put and Claim to the outcome.
type QueueStore interface {
	Put(ctx context.Context, entries []store.Entry, limits store.Limits) (store.PutResult, error)
	Claim(ctx context.Context, params store.ClaimParams) ([]store.Claim, error)
	Extend(ctx context.Context, leases []store.Lease, d time.Duration) ([]store.Lease, error)
	Release(ctx context.Context, leases []store.Lease) ([]store.Lease, error)
	Abandon(ctx context.Context, leases []store.Lease) ([]store.Lease, error)
	RecordFetch(ctx context.Context, fetches []store.Fetch) ([]error, error)
	Reap(ctx context.Context) (int64, error)
	Recrawl(ctx context.Context) (int64, error)
	Left(ctx context.Context) (bool, error)
	Due(ctx context.Context) (hosts int64, delay time.Duration, err error)
}

// HostStore has when hosts are open, and what they have used.
type HostStore interface {
	DelayHosts(ctx context.Context, hosts []string) error
	LeaveHosts(ctx context.Context, leases []store.Lease) ([]store.Lease, error)
	Reserve(ctx context.Context, host string, d time.Duration) (store.Reservation, error)
	Settle(ctx context.Context, r store.Reservation) error
	Block(ctx context.Context, host string, retryAfter time.Duration) error
	AbortHost(ctx context.Context, host, class, text string) (int64, error)
	Defer(ctx context.Context, origin string, d time.Duration) error
	Pause(ctx context.Context, host string) error
	HostUse(ctx context.Context, host string) (store.Use, error)
	TotalUse(ctx context.Context) (store.Use, error)
}
