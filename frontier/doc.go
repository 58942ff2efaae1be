// Package frontier is the scheduler's worker: it decides when a URL is fetched. A fetchd decides
// how.
//
// A [Worker] claims URLs of hosts that are due from a [store.Store], checks robots.txt, sends each
// URL to a fetchd over FetchMany, stores the body, and records the outcome once. The service
// receives a URL and policies. It learns nothing about the frontier: no priority, delay, lease or
// name of a crawl.
//
// The rules of politeness:
//
//   - A host has one fetch at a time. It opens again when the fetch has been recorded and the
//     host's delay has passed.
//   - fetchd does not follow a redirect to another origin. The worker waits until the new host is
//     open, reserves it, and sends the next request itself.
//   - A robots.txt is a fetch like any other and takes a turn of its host.
//   - 429 and 503 close a host for as long as it asks, or for a minute that doubles.
//
// docs/frontier.md has the complete rules.
package frontier
