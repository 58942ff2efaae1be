// Package frontier is the scheduler's worker: it decides when a URL is fetched,
// and has fetchd decide how.
//
// A [Worker] claims URLs of hosts that are due from a [store.Store], asks
// robots.txt, hands each to a fetchd over FetchMany, keeps the body, and records
// the outcome once. The service sees a URL and policies, and nothing of the
// frontier: no priority, delay, lease or name of a crawl.
//
// What is polite, in one place:
//
//   - one host has one fetch at a time, and opens again when the fetch has been
//     recorded and the host's delay has passed;
//   - a redirect to another origin is not followed by fetchd. The worker waits until
//     the host it leads to is open, closes it to everybody else, and sends the next
//     request itself;
//   - robots.txt is a fetch like any other, and takes a turn of its host;
//   - 429 and 503 close a host for as long as it asks, or for a minute that doubles.
//
// docs/frontier.md has the rules in full.
package frontier
