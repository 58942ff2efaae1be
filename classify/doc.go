// Package classify decides what one attempt of a fetch means and what follows.
//
// It is the only place where that is decided. [Decide] takes an [Observation]
// and a [Policy] and returns a [Decision] that names the rule of docs/spec.md
// behind it; [Error] turns any Go error into a [Class] by its type and the
// [Phase] it came in. Both are pure: no I/O, no clock, no logging, no shared
// state, the standard library only. The same values give the same decision in
// every process, which conformance/vectors states as data for any language.
//
// The order of calls, for an engine: [Profile.Policy] once per fetch, then for
// each attempt [Error] for what went wrong, if anything did, and [Decide].
//
// What the package does not do: send, wait, count or remember.
package classify
