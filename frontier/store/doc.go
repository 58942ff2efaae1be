// Package store keeps the frontier: which URLs there are, what became of them,
// and when each host may be asked again. The table of URLs is the queue.
//
// [Open] opens a database, SQLite or PostgreSQL, and brings its schema up to
// date. [Store.Put] adds URLs. A worker then goes round in four steps:
//
//  1. [Store.Claim] takes one ready URL of each host that is due, under a lease;
//  2. [Store.Extend] lengthens the lease while the fetch makes progress;
//     [Store.Charge] and [Store.Block] tell what other hosts were touched and which
//     asked for a pause; a redirect to another host, which the worker follows itself,
//     has that host from [Store.Reserve] until [Store.Settle], and gives its own back
//     with [Store.Depart] before it waits;
//  3. [Store.RecordFetch] writes the outcome, ends the lease, and opens the host
//     again after its delay; a lease that was never used goes back with [Store.Release],
//     that of a fetch which was lost half way with [Store.Abandon];
//  4. [Store.Reap], now and then, takes back the leases of workers that are gone.
//
// The robots.txt of an origin is kept beside the URLs, see [Robots].
//
// A fetch may run twice, after a crash. It is recorded once: each claim of a URL
// has a token of its own, and a record with an older one is refused with [ErrStale].
//
// Every time is that of the database's clock, so the clocks of workers need not
// agree. Every operation locks the rows of hosts before those of URLs, each in
// the order of their ids.
//
// The package fetches nothing, and does not decide whether a failure is worth
// another try: its caller says so with each [Fetch].
package store
