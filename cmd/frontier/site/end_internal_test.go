package site

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"fetchd/conformance/origin"
	"fetchd/test/must"
)

// The visit must end before the client has the answer. Otherwise the next visit would look early.
func TestEndIsNotAfterTheClients(t *testing.T) {
	t.Parallel()
	s, err := Start(Config{Robots: func(string) (int, string) { return 200, string(make([]byte, 1<<20)) }})
	must.Succeed(t, err)
	t.Cleanup(func() { s.Close() })
	for _, path := range []string{
		"/p/1", "/nothing", "/robots.txt", "/go/302/1?to=/p/1", "/r/k/302/1/200",
		"/s/a/200", "/s/b/200:size=1000000", "/s/c/200:chunked", "/s/d/nonsense",
		"/s/e/fin", "/s/f/reset", "/s/g/200:size=100,cut=10", "/s/h/200:size=100,cut=10,how=rst", "/s/i/garbage",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			readAll(t.Context(), t, s.Addr(), "GET "+path+" HTTP/1.1\r\nHost: h1.demo.test\r\nConnection: close\r\n\r\n")
			client := s.journal.now()
			for _, v := range awaitEnd(t, s, path) {
				if v.Left || v.End > client || v.End < v.Start {
					t.Errorf("visit to %s is %+v; want its end after its start and before %v", path, v, client)
				}
			}
		})
	}
}

func readAll(ctx context.Context, t *testing.T, addr, request string) {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Error(err)
	}
	_, _ = io.Copy(io.Discard, conn) // its end may be a reset
}

func awaitEnd(t *testing.T, s *Site, path string) []Visit {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		var found []Visit
		for _, v := range s.Visits() {
			if v.Path == path && v.Ended() {
				found = append(found, v)
			}
		}
		if found != nil {
			return found
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("visit to %s never ends", path)
		}
	}
}

// lastByte is a writer that checks whether the visit has ended when the last of size bytes arrives.
type lastByte struct {
	journal *journal
	size    int
	header  http.Header
	got     int
	ended   bool
}

func (w *lastByte) Header() http.Header { return w.header }

func (w *lastByte) WriteHeader(int) {}

func (w *lastByte) Write(p []byte) (int, error) {
	w.got += len(p)
	if w.got == w.size {
		w.ended = w.journal.all()[0].Ended()
	}
	return len(p), nil
}

func TestEndIsBeforeTheLastByte(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2, 1 << 20} {
		j := newJournal()
		w := &lastByte{journal: j, size: size, header: make(http.Header)}
		c := &call{entry: j.open("h", "/", "GET"), w: w}
		c.answer(http.StatusOK, typePlain, string(make([]byte, size)))
		if !w.ended || w.got != size {
			t.Errorf("with %d of %d bytes sent, ended = %t; want true with the last one", w.got, size, w.ended)
		}
	}
}

func TestEndOfATakenConnection(t *testing.T) {
	t.Parallel()
	const wrote, broke, gone = 10, 20, 30
	for _, tc := range []struct {
		how                origin.End
		wrote, broke, gone int64
		want               time.Duration // zero means now
		left               bool
	}{
		{origin.EndAnswered, wrote, broke, gone, wrote, false},
		{origin.EndRefused, wrote, broke, gone, wrote, false},
		{origin.EndBroken, wrote, broke, gone, broke, false},
		{origin.EndBroken, 0, broke, 0, broke, false},
		{origin.EndClientGone, wrote, broke, gone, gone, true},
		{origin.EndClientGone, wrote, broke, 0, 0, true}, // a write failed
		{origin.EndRefused, 0, 0, 0, 0, false},
	} {
		j := newJournal()
		conn := &taken{journal: j}
		conn.wrote.Store(tc.wrote)
		conn.broke.Store(tc.broke)
		conn.gone.Store(tc.gone)
		least := j.now()
		at, left := conn.end(tc.how)
		if tc.want == 0 && (at < least || at > j.now()) || tc.want != 0 && at != tc.want || left != tc.left {
			t.Errorf("%q with %d, %d, %d: end = %v, %t; want %v, %t", tc.how, tc.wrote, tc.broke, tc.gone, at, left, tc.want, tc.left)
		}
	}
}

func TestTakenConnectionNotes(t *testing.T) {
	t.Parallel()
	type noted struct{ wrote, broke, gone bool }
	for _, tc := range []struct {
		name string
		do   func(t *testing.T, conn *taken, client net.Conn)
		want noted
	}{
		{"nothing", func(*testing.T, *taken, net.Conn) {}, noted{}},
		{"Write", func(t *testing.T, conn *taken, _ net.Conn) {
			if _, err := conn.Write([]byte("x")); err != nil {
				t.Errorf("Write: %v", err)
			}
		}, noted{wrote: true}},
		{"Read", func(t *testing.T, conn *taken, client net.Conn) {
			if _, err := client.Write([]byte("x")); err != nil {
				t.Errorf("Write: %v", err)
			}
			if n, err := conn.Read(make([]byte, 1)); n != 1 {
				t.Errorf("Read = %d, %v, want 1 byte", n, err)
			}
		}, noted{}},
		{"the client leaves", func(t *testing.T, conn *taken, client net.Conn) {
			client.Close()
			if n, err := conn.Read(make([]byte, 1)); err == nil {
				t.Errorf("Read = %d, nil, want an error", n)
			}
		}, noted{gone: true}},
		{"Close", func(t *testing.T, conn *taken, _ net.Conn) { conn.Close() }, noted{broke: true}},
		{"CloseWrite", func(t *testing.T, conn *taken, _ net.Conn) {
			if err := conn.CloseWrite(); err != nil {
				t.Errorf("CloseWrite: %v", err)
			}
		}, noted{broke: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			client, server := connected(t)
			conn := &taken{Conn: server, journal: newJournal()}
			tc.do(t, conn, client)
			if got := (noted{conn.wrote.Load() > 0, conn.broke.Load() > 0, conn.gone.Load() > 0}); got != tc.want {
				t.Errorf("after %s it has noted %+v, want %+v", tc.name, got, tc.want)
			}
		})
	}
}

// connected returns the two ends of a TCP connection.
func connected(t *testing.T) (client, server net.Conn) {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	must.Succeed(t, err)
	defer l.Close()
	var d net.Dialer
	if client, err = d.DialContext(t.Context(), "tcp4", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}
