// Package load measures how much memory and CPU time the service uses while many fetches wait, and
// next to an origin that ends each of its connections.
//
// The tests run if FETCHD_LONG is 1, which .ci/run load sets. Nothing else may run meanwhile. They
// use loopback only. Each ends within a minute.
package load
