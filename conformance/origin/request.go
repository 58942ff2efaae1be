package origin

import (
	"net/http"
	"time"
)

// Field is one header field as it was received, in its place and spelling
// where the protocol keeps them (HTTP/1.1 and the listener h2fault do).
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Request is one request in the log.
type Request struct {
	// Number counts the requests for Key from 1, those of the redirect
	// helpers (/r, /loop, /loop2, /cross) included.
	Number int `json:"number"`
	// Turn is the n that chose the step: it counts the requests to /s/KEY,
	// and those to each script of /cycle/KEY, from 1. It is 0 for the redirect helpers.
	Turn int `json:"turn"`
	// Key is the KEY of the URL, decoded.
	Key string `json:"key"`
	// Method is as it was sent.
	Method string `json:"method"`
	// Path is as it was sent, still encoded, without the query.
	Path string `json:"path"`
	// Query is as it was sent, without "?".
	Query string `json:"query"`
	// Host is the Host field or :authority.
	Host string `json:"host"`
	// Protocol is "HTTP/1.0", "HTTP/1.1" or "HTTP/2.0".
	Protocol string `json:"protocol"`
	// Listener is the name of the listener; "handler" if the request came
	// through [Origin.ServeHTTP] from somebody else's server.
	Listener string `json:"listener"`
	// RemoteAddr is the client's address.
	RemoteAddr string `json:"remote_addr"`
	// Connection numbers the connections of this origin from 1. It is 0 where
	// the connection is somebody else's.
	Connection uint64 `json:"connection"`
	// ConnectionRequest numbers the requests of that connection from 1.
	ConnectionRequest int `json:"connection_request"`
	// Header is the header in canonical form, without Host.
	Header http.Header `json:"header"`
	// Fields is the header in the order received.
	Fields []Field `json:"fields"`
	// BodyBytes is the size of the request body that was read so far.
	BodyBytes int64 `json:"body_bytes"`
	// BodySHA256 is the digest of the whole body in hex; empty until all of it
	// was read.
	BodySHA256 string `json:"body_sha256"`
	// Step is the step that was chosen, as in the URL.
	Step string `json:"step"`
	// Time is when the head had been read.
	Time time.Time `json:"time"`
	// End says how the exchange ended; "" while it goes on. A client can hold a
	// whole answer a moment before its end is noted: wait for Done, then ask
	// again.
	End End `json:"end"`
	// Done is closed when the exchange has ended, by an answer, by a fault, or
	// because the client left.
	Done <-chan struct{} `json:"-"`
}

// End is how an exchange ended.
type End string

// The ends of an exchange.
const (
	// EndAnswered: all of the answer was written.
	EndAnswered End = "answered"
	// EndBroken: the origin broke off, as the step asked.
	EndBroken End = "broken"
	// EndClientGone: the client left before all of the answer was written.
	EndClientGone End = "client-gone"
	// EndRefused: the step makes no sense here; the answer says why in the
	// field Origin-Error.
	EndRefused End = "refused"
)
