// Package replicas tests what callers see of several replicas, and of one that is stopped,
// killed, overloaded or used for long. No fetch is lost on a SIGTERM, a killed replica loses
// only the calls in flight on it, and every history of calls and of requests at the origin
// keeps the promises of the contract.
//
// The tests run the shipped binary with the service configs of deploy/grpc. Those that start
// processes run if FETCHD_LONG is 1, which .ci/run replicas sets; they take about five
// minutes. TestSoak takes FETCHD_SOAK, by default 2m. They use loopback only.
package replicas
