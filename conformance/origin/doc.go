// Package origin is an HTTP origin that commits any fault on request. It is a tool
// for tests of HTTP clients and servers.
//
// The URL names the fault, so a client in any language can ask for it:
//
//	/s/KEY/503/reset:at=in-body,after=100/200:size=1000
//
// answers the first request for KEY with 503, resets the connection 100 bytes
// into the body of the second, and answers every later one with 200. GET / on any
// listener describes the grammar; [Grammar] returns the same text.
//
// [Start] opens all listeners on loopback: plain, TLS with a good certificate, TLS
// with bad ones, and ports that break before HTTP starts. [New] opens none: pass
// your own to [Origin.Serve] or [Origin.ServeAs], for example in-memory listeners
// in a testing/synctest bubble. Every wait ends when the client leaves or on
// [Origin.Close], and no goroutine outlives Close.
//
// The origin logs a request after it has read the head and before it sends a byte
// of the answer. So a client that has an answer finds it in [Origin.Requests].
//
// Bodies depend on [Config.Seed] only: the same seed gives the same bytes. Keys and
// certificates are new at each start.
//
// The origin does not authorize anyone and does what any client asks. Do not expose
// it to a network.
package origin
