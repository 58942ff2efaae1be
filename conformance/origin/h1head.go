package origin

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
)

// maxHeadBytes bounds the head of a request.
const maxHeadBytes = 1 << 20

// prefaceHead is how HTTP/2 with prior knowledge begins (RFC 9113 §3.4).
const prefaceHead = "PRI * HTTP/2.0\r\n\r\n"

var errHeadTooLarge = errors.New("request head too large")

// readHead reads up to and with the empty line.
func readHead(br *bufio.Reader) ([]byte, error) {
	var head []byte
	for {
		line, err := br.ReadSlice('\n')
		head = append(head, line...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			// A long line; the rest of it follows.
		case err != nil:
			return nil, fmt.Errorf("read head: %w", err)
		case len(bytes.TrimSpace(line)) == 0 && len(head) > len(line):
			return head, nil
		}
		if len(head) > maxHeadBytes {
			return nil, errHeadTooLarge
		}
	}
}

// parseHead reads a head; the body of the request is not set.
func parseHead(raw []byte) (*http.Request, []Field, error) {
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil {
		return nil, nil, fmt.Errorf("parse head: %w", err)
	}
	return req, fieldsOf(raw), nil
}

// fieldsOf returns the fields in the order and spelling of the head.
func fieldsOf(raw []byte) []Field {
	lines := strings.Split(strings.TrimRight(string(raw), "\r\n"), "\n")
	fields := make([]Field, 0, len(lines))
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		fields = append(fields, Field{name, strings.TrimSpace(value)})
	}
	return fields
}

// h1body is the body of a request on an h1conn.
type h1body struct {
	conn         *h1conn
	reader       io.Reader
	chunked      bool
	wantContinue bool
	done         bool
}

func (c *h1conn) bodyOf(req *http.Request) *h1body {
	b := &h1body{conn: c, wantContinue: strings.EqualFold(req.Header.Get("Expect"), "100-continue")}
	switch {
	case req.ContentLength > 0:
		b.reader = &exactReader{r: c.br, left: req.ContentLength}
	case req.ContentLength < 0:
		b.reader, b.chunked = httputil.NewChunkedReader(c.br), true
	default:
		b.done = true
	}
	return b
}

func (b *h1body) Read(p []byte) (int, error) {
	if b.done {
		return 0, io.EOF
	}
	if err := b.sayContinue(); err != nil {
		return 0, err
	}
	n, err := b.reader.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if b.chunked {
		if err := skipTrailers(b.conn.br); err != nil {
			return n, err
		}
	}
	b.done = true
	return n, io.EOF
}

func (b *h1body) sayContinue() error {
	if !b.wantContinue {
		return nil
	}
	b.wantContinue = false
	_, err := io.WriteString(b.conn.conn, "HTTP/1.1 100 Continue\r\n\r\n")
	return err
}

func (b *h1body) Close() error { return nil }

// skipTrailers reads what the chunked reader leaves: trailers and empty line.
func skipTrailers(br *bufio.Reader) error {
	for {
		line, err := br.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("read trailers: %w", io.ErrUnexpectedEOF)
		}
		if len(bytes.TrimSpace(line)) == 0 {
			return nil
		}
	}
}

// exactReader reads just so many bytes; fewer are an unexpected end.
type exactReader struct {
	r    io.Reader
	left int64
}

func (e *exactReader) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	switch {
	case e.left == 0:
		return n, io.EOF
	case errors.Is(err, io.EOF):
		return n, io.ErrUnexpectedEOF
	}
	return n, err
}
