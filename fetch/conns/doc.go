// Package conns gives fetches their connections to origins.
//
// A [Pool] holds the connections: of HTTP/1.1, which this package speaks itself, and of HTTP/2, each
// an [http.ClientConn]. An [Exchange] is one request on
// one connection, in three calls: [Exchange.Connect] takes an idle connection or makes a new
// one, [Exchange.RoundTrip] sends the request and reads the response head, and
// [Exchange.End] gives the connection back.
//
// An http.Transport would send a request again when a connection breaks. Neither kind of
// connection does, so one exchange is at most one transmission. [Exchange.Unprocessed] reports whether
// another exchange may repeat it (spec I6). The price is that a
// connection which the origin has just closed fails the exchange. So a connection is
// checked before it is used, is idle for a limited time, and is recent if it has to be
// ([Target].Recent).
//
// A fetch never waits for the connection of another fetch (spec W6): if none is idle, it
// makes a new one. Over HTTP/2 fetches share a connection, but only after a first head has
// come over it. Before that the origin has not said how many streams it allows.
//
// A connection takes no further request after
//   - a request on it timed out and nothing was received since,
//   - the origin broke the protocol on it ([Exchange.Retire]),
//   - the origin bound the connection to an identity (spec A5),
//   - the settings of the origin changed ([Pool.SetOrigins]), or
//   - its route is in use no more ([Pool.Retire]).
//
// It is closed when its last request has ended.
package conns
