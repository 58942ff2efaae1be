// Package replicas holds what callers see of several replicas, and of one that
// is stopped, killed, overloaded or used for long: no fetch is lost on a
// SIGTERM, a death costs only the calls under way there, and every history of
// calls and of requests at the origin keeps what the contract promises.
//
// Its tests run the binary that ships, with the service configs of deploy/grpc.
// Those that start processes run only where FETCHD_LONG is 1; TestSoak goes on
// for FETCHD_SOAK, 2m where that is not set. They reach loopback only.
package replicas
