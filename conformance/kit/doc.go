// Package kit judges a server of the contract, or an HTTP client, by the vectors and scenarios of
// package conformance.
//
// [Load] reads the scenarios. [Scenario.Perform] runs one through a FetchService, and
// [Scenario.Judge] returns the mismatches: in the service's reports, in the requests that the origin
// received, and between the two. [Explain] does the same for a vector. [Scenario.PerformClient] runs
// a [Client] with the URL, and [Scenario.JudgeClient] judges it by the origin's log, its exit status
// and its output. [Suite] and [ClientScenarios] run many of them.
//
// A wait may be longer than expected but not shorter, so a slow machine causes no mismatch. The
// package links no part of the implementation that it judges.
package kit
