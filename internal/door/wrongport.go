package door

import (
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// http1 are the first bytes of requests of HTTP/1. The preface of HTTP/2 begins with PRI.
var http1 = []string{"GET", "HEA", "POS", "PUT", "PAT", "DEL", "OPT"}

// drainBytes is how much of a request of HTTP/1 is read, so that its client can read the answer before the
// connection is reset.
const drainBytes = 16 << 10

// AnswerHTTP makes a listener for gRPC answer requests of HTTP/1 with status 400 and a text, which says what to
// use instead. Without it gRPC closes their connections without an answer. It must be called before Accept.
func (l *Listener) AnswerHTTP(text func() string) { l.answer = text }

// refuse answers a connection that begins with a request of HTTP/1 and closes it within [speakTime]. It
// returns false for others. The program does not get the connection, which has its slot for that time.
func (c *Conn) refuse() bool {
	if c.listener.answer == nil || !slices.Contains(http1, string(c.first[:c.ahead])) {
		return false
	}
	_ = c.Conn.SetDeadline(time.Now().Add(speakTime)) // if it fails, so does the write
	text := c.listener.answer() + "\n"
	_, err := fmt.Fprintf(c.Conn, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	if err == nil && c.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c.Conn, drainBytes)
	}
	_ = c.Close() // nothing was served on it
	return true
}

// Port returns the port of an address, or "" if it has none.
func Port(addr net.Addr) string {
	_, port, _ := net.SplitHostPort(addr.String())
	return port
}
