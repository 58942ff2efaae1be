// Package kit holds a server of the contract, or an HTTP client, against the
// vectors and scenarios of package conformance.
//
// [Load] reads the scenarios, [Scenario.Perform] carries one out through a
// FetchService, and [Scenario.Judge] says what did not hold: of what the service
// told, of what the origin saw, and of one against the other. [Explain] does the
// same for a vector. [Command.Perform] gives the URL to a program, and
// [Scenario.JudgeClient] judges it by the origin's log alone.
//
// Waits are compared downwards only: nothing here fails because a machine is slow.
// The package links no part of the implementation that it judges.
package kit
