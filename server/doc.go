// Package server answers fetchd.v1 over gRPC.
//
// It converts requests into those of package fetch, refuses what spec §12
// refuses, runs the fetch and converts its events and outcome back. It decides
// nothing about a fetch itself. Two planes of failure are kept apart: a gRPC
// status other than OK speaks of the request or of this service; what happened
// at the origin is data in the outcome. A call is OK if and only if an outcome
// was sent.
//
// The order of calls: [New], [Server.Serve] on any number of listeners,
// [Server.Shutdown].
package server
