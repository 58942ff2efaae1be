package rig

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// AnswerTwice answers a request over HTTP/1.1 with a text, and sends a second answer behind it. The
// end of the text and the second answer are sent together. It closes the connection when the client has.
func AnswerTwice(w http.ResponseWriter, text []byte) error {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer conn.Close()
	var first bytes.Buffer
	fmt.Fprintf(&first, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s", len(text), text)
	if _, err := conn.Write(first.Bytes()); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond"); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn)
	return err
}
