// Package timeline orders the events of one fetch: attempts, their hops, the phases of each
// hop, and the waits between attempts. Everything that draws or exports a fetch uses it, so
// that all of them agree.
//
// A [Recorder] takes the events as they arrive, and [Recorder.Fetch] returns the fetch so far.
// The phases of a hop follow each other without gaps, from its start to its end. Durations that
// the service measured are kept. The rest of a hop belongs to one phase:
//
//   - If the hop failed without a response: the phase in which it failed.
//   - If a redirect was read: [Receive], because the service does not measure the reading of a
//     redirect. This does not apply if the request was sent again.
//   - Otherwise: [Blocked]. An example is the first sending of a request that was sent again.
//
// A hop ends when the next one starts. The last hop ends with the event that ends the attempt.
//
// Sending is measured as a part of [Wait], which begins when the connection is ready. [Send] is
// only known for a hop that failed in it.
package timeline
