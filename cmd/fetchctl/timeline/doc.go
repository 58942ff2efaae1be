// Package timeline orders the messages of one Fetch: attempts, their hops, the phases of each
// hop, and the waits between attempts. It also draws the waterfall of --trace.
//
// A [Recorder] receives the messages as they arrive, and [Recorder.Fetch] returns what is known
// so far. The phases of a hop follow each other without a gap from its start to its end.
// Durations that the service measured are not changed. The remaining time of a hop is added to
// one phase:
//
//   - if the hop failed without a response: the phase in which it failed;
//   - if the response was a redirect: [Receive], because the service does not measure how long
//     it reads a redirect;
//   - otherwise: [Blocked].
//
// A hop ends when the next one starts. The last hop ends with the message that the attempt has
// finished.
//
// [Wait] starts when the connection is ready, so it includes sending the request. [Send] is
// known only for a hop that failed while it sent.
package timeline
