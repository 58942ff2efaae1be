// Package crawls holds what operators see of whole crawls when something breaks:
// workers, services and the database are processes, as they ship, that are
// killed, stopped or run out of disk in the middle, and afterwards every URL has
// one outcome and no host was asked too early.
//
// The origin is [fetchd/internal/site], in the test's own process, whose journal
// says what was asked of each host. PostgreSQL is a private server with its
// durability on. The tests run only where FETCHD_LONG is 1, and reach loopback
// only; the one of a full disk mounts a small tmpfs, which takes root.
//
// FETCHD_CRAWLS=all runs the long form. The short form makes the same checks with fewer
// URLs and less time: a tenth of the million in TestPace, half of them in TestCrashes, 20 s
// a crawl in TestRobotsBombs, which also leaves out 60 hosts, since 90 ask for more.
package crawls
