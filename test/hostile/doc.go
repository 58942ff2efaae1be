// Package hostile tests the egress guard against a network in which every
// address answers.
//
// Its test makes itself a network namespace of its own where all of IPv4 and
// IPv6 lies on loopback, listens on all of it, and fetches what an attacker
// would name: addresses, spellings of them, names that lead to them, redirects
// to them. The guard may open no connection but those to the one address that
// is allowed; the kernel counts.
package hostile
