package door

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// TestHTTP sends what clients send first to a port for gRPC.
func TestHTTP(t *testing.T) {
	t.Parallel()
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	for _, row := range []struct {
		name, send string
		text       func() string
		refused    bool
	}{
		{"GET", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", func() string { return "elsewhere" }, true},
		{"POST with a body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n" + strings.Repeat("x", 40_000), func() string { return "elsewhere" }, true},
		{"gRPC", preface, func() string { return "elsewhere" }, false},
		{"TLS", "\x16\x03\x01\x00\x05hello", func() string { return "elsewhere" }, false},
		{"a byte", "G", func() string { return "elsewhere" }, false},
		{"no text", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", nil, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				closed := make(chan struct{})
				q := queue{make(chan net.Conn, 1), closed, sync.OnceFunc(func() { close(closed) })}
				l := Listen(q, Limits{Total: 2, PerAddress: 2, Strangers: 2})
				l.AnswerHTTP(row.text)
				accepted := make(chan string, 1)
				go func() {
					c, err := l.AcceptConn()
					if err != nil {
						return
					}
					got, _ := io.ReadAll(iotest.OneByteReader(c)) // ends with the client
					_ = c.Close()
					accepted <- string(got)
				}()
				here, there := net.Pipe()
				q.conns <- end{there, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}, nil}
				go func() { // a client that goes on sending
					_, _ = io.WriteString(here, row.send)
					if !row.refused {
						_ = here.Close()
					}
				}()
				began := time.Now()
				if row.refused {
					resp, err := http.ReadResponse(bufio.NewReader(here), nil)
					if err != nil {
						t.Fatal(err)
					}
					if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "elsewhere\n" || resp.StatusCode != http.StatusBadRequest {
						t.Errorf("%s, %q, %v; want 400 and the text", resp.Status, text, err)
					}
					_, _ = io.Copy(io.Discard, here) // until the listener closes it
					if took, left := time.Since(began), open(l); took > speakTime || left != 0 {
						t.Errorf("closed after %v, with %d connections left; want none after at most %v", took, left, speakTime)
					}
				} else if got := <-accepted; got != row.send {
					t.Errorf("the program read %q, want %q", got, row.send)
				}
				_ = l.Close()
				_ = here.Close()
			})
		})
	}
}

// open returns the number of open connections.
func open(l *Listener) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// TestHTTPClientThatDoesNotRead checks that such a client loses its slot too.
func TestHTTPClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	onPort(t, Limits{Total: 2, PerAddress: 2, Strangers: 2}, func(p *port) {
		p.listener.AnswerHTTP(func() string { return "elsewhere" })
		here, there := net.Pipe()
		defer here.Close()
		p.queue.conns <- end{there, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}, nil}
		if _, err := io.WriteString(here, "GET"); err != nil {
			p.Fatal(err)
		}
		<-time.After(speakTime - 1)
		synctest.Wait()
		before := open(p.listener)
		<-time.After(2)
		synctest.Wait()
		if after := open(p.listener); before != 1 || after != 0 {
			p.Errorf("%d connections, then %d; want 1, then none", before, after)
		}
	})
}
