// Package timeline puts the messages of one Fetch in order: attempts, their
// hops, the phases of each hop, and the waits between attempts. What draws a
// fetch and what exports it both read this, so that they cannot disagree.
//
// A [Recorder] takes the messages as they arrive and [Recorder.Fetch] returns
// what they tell so far. The phases of a hop follow each other without a gap
// from its begin to its end. Durations that the service measured are kept as
// they are. What is left of a hop goes to one phase:
//
//   - where the hop failed without a response: the phase in which it failed;
//   - where a redirect was read: [Receive], for the service does not measure the
//     reading of a redirect. Not where the request was sent again;
//   - anywhere else: [Blocked], such as the first sending of a request that was
//     sent again.
//
// The end of a hop is the begin of the next one, and for the last hop the
// message that the attempt is over.
//
// Sending is measured as a part of [Wait], which begins when the connection is
// ready; [Send] is only known of a hop that failed in it.
package timeline
