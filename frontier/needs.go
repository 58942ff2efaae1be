package frontier

import (
	"context"
	"time"

	"fetchd/frontier/store"
)

// Store is what a worker calls of a [store.Store].
type Store interface {
	QueueStore
	HostStore
	RobotsStore
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
	Pause(ctx context.Context, host string) error
	HostUse(ctx context.Context, host string) (store.Use, error)
	TotalUse(ctx context.Context) (store.Use, error)
}

// RobotsStore has the robots.txt of origins, and what follows from them.
type RobotsStore interface {
	RobotsReader
	RobotsHeads(ctx context.Context, origins []string) (map[string]store.Robots, error)
	SaveRobots(ctx context.Context, r store.Robots) error
	RobotsToRefresh(ctx context.Context, after string) (origins []string, next string, err error)
	ForgetRobots(ctx context.Context, origins []string) (int64, error)
	SweepRobots(ctx context.Context, after string, age time.Duration) (next string, deleted int64, err error)
	Defer(ctx context.Context, origin string, d time.Duration) error
	SetHost(ctx context.Context, host string, params store.HostParams) error
}

// RobotsReader has the robots.txt of origins.
type RobotsReader interface {
	Robots(ctx context.Context, origins []string) (map[string]store.Robots, error)
}
