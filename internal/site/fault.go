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

// fault has the origin answer /s/KEY/..., of which rest begins with KEY. The
// connection ends with it: what followed on it would pass the journal by.
func (s *Site) fault(c *call, rest string) {
	w := &takeover{ResponseWriter: c.w, journal: c.journal}
	r := c.r.WithContext(c.r.Context())
	r.Close = true
	s.origin.ServeHTTP(w, r)
	if w.conn != nil {
		c.endAt(w.conn.end(s.howEnded(rest, r.RemoteAddr)))
	}
}

// howEnded asks the origin's log. A taken connection has one request in it, so
// its address tells which, and the last is this one: what else has the address
// came before, through a helper or from a port that came back.
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

// takeover is a writer whose connection can be taken over.
type takeover struct {
	http.ResponseWriter
	journal *journal
	conn    *taken // once it was
}

// Hijack hands the connection over, watched. What the client sent after its
// request is dropped, for the connection serves one.
func (w *takeover) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, _, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.conn = &taken{Conn: conn, journal: w.journal}
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}

// taken notes when a connection was last written to, when it was broken off,
// and when its client was seen to have left; zero is never.
type taken struct {
	net.Conn
	journal *journal
	wrote   atomic.Int64
	broke   atomic.Int64
	gone    atomic.Int64
}

// end is when the visit ended that the origin ended so, and whether it was the
// client's doing.
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

// Read notes that the client left.
func (t *taken) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if err != nil {
		t.note(&t.gone)
	}
	return n, err
}

// Write notes when it began.
func (t *taken) Write(p []byte) (int, error) {
	t.wrote.Store(int64(t.journal.now()))
	return t.Conn.Write(p)
}

// Close notes when it began.
func (t *taken) Close() error {
	t.note(&t.broke)
	return t.Conn.Close()
}

// CloseWrite ends the writing side, where there is one.
func (t *taken) CloseWrite() error {
	t.note(&t.broke)
	half, ok := t.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// SetLinger makes Close reset the connection, where there is such a thing.
func (t *taken) SetLinger(sec int) error {
	tcp, ok := t.Conn.(*net.TCPConn)
	if !ok {
		return errors.ErrUnsupported
	}
	return tcp.SetLinger(sec)
}

// note keeps the first time.
func (t *taken) note(when *atomic.Int64) { when.CompareAndSwap(0, int64(t.journal.now())) }

// marker marks the Location of a redirect helper. It cannot be hijacked, so the
// origin answers through it and leaves the connection to the server.
type marker struct {
	http.ResponseWriter
	entry entry
}

// WriteHeader sends the head, with a marked Location.
func (m *marker) WriteHeader(status int) {
	if to := m.Header().Get("Location"); to != "" {
		m.Header().Set("Location", withMark(to))
	}
	m.entry.end()
	m.ResponseWriter.WriteHeader(status)
}

// Write sends a part of the body; the last one ends the visit.
func (m *marker) Write(p []byte) (int, error) {
	m.entry.end()
	return m.ResponseWriter.Write(p)
}

// Unwrap lets a [http.ResponseController] flush.
func (m *marker) Unwrap() http.ResponseWriter { return m.ResponseWriter }
