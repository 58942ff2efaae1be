// Package load holds the long checks: how soon a cancelled fetch lets go of its
// socket, and what the service's process takes of memory and time when many
// callers hold it up at once. Its tests measure, so they run alone and only
// where FETCHD_LONG is 1; .ci/run load sets it. They reach loopback only, and
// each ends within a minute.
package load
