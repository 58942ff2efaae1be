// Package manifests checks the files in deploy/ with the types of the programs that read them:
// Kubernetes, Helm, Compose, Envoy, Prometheus and Grafana. A file fails if it has an unknown field,
// a reference to something that does not exist, or the name of a flag or metric that fetchd
// and the frontier do not have.
//
// It does not run those programs. It has only tests, and is in the module tools so that the
// product does not depend on their types. .ci/run deploy runs it.
package manifests
