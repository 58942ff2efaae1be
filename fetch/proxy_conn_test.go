package fetch_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
)

// TestSilentProxy checks that a connection ends with the fetch that it was made for, at whatever point of
// its handshake a proxy falls silent. The bubble notices a goroutine that stays.
func TestSilentProxy(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, proxy, target, says string }{
		{"http, asked to CONNECT", "http://origin.example:3128", "https", ""},
		{"http, in the head of its answer", "http://origin.example:3128", "https", "HTTP/1.1 200 OK\r\n"},
		{"http, in the origin's handshake", "http://origin.example:3128", "https", "HTTP/1.1 200 OK\r\n\r\n"},
		{"http, asked for a page", "http://origin.example:3128", "http", ""},
		{"https, in its handshake", "https://silent.example:3128", "https", ""},
		{"https, asked to CONNECT", "https://origin.example:3128", "https", ""},
		{"https, in the origin's handshake", "https://origin.example:3128", "https", "HTTP/1.1 200 OK\r\n\r\n"},
		{"https, asked for a page", "https://origin.example:3128", "http", ""},
		{"socks5, greeted", "socks5://origin.example:3128", "http", ""},
		{"socks5, asked to connect", "socks5://origin.example:3128", "http", "\x05\x00"},
		{"socks5 with a password, greeted", "socks5://user:secret@origin.example:3128", "https", ""},
		{"socks5 with a password, given it", "socks5://user:secret@origin.example:3128", "https", "\x05\x02"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				at, err := url.Parse(row.proxy)
				if err != nil {
					t.Fatal(err)
				}
				certificate, roots := selfSigned(t)
				var open atomic.Int64
				var theirs []net.Conn
				c, err := fetch.New(fetch.Config{
					Egress: unrestricted, RootCAs: roots, Proxy: at,
					Dial: func(context.Context, string, string) (net.Conn, error) {
						ours, its := net.Pipe()
						theirs = append(theirs, its)
						open.Add(1)
						go func() {
							defer open.Add(-1)
							if at.Scheme == "https" && at.Hostname() != "silent.example" {
								its = tls.Server(its, &tls.Config{Certificates: []tls.Certificate{certificate}})
							}
							fallSilent(its, row.says)
						}()
						return ours, nil
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				const fetches = 20
				for i := range fetches {
					r := get(t, fmt.Sprintf("%s://origin%d.example/", row.target, i))
					r.TotalTimeout = 100 * time.Millisecond
					if out := c.Fetch(t.Context(), r, nil); out.Kind != classify.Failed {
						t.Errorf("%s, want failed", out.Kind)
					}
				}
				time.Sleep(time.Second) //nolint:forbidigo // of the bubble
				if n := open.Load(); n != 0 || len(theirs) != fetches {
					t.Errorf("%d of %d connections are still open after a second, want none of %d", n, len(theirs), fetches)
				}
				for _, conn := range theirs { // so that the other rows get their turn
					_ = conn.Close()
				}
				c.Close()
			})
		})
	}
}

// fallSilent reads what comes, and says its one thing after the first of it.
func fallSilent(conn net.Conn, says string) {
	buf := make([]byte, 4<<10)
	if _, err := conn.Read(buf); err == nil {
		_, _ = io.WriteString(conn, says)
	}
	_, _ = io.Copy(io.Discard, conn)
}

// socksProxy connects every client to one address, and returns its own address.
func socksProxy(t *testing.T, target string) string {
	t.Helper()
	return serveConns(t, func(here net.Conn, _ int) { carry(here, target) })
}

// carry is SOCKS 5 as far as a client without a password takes it (RFC 1928).
func carry(here net.Conn, target string) {
	head := make([]byte, 5) // version, command, reserved, type of address, the length of a name
	_, greeted := io.ReadFull(here, head[:3])
	_, answered := here.Write([]byte{5, 0})
	_, asked := io.ReadFull(here, head)
	if errors.Join(greeted, answered, asked) != nil {
		return
	}
	rest := int64(head[4]) + 2 // with the port
	if head[3] == 1 {          // an IPv4 address
		rest = 3 + 2
	}
	if _, err := io.CopyN(io.Discard, here, rest); err != nil {
		return
	}
	there, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer there.Close()
	if _, err := here.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0}); err != nil {
		return
	}
	go func() { _, _ = io.Copy(there, here); _ = there.Close() }()
	_, _ = io.Copy(here, there)
}
