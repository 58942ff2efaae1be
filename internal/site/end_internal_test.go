package site

import (
	"context"
	"io"
	"net"
	"testing"
	"time"
)

// A client must not hold an answer before the visit has ended: its own clock
// would make the next visit look early.
func TestEndIsNotAfterTheClients(t *testing.T) {
	t.Parallel()
	s, err := Start(Config{Robots: func(string) (int, string) { return 200, string(make([]byte, 1<<20)) }})
	if err != nil {
		t.Fatal(err)
	}
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
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
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
