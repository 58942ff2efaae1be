// Package transmissions checks what origins receive: each hop of an attempt sends its request at most
// once, whatever the state of the connection pool, and the outcome reports what was sent. Its origins
// count requests and break connections on real sockets, over HTTP/1.1, TLS and HTTP/2.
//
// The tests are part of go test ./... and take 15 s. FETCHD_LONG=1 runs the long forms of
// TestIdleConnectionsClose, TestSmuggledAnswers and TestLateAnswers, which take five minutes and need an
// otherwise idle machine.
package transmissions
