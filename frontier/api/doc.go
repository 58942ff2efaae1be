// Package api serves frontier.v1.FrontierService over gRPC and HTTP: the schedule and the politeness of
// a frontier, for crawlers that do their own fetching. docs/frontier-api.md describes it for callers.
//
// All state is in the [store.Store]. A [Server] can be ended and started again at any time, and several
// may serve one database.
package api
