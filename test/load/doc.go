// Package load measures how much memory and CPU time the service uses while many callers stall it
// at once, and how long small tasks take next to large bodies on the same stream.
//
// The tests run if FETCHD_LONG is 1, which .ci/run load sets. Nothing else may run meanwhile,
// because they measure time. They use loopback only. Each ends within a minute, all of them
// within three. FETCHD_LOAD=all (.ci/run load-all) runs only TestBodies, with two bodies of 1 GiB
// in place of 64 MiB and a reader that stalls for 20 s in place of 5 s.
package load
