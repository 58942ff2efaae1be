// Package fetch runs fetches. A fetch takes a URL and a policy, makes attempts,
// which follow redirects and read bodies, and ends with one [Outcome].
//
// The package follows docs/spec.md. Package classify decides what an attempt means
// and what happens next; this package acts on it. go-retryablehttp provides the retry
// loop, with a CheckRetry and a Backoff that return what classify decided. Nothing
// else waits between attempts or starts one.
//
// The calls of one fetch are listed at the top of run.go, in the order of the code.
//
// A program calls [New] once. For each fetch it calls [NewRequest], sets fields, and
// calls [Client.Fetch], which passes events to the [Sink] as they happen. At the end
// the program calls [Client.Close].
//
// Fetches share connections and the memory budget, and no other state (spec W6).
//
// The package does not decide when a URL may be fetched, pace requests to hosts,
// cache, or speak gRPC.
package fetch
