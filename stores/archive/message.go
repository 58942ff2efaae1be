package archive

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
)

// maxHead limits a head. A message without a head within this length is not HTTP/1, and no more of
// it is recorded.
const maxHead = 1 << 20

// message says where a message is in its spool.
type message struct {
	start, body, end int64 // body is where the head ends
	complete         bool  // the head is one of HTTP/1, and complete
	status           int   // of a response
	whole            bool  // it ends at end, and not only what was received
}

// scanner reads a spool, and knows where it is.
type scanner struct {
	in    *bufio.Reader
	at    int64
	first []byte // memory for the first line
}

// line reads a line and returns its first bytes, without its end. It fails if there is no end.
func (s *scanner) line() ([]byte, error) {
	line, err := s.in.ReadSlice('\n')
	s.at += int64(len(line))
	if err == nil {
		line = line[:len(line)-1]
		if n := len(line); n > 0 && line[n-1] == '\r' {
			line = line[:n-1]
		}
		return line, nil
	}
	line = bytes.Clone(line) // a long line, or the end: the buffer is used again
	for errors.Is(err, bufio.ErrBufferFull) {
		var rest []byte
		rest, err = s.in.ReadSlice('\n')
		s.at += int64(len(rest))
	}
	return line, err
}

// head reads the head of a message and returns its first line. It reports false if there is none.
func (s *scanner) head() ([]byte, bool, error) {
	first, begun := s.first[:0], s.at
	for s.at-begun < maxHead {
		line, err := s.line()
		switch {
		case errors.Is(err, io.EOF):
			return nil, false, nil
		case err != nil:
			return nil, false, err
		case len(line) == 0:
			return first, s.at-begun <= maxHead && len(first) > 0, nil
		case len(first) == 0:
			first = append(first, line...)
			s.first = first
		}
	}
	return nil, false, nil
}

// request finds the request in a spool. An origin may answer before all of it is sent.
func (s *scanner) request(size int64, e *Exchange) (message, error) {
	m := message{end: size}
	_, ok, err := s.head()
	if m.complete = ok; !ok {
		m.end = min(size, maxHead)
	}
	m.body = s.at
	m.whole = ok && size-s.at >= e.RequestLength
	return m, err
}

// response finds the final response in a spool. What precedes it are interim responses.
func (s *scanner) response(size int64, e *Exchange) (message, error) {
	for {
		m := message{start: s.at}
		first, ok, err := s.head()
		if err != nil {
			return m, err
		}
		m.status = statusOf(first)
		if !ok || m.status == 0 {
			m.end = min(size, m.start+maxHead)
			m.body = m.end
			m.status = 0
			return m, nil
		}
		if m.status/100 == 1 && m.status != 101 {
			continue
		}
		m.complete, m.body = true, s.at
		m.end, m.whole, err = s.body(size, e)
		return m, err
	}
}

// statusOf returns the status of a first line, or zero if it is not one of HTTP/1.
func statusOf(line []byte) int {
	version, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(version) != len("HTTP/1.x") || !bytes.HasPrefix(version, []byte("HTTP/1.")) {
		return 0
	}
	code, _, _ := bytes.Cut(bytes.TrimLeft(rest, " "), []byte(" "))
	n, err := strconv.Atoi(string(code))
	if len(code) != 3 || err != nil || n < 100 {
		return 0
	}
	return n
}

// body returns where the body ends, and reports whether all of it was received.
func (s *scanner) body(size int64, e *Exchange) (end int64, whole bool, err error) {
	switch {
	case e.Bodyless:
		return s.at, e.Whole, nil
	case e.Chunked:
		end, err := s.chunks()
		if errors.Is(err, errChunks) || errors.Is(err, io.EOF) {
			return size, false, nil
		}
		return end, e.Whole, err
	case e.Length >= 0:
		// Length may be near the largest number.
		return s.at + min(e.Length, size-s.at), e.Whole && e.Length <= size-s.at, nil
	}
	return size, e.Whole, nil
}

var errChunks = errors.New("not a body in chunks")

// chunks returns where the chunks and the trailer end.
func (s *scanner) chunks() (int64, error) {
	for {
		line, err := s.line()
		if err != nil {
			return 0, err
		}
		line, _, _ = bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseUint(string(bytes.Trim(line, " \t")), 16, 63)
		if err != nil {
			return 0, errChunks
		}
		if n == 0 {
			break
		}
		if err := s.skip(int64(n)); err != nil {
			return 0, err
		}
		if line, err := s.line(); err != nil || len(line) > 0 {
			return 0, errors.Join(err, errChunks)
		}
	}
	for {
		if line, err := s.line(); err != nil || len(line) == 0 {
			return s.at, err
		}
	}
}

func (s *scanner) skip(n int64) error {
	for n > 0 {
		done, err := s.in.Discard(int(min(n, 1<<30)))
		s.at += int64(done)
		n -= int64(done)
		if err != nil {
			return err
		}
	}
	return nil
}
