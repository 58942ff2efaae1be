//go:build linux

package limits

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"fetchd/test/selfsigned"
	"fetchd/test/wait"
)

// hostile is an origin that sends heads and coded bodies that conformance/origin does not.
// They are made once and then only written. Its paths are
//
//	/head?…   a head (see [head])
//	/stop?…   the same, except for its end, and then nothing
//	/gate?…   the same as /head, once open is called
//	/coded/br, /coded/zstd   a body that fills the decoder's window, and then nothing
//	/unread   nothing: the request's body is not read
//	/text/…   one of the pages
//
// These paths stall only during a siege. When it ends, stalled connections are closed and
// no head requests a wait, so that queued fetches end soon.
type hostile struct {
	plain, secure net.Listener // HTTP/1.1; HTTP/2 over TLS
	authority     []byte       // PEM of the authority of its certificate

	http1, http2 sync.Map // head → its bytes

	mu      sync.Mutex
	over    chan struct{} // closed at the end of the siege
	gate    chan struct{} // closed by open
	waiting int           // requests at the gate
	conns   map[net.Conn]struct{}
}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	h := &hostile{over: make(chan struct{}), gate: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	certificate, authority, _, err := selfsigned.New()
	if err != nil {
		t.Fatal(err)
	}
	h.authority = authority
	if h.plain, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	under, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.secure = tls.NewListener(under, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13})
	var running sync.WaitGroup
	running.Go(func() { h.accept(&running, h.plain, h.serveHTTP1) })
	running.Go(func() { h.accept(&running, h.secure, h.serveHTTP2) })
	t.Cleanup(func() {
		_, _ = h.plain.Close(), h.secure.Close()
		h.mu.Lock()
		for c := range h.conns {
			c.Close()
		}
		h.conns = nil
		h.mu.Unlock()
		h.open()
		running.Wait()
	})
	return h
}

func (h *hostile) accept(running *sync.WaitGroup, l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // closed
		}
		h.mu.Lock()
		if h.conns == nil { // the test is over
			h.mu.Unlock()
			c.Close()
			return
		}
		h.conns[c] = struct{}{}
		h.mu.Unlock()
		running.Go(func() {
			serve(c)
			c.Close()
			h.mu.Lock()
			delete(h.conns, c)
			h.mu.Unlock()
		})
	}
}

// siege begins a siege.
func (h *hostile) siege(d time.Duration) {
	over := make(chan struct{})
	h.mu.Lock()
	h.over = over
	h.mu.Unlock()
	time.AfterFunc(d, func() { close(over) })
}

// siegeEnd returns a channel that is closed at the end of the siege.
func (h *hostile) siegeEnd() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over
}

// peace reports whether the siege is over.
func (h *hostile) peace() bool {
	select {
	case <-h.siegeEnd():
		return true
	default:
		return false
	}
}

// stall waits until the siege is over or the client disconnects.
func (h *hostile) stall(c net.Conn) {
	go func() {
		<-h.siegeEnd()
		_ = c.SetReadDeadline(time.Now())
	}()
	_, _ = c.Read(make([]byte, 1)) // a request in flight has nothing more to read
}

// asked returns the head that u requests.
func (h *hostile) asked(u *url.URL) head {
	asked := parseHead(u.Query())
	if h.peace() {
		asked.status, asked.retryAfter = http.StatusOK, 0
	}
	return asked
}

// wait waits at the gate.
func (h *hostile) wait() {
	h.mu.Lock()
	gate := h.gate
	h.waiting++
	h.mu.Unlock()
	<-gate
}

// open lets all requests at the gate pass.
func (h *hostile) open() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.gate)
	h.gate, h.waiting = make(chan struct{}), 0
}

// crowd waits until n requests are at the gate, or until none has come for a second,
// because the service may have refused the others.
func (h *hostile) crowd(ctx context.Context, n int) {
	last, since := 0, time.Now()
	_ = wait.Until(ctx, 20*time.Millisecond, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.waiting != last {
			last, since = h.waiting, time.Now()
		}
		return last >= n || time.Since(since) > time.Second
	})
}

// url returns the URL of a path and query.
func (h *hostile) url(secure bool, path string) string {
	if secure {
		return "https://" + h.secure.Addr().String() + path
	}
	return "http://" + h.plain.Addr().String() + path
}

// serveHTTP1 answers requests. A stalled request ends its connection.
func (h *hostile) serveHTTP1(c net.Conn) {
	for r := bufio.NewReader(c); ; {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		switch path := req.URL.Path; path {
		case "/gate":
			h.wait()
			fallthrough
		case "/head":
			_, err = c.Write(append(h.http1Head(req.URL), "\r\n"...))
		case "/stop":
			_, _ = c.Write(h.http1Head(req.URL)) // the client may have disconnected
			h.stall(c)
			return
		case "/coded/zstd", "/coded/br":
			if h.peace() {
				_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				break
			}
			coding := path[len("/coded/"):]
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nConnection: close\r\n\r\n", coding)
			_, _ = c.Write(windows()[coding])
			h.stall(c)
			return
		case "/unread":
			<-h.siegeEnd()
			return
		case "/text/lists", "/text/attributes", "/text/menus", "/text/nested", "/text/large":
			page := pages()[path[len("/text/"):]]
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n", len(page))
			_, err = c.Write(page)
		default:
			_, err = io.WriteString(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
		}
		if err != nil {
			return
		}
	}
}

// pages are pages whose text costs much to make, by name.
var pages = sync.OnceValue(func() map[string][]byte {
	attributes := new(strings.Builder)
	for i := range 200_000 {
		fmt.Fprintf(attributes, " a%d", i)
	}
	return map[string][]byte{
		"lists":      bytes.Repeat([]byte("<li>a"), 16<<20/5),
		"attributes": []byte("<p" + attributes.String() + ">text"),
		"menus":      bytes.Repeat([]byte("<nav><ul><li><a href=/>menu</a></ul></nav>"), 100_000),
		"nested":     append(bytes.Repeat([]byte("<div>"), 135_000/5), "text"...),
		"large":      bytes.Repeat([]byte("<p>A paragraph of forty characters.</p>\n"), 2<<20/40),
	}
})

// http1Head returns the head that u requests.
func (h *hostile) http1Head(u *url.URL) []byte {
	asked := h.asked(u)
	made, ok := h.http1.Load(asked)
	if !ok {
		made, _ = h.http1.LoadOrStore(asked, asked.http1())
	}
	bytes, _ := made.([]byte)
	return bytes[:len(bytes):len(bytes)] // appending makes a copy
}
