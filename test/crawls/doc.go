// Package crawls tests what operators see of whole crawls when something breaks. Workers,
// services and the database run as processes, as they ship. In the middle of a crawl they are
// killed, stopped, or run out of disk space. Afterwards every URL must have one outcome, and
// no host may have received a request too early.
//
// The origin is [fetchd/cmd/frontier/site] in the test's process. Its journal records the requests
// of each host. PostgreSQL is a private server with durability on.
//
// The tests run if FETCHD_LONG is 1, which .ci/run crawls sets; they take about three minutes.
// They use loopback only. The test of a full disk mounts a small tmpfs, which needs root.
//
// FETCHD_CRAWLS=all (.ci/run crawls-all) runs the long form, twelve minutes. The short form has
// the same checks with fewer URLs and less time: a third of the pages and of the kills in TestChaos,
// and a tenth of the 20,000 URLs in TestGroups. Of the 2,000
// pages in TestLongBodies one in eight may have more than 64 KiB, 1 GB in all; in the long form every
// second, 3.5 GB. Only the long form has TestChaos behind PgBouncer, with a full
// disk and with a bucket that goes down.
package crawls
