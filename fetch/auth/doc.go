// Package auth provides the credentials that an operator configured for origins, and
// replaces credentials that an origin rejects (spec §8).
//
// A [Provider] does not depend on fetches. It reports which origins it covers, returns
// the header field with the credential, and refreshes a rejected one. [New] returns a
// provider for a [Config]: a static token, a file that another program updates, or
// OAuth 2.0 client credentials (RFC 6749 §4.4).
//
// Refreshes are shared: if many fetches are rejected with the same token, one refresh
// runs and all of them wait for it. It is independent of every caller's context.
package auth
