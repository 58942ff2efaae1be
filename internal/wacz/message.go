package wacz

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"fetchd/warc"
)

// maxLine and maxHead limit the head of an HTTP message. fetchd accepts no longer one.
const (
	maxLine = 256 << 10
	maxHead = 1 << 20
)

// message is what the head of an HTTP message says.
type message struct {
	method      string // of a request
	status      string // of a response
	contentType string
	length      int64 // Content-Length, or -1
	chunked     bool
	unclear     bool // fields of a response are wrong, so the length of its payload is not known
}

var (
	errEndless = errors.New("the HTTP head does not end within the block")
	errLong    = fmt.Errorf("the HTTP head is longer than %d bytes, or a line of it is longer than %d", maxHead, maxLine)
)

// hasMessage reports whether the block of a record is an HTTP message.
func hasMessage(rec *warc.Record) bool {
	mediaType, _, _ := strings.Cut(rec.ContentType, ";")
	switch rec.Type {
	case warc.Request, warc.Response, warc.Revisit:
		return (rec.ContentLength > 0 || rec.Type != warc.Revisit) && rec.SegmentNumber <= 1 && strings.EqualFold(strings.TrimSpace(mediaType), "application/http")
	}
	return false
}

// readMessage reads the head of an HTTP message. It returns an error if the head cannot be parsed.
// The values that it could read are returned with it. in is at the payload if there is no error.
func readMessage(in *bufio.Reader, request bool) (message, error) {
	m := message{length: -1}
	var fault error
	left := maxHead
	for number := 0; ; number++ {
		line, err := readLine(in, min(left, maxLine))
		if err != nil {
			return m, err
		}
		left -= len(line)
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		switch {
		case len(line) == 0 && number > 0:
			return m, fault
		case number == 0:
			err = m.start(string(line), request)
		case line[0] != ' ' && line[0] != '\t': // a line that is continued has no value that matters
			if err = m.field(line); err != nil && !request { // an origin's fault, which was recorded as it was
				m.unclear, err = true, nil
			}
		}
		if fault == nil {
			fault = err
		}
	}
}

// readLine reads a line with its end.
func readLine(in *bufio.Reader, limit int) ([]byte, error) {
	var long []byte
	for {
		part, err := in.ReadSlice('\n')
		switch {
		case len(long)+len(part) > limit:
			return nil, errLong
		case errors.Is(err, bufio.ErrBufferFull):
			long = append(long, part...)
			continue
		case errors.Is(err, io.EOF):
			return nil, errEndless
		case err != nil:
			return nil, err
		case long == nil:
			return part, nil
		}
		return append(long, part...), nil
	}
}

// start parses the first line.
func (m *message) start(line string, request bool) error {
	first, rest, _ := strings.Cut(line, " ")
	if request {
		i := strings.LastIndexByte(rest, ' ')
		if first == "" || i < 1 || !isVersion(rest[i+1:]) {
			return fmt.Errorf("the request line %.80q cannot be parsed", line)
		}
		m.method = first
		return nil
	}
	status, _, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	if _, err := strconv.ParseUint(status, 10, 16); !isVersion(first) || len(status) != 3 || err != nil {
		return fmt.Errorf("the status line %.80q cannot be parsed", line)
	}
	m.status = status
	return nil
}

// isVersion reports whether s is a version of HTTP, such as HTTP/1.1 or HTTP/2.
func isVersion(s string) bool {
	number, ok := strings.CutPrefix(s, "HTTP/")
	return ok && number != "" && strings.Trim(number, "0123456789.") == ""
}

// field parses a field line.
func (m *message) field(line []byte) error {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || len(name) == 0 {
		return fmt.Errorf("the line %.80q of the HTTP head has no name", line)
	}
	text := string(bytes.Trim(value, " \t"))
	switch strings.ToLower(strings.TrimRight(string(name), " \t")) {
	case "content-type":
		m.contentType = text
	case "content-length":
		first, _, _ := strings.Cut(text, ",") // a list of equal numbers is allowed
		n, err := strconv.ParseUint(strings.TrimSpace(first), 10, 63)
		if err != nil {
			return fmt.Errorf("Content-Length %.80q of the HTTP head is not a number", text)
		}
		if m.length >= 0 && m.length != int64(n) {
			return fmt.Errorf("the HTTP head has Content-Length %d and %d", m.length, n)
		}
		m.length = int64(n)
	case "transfer-encoding":
		m.chunked = strings.HasSuffix(strings.ToLower(text), "chunked")
	}
	return nil
}
