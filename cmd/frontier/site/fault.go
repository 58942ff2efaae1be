package site

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"fetchd/conformance/origin" //nolint:depguard // a site is for tests and demos too, and no more than the origin in a product
)

// fault has the origin answer /s/KEY/...; rest starts with KEY. It closes the connection, because
// the journal would miss later requests on it.
func (s *Site) fault(c *call, rest string) {
	w := &takeover{ResponseWriter: c.w, journal: c.journal}
	r := c.r.WithContext(c.r.Context())
	r.Close = true
	s.origin.ServeHTTP(w, r)
	if w.conn != nil {
		c.endAt(w.conn.end(s.howEnded(rest, r.RemoteAddr)))
	}
}

// howEnded asks the origin's log how a request ended. A taken connection carries one request, so
// its remote address identifies it. It is the last one with that address: an earlier one came
// through a redirect helper, or from a port that was used again.
func (s *Site) howEnded(rest, remote string) origin.End {
	text, _, _ := strings.Cut(rest, "/")
	key, err := url.PathUnescape(text)
	if err != nil {
		return origin.EndRefused
	}
	for _, r := range slices.Backward(s.origin.Requests(key)) {
		if r.RemoteAddr == remote {
			return r.End
		}
	}
	return origin.EndRefused
}

// takeover is a ResponseWriter whose connection can be hijacked.
type takeover struct {
	http.ResponseWriter
	journal *journal
	conn    *taken // set by Hijack
}

// Hijack returns the connection, wrapped to record its end. It drops what the client sent after its
// request, because the connection serves only one.
func (w *takeover) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, _, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.conn = &taken{Conn: conn, journal: w.journal}
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}

// taken records when its connection was last written to, when it was closed, and when its client
// was seen to leave. Zero means never.
type taken struct {
	net.Conn
	journal *journal
	wrote   atomic.Int64
	broke   atomic.Int64
	gone    atomic.Int64
}

// end returns when the visit ended, and whether the client ended it.
func (t *taken) end(how origin.End) (at time.Duration, left bool) {
	noted := t.wrote.Load()
	switch how {
	case origin.EndClientGone:
		noted, left = t.gone.Load(), true
	case origin.EndBroken:
		noted = t.broke.Load()
	case origin.EndAnswered, origin.EndRefused:
	}
	if noted == 0 {
		return t.journal.now(), left
	}
	return time.Duration(noted), left
}

// Read records that the client left.
func (t *taken) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if err != nil {
		t.note(&t.gone)
	}
	return n, err
}

// Write records when it started.
func (t *taken) Write(p []byte) (int, error) {
	t.wrote.Store(int64(t.journal.now()))
	return t.Conn.Write(p)
}

// Close records when it started.
func (t *taken) Close() error {
	t.note(&t.broke)
	return t.Conn.Close()
}

// CloseWrite closes the writing side, if the connection supports it.
func (t *taken) CloseWrite() error {
	t.note(&t.broke)
	half, ok := t.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// SetLinger makes Close reset the connection, if it is a TCP connection.
func (t *taken) SetLinger(sec int) error {
	tcp, ok := t.Conn.(*net.TCPConn)
	if !ok {
		return errors.ErrUnsupported
	}
	return tcp.SetLinger(sec)
}

// note records the first time only.
func (t *taken) note(when *atomic.Int64) { when.CompareAndSwap(0, int64(t.journal.now())) }

// marker marks the Location of a redirect helper. It has no Hijack, so the origin answers through
// it and the connection stays with the server.
type marker struct {
	http.ResponseWriter
	entry entry
}

// WriteHeader sends the header with a marked Location.
func (m *marker) WriteHeader(status int) {
	if to := m.Header().Get("Location"); to != "" {
		m.Header().Set("Location", withMark(to))
	}
	m.entry.end()
	m.ResponseWriter.WriteHeader(status)
}

// Write sends a part of the body. The last one ends the visit.
func (m *marker) Write(p []byte) (int, error) {
	m.entry.end()
	return m.ResponseWriter.Write(p)
}

// Unwrap lets a [http.ResponseController] flush.
func (m *marker) Unwrap() http.ResponseWriter { return m.ResponseWriter }
