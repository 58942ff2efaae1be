// Package origin is an HTTP origin that commits any fault on request.
//
// The fault is named in the URL, so a client in any language can ask for it:
//
//	/s/KEY/503/reset:at=in-body,after=100/200:size=1000
//
// answers the first request for KEY with 503, resets the connection 100 bytes
// into the body of the second, and answers every later one with 200. The
// grammar is told in full by GET / on any listener, and by [Grammar].
//
// [Start] opens every listener on loopback: plain, TLS with a good
// certificate, TLS with bad ones, and ports that break before HTTP begins.
// [New] opens none: pass listeners to [Origin.Serve] or [Origin.ServeAs], for
// instance in-memory ones inside a testing/synctest bubble. Every wait ends
// when the client leaves or on [Origin.Close], and no goroutine outlives Close.
//
// The origin logs each request when it has read its head and before it answers
// a byte, so a client that holds an answer finds it in [Origin.Requests].
//
// Bodies are a function of [Config.Seed]: the same seed gives the same bytes.
// Keys and certificates are not seeded; they are new at each start.
//
// It is a tool for tests. It does not cache, does not authorize, and does what
// any client asks of it; do not expose it to a network.
package origin
