package frontier

import (
	"maps"
	"sync"
)

// Found counts what discovery has found since the worker started.
type Found struct {
	Links      int64 // distinct links of each page, and URLs of sitemaps
	Added      int64 // of Links: new URLs
	OutOfScope int64 // of Links
	TooDeep    int64 // of Links, by a sitemap below the maximum depth
	Over       int64 // of Links: kept out by Limits.URLs
	OverHost   int64 // of Links: kept out by Limits.URLsPerHost
	NoFollow   int64 // links that asked not to be followed, and pages whose links did
	TooLong    int64 // links that are longer than a URL may be
	Sitemaps   int64 // that were read
	OverBudget int64 // URLs of hosts that have used up their budget
	// Cut counts the pages of which a limit has left out links, by the limit.
	Cut map[string]int64
}

// found counts under a lock.
type found struct {
	mu  sync.Mutex
	now Found
}

func (f *found) read() Found {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now
	now.Cut = maps.Clone(now.Cut)
	return now
}

func (f *found) add(change func(*Found)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.now)
}
