// Package store keeps the frontier: the URLs of a crawl, their outcomes, and when each host may be
// fetched from again. The table of URLs is the queue.
//
// [Open] opens a SQLite or PostgreSQL database and migrates its schema. [Store.Put] adds URLs. A
// worker then repeats four steps:
//
//  1. [Store.Claim] leases ready URLs of the hosts that are due: one of each, unless SetHost or
//     [ClaimParams].Ahead allows more. [Store.GoOn] permits those behind the first.
//  2. [Store.Extend] extends the lease while the fetch makes progress. [Store.DelayHosts] reports
//     requests to other hosts, and [Store.Block] a host that asked for a pause. To follow a
//     redirect to another host, the worker gets it from [Store.Reserve], returns it with
//     [Store.Settle], and releases its own host with [Store.LeaveHosts] before it waits.
//  3. [Store.RecordFetch] records the outcome, ends the lease, and opens the host after its delay.
//     [Store.Release] returns a lease that was not used, and [Store.Abandon] one whose fetch was
//     lost.
//  4. [Store.Reap], every few seconds, takes back the leases of workers that are gone.
//
// [Store.Recrawl], every few seconds, makes the URLs pending that are due to be fetched again.
//
// The store also keeps the robots.txt of origins; see [Robots].
//
// After a crash a fetch may run twice, but it is recorded once: every claim of a URL has a new
// token, and a record with an older token fails with [ErrStale]. A token contains the time, so it is
// not used again by a standby that takes over without the last claims.
//
// All times come from the database's clock, so the clocks of workers need not agree. Every
// operation locks rows of hosts before those of URLs, each in the order of their ids.
//
// The package fetches nothing, and does not decide whether a failure is worth a retry: the caller
// says so in each [Fetch].
package store
