// Package tlswatch reports what ends TLS for the callers of a service: certificates that expire, and
// handshakes that fail. It logs both, and gives them to Prometheus.
//
// A [Watch] has the certificates of a service: call [Watch.Set] at the start and after each reload.
// [Handshakes] counts the failures of its ports, by cause. [NewCollector] returns the metrics of both.
// Package secure reads the files, and decides who may call.
package tlswatch
