// Package auth gives out the credentials that an operator configured for named
// origins, and replaces those that were refused (spec §8).
//
// A [Provider] knows nothing of fetches: it covers origins, says which header
// opens them, and is told when an origin refuses it. [New] makes one from a
// [Config]: a static token, a file that something else keeps fresh, or OAuth 2.0
// client credentials (RFC 6749 §4.4). Others can be made on a [Source].
//
// Refreshes are shared: of all who were refused with one token, one asks for the
// next, on no caller's behalf, and the others wait for it.
package auth
