// Package transmissions checks how often requests are sent, and what the errors look like, when origins
// break connections. Its origins count requests on real sockets, over HTTP/1.1, TLS and HTTP/2.
//
// The tests are part of go test ./... and take some seconds.
package transmissions
