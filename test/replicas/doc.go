// Package replicas tests what callers see of several replicas, and of one that is stopped,
// killed or used for long. No fetch is lost on a SIGTERM, and a killed replica loses only the
// calls in flight on it.
//
// The tests run the shipped binary with the service configs of deploy/grpc. Those that start
// processes run if FETCHD_LONG is 1, which .ci/run replicas sets; they take about four
// minutes. TestSoak takes FETCHD_SOAK, by default 2m. They use loopback only.
package replicas
