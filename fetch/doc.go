// Package fetch carries out one fetch: a URL, a policy, attempts with their
// redirects and bodies, and one [Outcome].
//
// It obeys docs/spec.md. What an attempt means and what follows is decided by
// package classify and nowhere else; here it is carried out. The retry loop is
// go-retryablehttp's, under a CheckRetry and a Backoff that pass on what
// classify decided; nothing else waits between attempts or sends one.
//
// The order of calls: [New] once per process, then for each fetch [NewRequest],
// change what the caller asked for, and [Client.Fetch]. Events go to the [Sink]
// as they happen, from the goroutine that called Fetch. [Client.Close] ends the
// idle connections.
//
// All state of a fetch lives in one value that dies with it. Fetches share
// connections and the hold-back budget, and nothing else (spec W6).
//
// What the package does not do: decide when a URL may be fetched, pace hosts,
// cache, or speak gRPC.
package fetch
