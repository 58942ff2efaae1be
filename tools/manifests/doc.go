// Package deploy holds what stands in the folder deploy/ against the types of
// those who will read it: Kubernetes, Compose, Envoy, Prometheus and Grafana. A
// file with a field that its reader does not know, a reference that leads
// nowhere, or the name of a flag or metric that fetchd or the frontier does not
// have, fails.
//
// It runs none of those readers. It has tests only, and is a part of the module
// tools so that none of their types reaches the product.
package manifests
