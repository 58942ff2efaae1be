package api

import (
	"context"
	"time"

	"fetchd/frontier/store"
)

// Store is what the API calls of a [store.Store].
type Store interface {
	Put(ctx context.Context, entries []store.Entry, limits store.Limits) (store.PutResult, error)
	IDs(ctx context.Context, urls []string) (map[string]int64, error)
	Claim(ctx context.Context, params store.ClaimParams) ([]store.Claim, error)
	Left(ctx context.Context) (bool, error)
	Extend(ctx context.Context, leases []store.Lease, d time.Duration) ([]store.Lease, error)
	Release(ctx context.Context, leases []store.Lease) ([]store.Lease, error)
	Abandon(ctx context.Context, leases []store.Lease) ([]store.Lease, error)
	Postpone(ctx context.Context, released []store.Lease, d time.Duration) error
	RecordFetch(ctx context.Context, fetches []store.Fetch) ([]error, error)
	Reap(ctx context.Context) (int64, error)
	Recrawl(ctx context.Context) (int64, error)
	Block(ctx context.Context, host string, retryAfter time.Duration) error
	SetHost(ctx context.Context, host string, params store.HostParams) error
	Pause(ctx context.Context, host string) error
	Resume(ctx context.Context, host string) error
	Why(ctx context.Context, url string) (store.Explanation, error)
	Robots(ctx context.Context, origins []string) (map[string]store.Robots, error)
	Stats(ctx context.Context, hosts int) (store.Stats, error)
	LastFetch(ctx context.Context) (int64, error)
	FetchesAfter(ctx context.Context, after int64, limit int) ([]store.WatchedFetch, error)
}
