// Package load measures how soon a cancelled fetch releases its socket, and how much memory
// and CPU time the service uses while many callers stall it at once.
//
// The tests run if FETCHD_LONG is 1, which .ci/run load sets. Nothing else may run meanwhile,
// because they measure time. They use loopback only. Each ends within a minute, all of them
// within three.
package load
