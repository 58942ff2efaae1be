//go:build unix

package conns

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Types of TLS records.
const (
	alert     = 21
	handshake = 22
	data      = 23
)

// sealer writes TLS 1.3 records of an origin itself, because crypto/tls sends nothing unasked
// behind the handshake.
type sealer struct {
	net.Conn
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	number uint64 // of the next record
}

// secret is a key log that keeps the secret of what the origin sends.
type secret []byte

func (s *secret) Write(line []byte) (int, error) {
	if words := strings.Fields(string(line)); words[0] == "SERVER_TRAFFIC_SECRET_0" {
		*s, _ = hex.DecodeString(words[2])
	}
	return len(line), nil
}

// secure makes the handshake of an origin, and returns a writer and a reader.
func secure(t *testing.T, c net.Conn) (*sealer, *bufio.Reader) {
	t.Helper()
	var log secret
	certificate, _ := testCertificate()
	s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, KeyLogWriter: &log})
	if err := s.Handshake(); err != nil {
		t.Error(err)
		return &sealer{Conn: c}, bufio.NewReader(c)
	}
	if suite := s.ConnectionState().CipherSuite; suite != tls.TLS_AES_128_GCM_SHA256 {
		t.Errorf("the handshake chose %s", tls.CipherSuiteName(suite))
	}
	w := &sealer{Conn: c}
	w.use(log)
	return w, bufio.NewReader(s)
}

// use changes the secret that the keys come from (RFC 8446 §7.3).
func (s *sealer) use(secret []byte) {
	block, _ := aes.NewCipher(expand(secret, "key", 16))
	s.aead, _ = cipher.NewGCM(block)
	s.secret, s.iv, s.number = secret, expand(secret, "iv", 12), 0
}

// expand is HKDF-Expand-Label of RFC 8446 §7.1 without a context.
func expand(secret []byte, label string, n int) []byte {
	label = "tls13 " + label
	info := binary.BigEndian.AppendUint16(nil, uint16(n)) //nolint:gosec // a length of a key
	info = append(append(append(info, byte(len(label))), label...), 0)
	key, _ := hkdf.Expand(sha256.New, secret, string(info), n)
	return key
}

// seal returns a record.
func (s *sealer) seal(kind byte, content []byte) []byte {
	inner := append(slices.Clone(content), kind)
	head := binary.BigEndian.AppendUint16([]byte{data, 3, 3}, uint16(len(inner)+s.aead.Overhead())) //nolint:gosec // a short record
	nonce := slices.Clone(s.iv)
	number := binary.BigEndian.Uint64(nonce[4:]) ^ s.number
	binary.BigEndian.PutUint64(nonce[4:], number)
	s.number++
	return s.aead.Seal(slices.Clone(head), nonce, inner, head)
}

func (s *sealer) send(kind byte, content []byte) { s.sendAll(s.seal(kind, content)) }

// sendAll sends records at once: who sees the first in the kernel sees them all.
func (s *sealer) sendAll(records ...[]byte) { _, _ = s.Conn.Write(slices.Concat(records...)) }

// Write writes application data in one record.
func (s *sealer) Write(p []byte) (int, error) {
	if s.aead == nil {
		return 0, net.ErrClosed
	}
	return s.Conn.Write(s.seal(data, p))
}

// ticket is a NewSessionTicket of an hour (RFC 8446 §4.6.1).
var ticket = []byte{4, 0, 0, 18, 0, 0, 14, 16, 0, 0, 0, 0, 1, 0, 0, 4, 't', 'e', 's', 't', 0, 0}

func (s *sealer) updateKeys() {
	s.send(handshake, []byte{24, 0, 0, 1, 0}) // a KeyUpdate that asks for none
	s.use(expand(s.secret, "traffic upd", 32))
}

// noSweeps stops the sweeps of a pool with an idle connection.
func (o *testOrigin) noSweeps() {
	o.Helper()
	until(o.T, o.ctx, "no sweep runs", func() bool {
		o.pool.mu.Lock()
		defer o.pool.mu.Unlock()
		return o.pool.sweeps != nil && o.pool.sweeps.Stop()
	})
}

// get makes an exchange to its end, and returns the body.
func (o *testOrigin) get() (string, *conn, Report) {
	o.Helper()
	x := o.open(Settings{})
	c := x.conn
	defer x.End()
	resp, err := x.RoundTrip(shape{method: http.MethodGet}.request(o.target.URL, "/"))
	if err != nil {
		o.Error(err)
		return "", c, x.Report()
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		o.Error(err)
	}
	return string(body), c, x.Report()
}

const okay = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nokay"

// idleFault is what an origin does on an idle connection.
type idleFault struct {
	name   string
	plain  func(net.Conn)
	sealed func(*sealer)
	state  idleState
}

var idleFaults = []idleFault{
	{name: "a close", plain: func(c net.Conn) { _ = c.Close() }, state: gone},
	{name: "a reset", plain: resetTCP, state: gone},
	{name: "a byte", plain: func(c net.Conn) { _, _ = io.WriteString(c, "x") }, state: spoke},
	{name: "a response", plain: func(c net.Conn) { _, _ = io.WriteString(c, okay) }, state: spoke},
	{name: "a response and a close", plain: func(c net.Conn) { _, _ = io.WriteString(c, okay); _ = c.Close() }, state: spoke},

	{name: "a session ticket", sealed: func(s *sealer) { s.send(handshake, ticket) }, state: quiet},
	{name: "ten session tickets", sealed: func(s *sealer) {
		for range 10 {
			s.send(handshake, ticket)
		}
	}, state: quiet},
	{name: "two session tickets in a record", sealed: func(s *sealer) { s.send(handshake, append(slices.Clone(ticket), ticket...)) }, state: quiet},
	{name: "a KeyUpdate", sealed: (*sealer).updateKeys, state: quiet},
	{name: "a session ticket and a KeyUpdate", sealed: func(s *sealer) { s.send(handshake, ticket); s.updateKeys() }, state: quiet},
	{name: "a record without data", sealed: func(s *sealer) { s.send(data, nil) }, state: quiet},
	{name: "close_notify", sealed: func(s *sealer) { s.send(alert, []byte{1, 0}) }, state: gone},
	{name: "an alert", sealed: func(s *sealer) { s.send(alert, []byte{2, 80}) }, state: gone},
	{name: "a session ticket and close_notify", sealed: func(s *sealer) { s.sendAll(s.seal(handshake, ticket), s.seal(alert, []byte{1, 0})) }, state: gone},
	{name: "a close", sealed: func(s *sealer) { _ = s.Close() }, state: gone},
	{name: "a reset", sealed: func(s *sealer) { resetTCP(s.Conn) }, state: gone},
	{name: "no record", sealed: func(s *sealer) { _, _ = s.Conn.Write([]byte("HTTP/1.1 408 x\r\n\r\n")) }, state: gone},
	{name: "a byte", sealed: func(s *sealer) { _, _ = s.Write([]byte("x")) }, state: spoke},
	{name: "a response", sealed: func(s *sealer) { _, _ = s.Write([]byte(okay)) }, state: spoke},
	{name: "a session ticket and a response", sealed: func(s *sealer) { s.sendAll(s.seal(handshake, ticket), s.seal(data, []byte(okay))) }, state: spoke},
}

const onSlowMachine = "next exchange on a slow machine"

func resetTCP(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// TestIdle checks what becomes of an idle connection on which the origin does something: a sweep, and
// the next exchange, close it, or keep it if that was TLS alone.
func TestIdle(t *testing.T) {
	t.Parallel()
	for _, f := range idleFaults {
		for _, how := range []string{"sweep", "next exchange", onSlowMachine} {
			name := f.name + ", TCP, " + how
			if f.sealed != nil {
				name = f.name + ", TLS, " + how
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := f
				if f.sealed != nil && how == onSlowMachine {
					f.state = gone // it is not known what the record is
				}
				f.check(t, how, false)
			})
			if f.sealed == nil {
				continue
			}
			t.Run(f.name+", TLS to a proxy, "+how, func(t *testing.T) {
				t.Parallel()
				f := f
				if how == onSlowMachine {
					f.state = gone
				}
				f.check(t, how, true)
			})
		}
	}
}

func (f idleFault) check(t *testing.T, how string, proxied bool) {
	var slow atomic.Bool
	o := newTestOrigin(t, func(c *net.TCPConn) net.Conn { return &slowConn{TCPConn: c, slow: &slow} })
	o.encrypt(f.sealed != nil, proxied)
	begin := make(chan struct{})
	o.scripts.Go(func() { // the origin answers twice
		c, in := o.accept()
		var to io.Writer = c
		s := &sealer{Conn: c}
		if f.sealed != nil {
			s, in = secure(t, c)
			to = s
		}
		readHead(in)
		_, _ = io.WriteString(to, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst")
		<-begin
		if f.sealed != nil {
			f.sealed(s)
		} else {
			f.plain(c)
		}
		if f.state != quiet {
			c, in = o.accept()
			to = c
			if f.sealed != nil {
				to, in = secure(t, c)
			}
		}
		readHead(in)
		_, _ = io.WriteString(to, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond")
	})
	body, c, _ := o.get()
	if body != "first" {
		t.Errorf("the first body is %q", body)
	}
	o.noSweeps()
	before := c.socket.bytes.Load()
	close(begin)
	until(t, o.ctx, "the kernel has it", func() bool { return len(waiting([]*conn{c})) > 0 })
	want := Stats{Open: 1, Idle: 1, Dialled: 1}
	if f.state != quiet {
		want = Stats{Dialled: 1, Stale: 1}
	}
	if f.state == spoke {
		want.Surplus = 1
	}
	slow.Store(how == onSlowMachine)
	if how == "sweep" {
		o.pool.sweep()
		until(t, o.ctx, "the connection is closed", func() bool { return o.pool.open.Load() == int64(want.Open) })
		if got := o.pool.Stats(); got != want {
			t.Errorf("after a sweep %+v, want %+v", got, want)
		}
		if f.state == quiet && c.socket.bytes.Load() == before {
			t.Error("the sweep has not read the record")
		}
	}
	body, _, report := o.get()
	if body != "second" || report.Reused != (f.state == quiet) {
		t.Fatalf("the second body is %q, over a connection that was reused: %t", body, report.Reused)
	}
	if got := o.pool.Stats(); got.Stale != want.Stale || got.Surplus != want.Surplus {
		t.Errorf("at the end %+v, want %d stale, %d surplus", got, want.Stale, want.Surplus)
	}
}

// slowConn is a connection whose deadlines do not depend on the machine. With a deadline a read gets what
// the kernel has and does not wait, or if slow is set, it comes too late for that.
type slowConn struct {
	*net.TCPConn
	slow     *atomic.Bool
	deadline time.Time
}

func (c *slowConn) SetReadDeadline(t time.Time) error { c.deadline = t; return nil }

func (c *slowConn) Read(p []byte) (n int, err error) {
	switch {
	case c.deadline.IsZero():
		return c.TCPConn.Read(p)
	case c.slow.Load():
		return 0, os.ErrDeadlineExceeded
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var got error
	if err := raw.Read(func(fd uintptr) bool { n, got = unix.Read(int(fd), p); return true }); err != nil { //nolint:gosec // a descriptor is small
		return 0, err
	}
	switch {
	case errors.Is(got, unix.EAGAIN):
		return 0, os.ErrDeadlineExceeded
	case got != nil:
		return 0, got
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// TestOneRecord checks that what follows a response in the same TLS record is never the answer to the
// next request. It has been read from the socket, and is inside crypto/tls.
func TestOneRecord(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		length  int // of the response that was asked for, with its head
		behind  string
		proxied bool
	}{
		{"a response behind as much as one read takes", readBytes, okay, false},
		{"the same, from a proxy", readBytes, okay, true},
		{"a byte behind as much as one read takes", readBytes, "x", false},
		{"a response behind two reads", 2 * readBytes, okay, false},
		{"a response in the same read", 1000, okay, false},
		{"a response of 8 KiB", readBytes, "HTTP/1.1 200 OK\r\nContent-Length: 8192\r\n\r\n" + strings.Repeat("x", 8192), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			o := newTestOrigin(t, nil)
			o.encrypt(true, row.proxied)
			const head = "HTTP/1.1 200 OK\r\nContent-Length: %05d\r\n\r\n"
			first := strings.Repeat("f", row.length-len(head)+len("%05d")-len("00000"))
			o.scripts.Go(func() {
				c, _ := o.accept()
				s, in := secure(t, c)
				readHead(in)
				_, _ = fmt.Fprintf(s, head+"%s%s", len(first), first, row.behind)
				c, _ = o.accept()
				s, in = secure(t, c)
				readHead(in)
				_, _ = io.WriteString(s, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond")
			})
			if body, _, _ := o.get(); body != first {
				t.Errorf("the first body is %.50q", body)
			}
			body, _, report := o.get()
			if body != "second" || report.Reused {
				t.Fatalf("the second body is %.50q, over a connection that was reused: %t", body, report.Reused)
			}
			if got := o.pool.Stats(); got.Surplus != 1 {
				t.Errorf("%+v, want 1 surplus", got)
			}
		})
	}
}
