//go:build linux

package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/conformance/origin"
	"fetchd/fetch"
	"fetchd/test/need"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

// openTLS never answers the ClientHello.
func openTLS(t *testing.T) *peer {
	return openRaw(t, "https", func(c net.Conn) error {
		_, err := c.Read(make([]byte, 1))
		return err
	})
}

// openHead never answers the request.
func openHead(t *testing.T) *peer { return openRaw(t, "http", answer("")) }

// openBody stops after 100 of 100,000 bytes of the body.
func openBody(t *testing.T) *peer {
	return afterHead(openRaw(t, "http", answer("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("x", 100))))
}

// afterHead makes a peer wait until the fetch has read the head of the response.
func afterHead(p *peer) *peer {
	heads := make(chan struct{}, 1)
	p.sink = func(e fetch.Event) error {
		if _, ok := e.(fetch.ResponseStarted); ok {
			heads <- struct{}{}
		}
		return nil
	}
	reached := p.reached
	p.reached = func(ctx context.Context) error {
		if err := reached(ctx); err != nil {
			return err
		}
		_, err := await(ctx, heads)
		return err
	}
	return p
}

// openRedirect redirects with a short body that never arrives. The fetch waits a moment for
// it, to keep the connection.
func openRedirect(t *testing.T) *peer {
	return openRaw(t, "http", answer("HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 100\r\n\r\n"))
}

// openBackoff makes the fetch wait between attempts, when it has no socket.
func openBackoff(t *testing.T) *peer {
	p := openRaw(t, "http", answer("HTTP/1.1 503 Busy\r\nRetry-After: 20\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
	waits := make(chan struct{}, 1)
	p.sink = func(e fetch.Event) error {
		if f, ok := e.(fetch.AttemptFinished); ok && f.Decision.Verdict == classify.Retry {
			waits <- struct{}{}
		}
		return nil
	}
	p.reached = func(ctx context.Context) error { _, err := await(ctx, waits); return err }
	p.closed = nil
	return p
}

// answer reads a request and writes text.
func answer(text string) func(net.Conn) error {
	return func(c net.Conn) error {
		for r := bufio.NewReader(c); ; {
			if line, err := r.ReadString('\n'); err != nil {
				return err
			} else if line == "\r\n" {
				break
			}
		}
		_, err := io.WriteString(c, text)
		return err
	}
}

// openRaw accepts connections, calls lead on each, and then reads until the other side closes
// it.
func openRaw(t *testing.T, scheme string, lead func(net.Conn) error) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reached, closed := make(chan struct{}, 1), make(chan time.Time, 1)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			serveRaw(c, lead, reached, closed)
		}
	})
	t.Cleanup(func() { _ = l.Close(); group.Wait() })
	return &peer{
		config:  config(t, l.Addr().String()),
		url:     func() string { return scheme + "://" + l.Addr().String() + "/" },
		reached: func(ctx context.Context) error { _, err := await(ctx, reached); return err },
		closed:  func(ctx context.Context) (time.Time, error) { return await(ctx, closed) },
	}
}

func serveRaw(c net.Conn, lead func(net.Conn) error, reached chan<- struct{}, closed chan<- time.Time) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second)) // a fault must not make the test hang
	if lead(c) != nil {
		return
	}
	put(reached, struct{}{})
	_, _ = io.Copy(io.Discard, c) // until EOF or a reset
	put(closed, time.Now())
}

// put replaces the value in c, if there is one, with v.
func put[T any](c chan<- T, v T) {
	select {
	case c <- v:
	default:
	}
}

func config(t *testing.T, addresses ...string) fetch.Config {
	t.Helper()
	egress, err := loopback(addresses...)
	if err != nil {
		t.Fatal(err)
	}
	return fetch.Config{Egress: egress}
}

func openHead2(t *testing.T) *peer { return openScript(t, "silent") }
func openBody2(t *testing.T) *peer { return afterHead(openScript(t, "200:size=100000,stall=100")) }

// openScript answers over HTTP/2, where a cancellation ends the stream and keeps the
// connection.
func openScript(t *testing.T, step string) *peer {
	t.Helper()
	o := rig.Origin(t)
	n, key := 0, ""
	var at origin.Request
	p := &peer{config: config(t, o.Addr("https"))}
	p.config.RootCAs = o.CA()
	p.url = func() string {
		n++
		key = fmt.Sprintf("k%d", n)
		return o.URL("https", "/s/"+key+"/"+step)
	}
	p.reached = func(ctx context.Context) (err error) {
		at, err = o.Await(ctx, key, 1)
		if err == nil && at.Protocol != "HTTP/2.0" {
			err = fmt.Errorf("the request arrived over %s", at.Protocol)
		}
		return err
	}
	p.closed = func(ctx context.Context) (time.Time, error) {
		_, err := await(ctx, at.Done)
		return time.Now(), err
	}
	return p
}

// openResolve is a DNS server that never answers. UDP does not report closed sockets: a
// socket is closed when its port can be bound.
func openResolve(t *testing.T) *peer {
	t.Helper()
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan netip.AddrPort, 64)
	var group sync.WaitGroup
	group.Go(func() {
		for buf := make([]byte, 2048); ; {
			_, from, err := server.ReadFromUDPAddrPort(buf)
			if err != nil {
				return // the test is over
			}
			put(asked, from)
		}
	})
	t.Cleanup(func() { _ = server.Close(); group.Wait() })
	p := &peer{config: config(t), url: func() string { return "http://silent.test/" }}
	p.config.Resolver = fetch.Resolver(server.LocalAddr().String())
	var first netip.AddrPort
	p.reached = func(ctx context.Context) (err error) { first, err = await(ctx, asked); return err }
	p.closed = func(ctx context.Context) (time.Time, error) {
		ports := []netip.AddrPort{first}
		for more := true; more; { // the queries for A and AAAA use two sockets
			select {
			case port := <-asked:
				ports = append(ports, port)
			default:
				more = false
			}
		}
		for _, port := range ports {
			if err := wait.Poll(ctx, 500*time.Microsecond, func() (bool, error) {
				c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(port))
				return isClosed(c, err)
			}); err != nil {
				return time.Time{}, err
			}
		}
		return time.Now(), nil
	}
	return p
}

// isClosed evaluates the attempt to bind a port. It releases a port that was free.
func isClosed(taken io.Closer, err error) (bool, error) {
	if errors.Is(err, syscall.EADDRINUSE) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, taken.Close()
}

// openDial is a listener with a full backlog, which drops every SYN. The system's table of
// sockets shows when a socket dials it, and when that socket is closed.
func openDial(t *testing.T) *peer {
	t.Helper()
	address := fullListener(t)
	row := fmt.Appendf(nil, " 0100007F:%04X 02 ", address.Port()) // SYN_SENT to 127.0.0.1
	dialling := func() (bool, error) {
		table, err := os.ReadFile("/proc/net/tcp")
		return bytes.Contains(table, row), err
	}
	if there, err := dialling(); err != nil || there {
		need.Missing(t, "run it where /proc/net/tcp shows all sockets", "the system's table of sockets does not show dialing sockets: %v", err)
	}
	return &peer{
		config:  config(t, address.String()),
		url:     func() string { return "http://" + address.String() + "/" },
		reached: func(ctx context.Context) error { return wait.Poll(ctx, 2*time.Millisecond, dialling) },
		closed: func(ctx context.Context) (time.Time, error) {
			err := wait.Poll(ctx, time.Millisecond, func() (bool, error) { there, err := dialling(); return !there, err })
			return time.Now(), err
		},
	}
}

// fullListener returns a listener with a full backlog. It skips the test if it cannot be filled.
func fullListener(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	bound, ok := name.(*syscall.SockaddrInet4)
	if err != nil || !ok {
		t.Fatalf("name of the listener: %v, %v", name, err)
	}
	address := netip.AddrPortFrom(netip.AddrFrom4(bound.Addr), uint16(bound.Port))
	for range 16 {
		c, err := net.DialTimeout("tcp", address.String(), 100*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	need.Missing(t, "run it on Linux", "the system accepts connections beyond a full backlog, so no SYN is dropped")
	return address
}
