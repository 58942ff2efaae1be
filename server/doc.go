// Package server answers fetchd.v1 over gRPC.
//
// It validates each request (spec §12), converts it for package fetch, runs the fetch, and
// converts its events and its outcome back. Package fetch decides everything about the fetch
// itself. A gRPC status other than OK reports a problem of the request or of this service.
// What happened at the origin is data in the outcome. A call returns OK if and only if an
// outcome was sent.
//
// Call [New], then [Server.Serve] and [Server.ServeWeb], then [Server.Shutdown]. To test code
// that calls fetchd, see package fetchdtest.
package server
