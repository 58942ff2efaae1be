// Package classify decides what an attempt of a fetch means and what happens next.
//
// It is the only place where that is decided. [Decide] takes an [Observation]
// and a [Policy] and returns a [Decision], which names the rule of docs/spec.md
// it follows. [Error] maps a Go error to a [Class], by the error's type and the
// [Phase] it occurred in. Both are pure: they do no I/O, read no clock, log
// nothing, share no state, and use only the standard library. Equal arguments
// give equal decisions in every process; conformance/vectors states those
// decisions as data for any language.
//
// An engine calls [Profile.Policy] once per fetch. For each attempt it then
// calls [Error], if the attempt failed with an error, and [Decide].
//
// The package does not send requests, wait, count attempts or keep state.
package classify
