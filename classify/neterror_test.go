package classify_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/http2"

	"fetchd/classify"
	"fetchd/conformance/origin"
	"fetchd/test/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// form is an error as callers may wrap it.
type form struct {
	name string
	err  error
}

func wrappings(err error) []form {
	return []form{
		{"bare", err},
		{"wrapped", fmt.Errorf("fetch: %w", err)},
		{"wrapped twice", fmt.Errorf("fetch: %w", fmt.Errorf("attempt 1: %w", err))},
		{"with another", fmt.Errorf("%w: %w", errors.New("fetch"), err)},
		{"joined", errors.Join(errors.New("close: no matter"), err)},
		{"joined and wrapped", fmt.Errorf("fetch: %w", errors.Join(err, errors.New("close: no matter")))},
		{"in a url.Error", &url.Error{Op: "Get", URL: "http://origin.example/", Err: err}},
	}
}

// phases lists every phase and one unknown number.
var phases = []classify.Phase{
	classify.NoPhase, classify.PhasePolicy, classify.PhaseResolve, classify.PhaseConnect, classify.PhaseTLS,
	classify.PhaseRequest, classify.PhaseProcessing, classify.PhaseTransfer, 200,
}

// TestError checks the class of real errors in each phase, however they are wrapped. The classes are in the
// order of phases.
func TestError(t *testing.T) {
	t.Parallel()
	o := startOrigin(t)
	const (
		cancelled, internal, deadline = classify.Cancelled, classify.Internal, classify.Deadline
		notFound, failure             = classify.DNSNotFound, classify.DNSFailure
		refused, timeout, connect     = classify.ConnectRefused, classify.ConnectTimeout, classify.ConnectFailure
		reset, protocol, body         = classify.ConnectionReset, classify.Protocol, classify.BodyInterrupted
		handshake, certificate        = classify.TLSHandshake, classify.TLSCertificate
	)
	io9 := [9]classify.Class{internal, internal, failure, connect, handshake, reset, reset, body, internal}
	alert := [9]classify.Class{handshake, handshake, failure, handshake, handshake, handshake, handshake, body, internal}
	untrusted := [9]classify.Class{certificate, certificate, failure, certificate, certificate, certificate, certificate, certificate, certificate}
	silent := func(t *testing.T) net.Conn { return dialed(t, o.Addr("tcp-silent")) }
	lookup := func(code dnsmessage.RCode) func(*testing.T) error {
		return func(t *testing.T) error { return lookupError(t.Context(), t, nameServer(t, code, false)) }
	}
	shake := func(listener string) func(*testing.T) error {
		return func(t *testing.T) error { return handshakeError(t, o, listener) }
	}
	for _, tt := range []struct {
		name string
		make func(t *testing.T) error
		want [9]classify.Class
	}{
		{"refused", func(t *testing.T) error {
			var d net.Dialer
			_, err := d.DialContext(t.Context(), "tcp", o.Addr("refused"))
			return err
		}, [9]classify.Class{internal, internal, failure, refused, handshake, reset, reset, body, internal}},
		{"reset", resetError, [9]classify.Class{internal, internal, failure, reset, handshake, reset, reset, body, internal}},
		{"closed", func(t *testing.T) error {
			_, err := dialed(t, o.Addr("tcp-close")).Read(make([]byte, 1))
			return err
		}, io9},
		{"closed by ourselves", func(t *testing.T) error {
			conn := silent(t)
			_ = conn.Close()
			_, err := conn.Read(make([]byte, 1))
			return err
		}, io9},
		{"too short", func(t *testing.T) error {
			_, err := io.ReadFull(strings.NewReader("a"), make([]byte, 2))
			return err
		}, io9},
		{"no descriptor for a socket", func(*testing.T) error {
			return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)}
		}, all(internal)},
		{"no descriptor in the whole system, for a lookup", func(*testing.T) error {
			return &net.DNSError{Name: "origin.example", UnwrapErr: os.NewSyscallError("socket", syscall.ENFILE)}
		}, all(internal)},
		{"a pipe that is closed", func(*testing.T) error {
			r, w := io.Pipe()
			_ = r.Close()
			_, err := io.WriteString(w, "a")
			return err
		}, io9},
		{"time-out of a connection", func(t *testing.T) error {
			conn := silent(t)
			must.Succeed(t, conn.SetDeadline(time.Unix(1, 0)))
			_, err := conn.Read(make([]byte, 1))
			return err
		}, timeouts(deadline, failure, timeout)},
		{"time-out of a context", func(t *testing.T) error {
			ctx, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
			defer cancel()
			return ctx.Err()
		}, timeouts(deadline, failure, timeout)},
		{"time-out of the kernel", func(*testing.T) error {
			return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ETIMEDOUT)}
		}, timeouts(deadline, failure, timeout)},
		{"cancelled", func(t *testing.T) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx.Err()
		}, all(cancelled)},
		{"no such name", lookup(dnsmessage.RCodeNameError), all(notFound)},
		{"a name without addresses", lookup(dnsmessage.RCodeSuccess), all(notFound)},
		{"name server fails", lookup(dnsmessage.RCodeServerFailure), all(failure)},
		{"name server does not answer", func(t *testing.T) error {
			ctx, cancel := context.WithTimeout(t.Context(), short)
			defer cancel()
			return lookupError(ctx, t, nameServer(t, dnsmessage.RCodeSuccess, true))
		}, all(failure)},
		{"lookup cancelled", func(t *testing.T) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return lookupError(ctx, t, nameServer(t, dnsmessage.RCodeSuccess, true))
		}, all(cancelled)},
		{"certificate expired", shake("tls-expired"), untrusted},
		{"certificate of another name", shake("tls-wrong-name"), untrusted},
		{"certificate of an unknown authority", shake("tls-unknown-ca"), untrusted},
		{"a certificate that nobody has read", func(t *testing.T) error {
			_, err := new(x509.Certificate).Verify(x509.VerifyOptions{Roots: x509.NewCertPool(), DNSName: "origin.test"})
			return err
		}, [9]classify.Class{internal, internal, failure, connect, handshake, protocol, protocol, body, internal}},
		{"alert", shake("tls-old"), alert},
		{"no TLS record", shake("tls-plain"), alert},
		// In TLS 1.3 the server checks the client's certificate after the client's handshake.
		{"alert in place of the head", func(t *testing.T) error {
			conn := tls.Client(dialed(t, o.Addr("mtls")), &tls.Config{RootCAs: o.CA(), ServerName: "127.0.0.1"})
			must.Succeed(t, conn.HandshakeContext(t.Context()))
			_, err := conn.Read(make([]byte, 1))
			return err
		}, alert},
		{"stream ended for a breach", func(t *testing.T) error {
			return http2Error(t, o, http.MethodPost, o.URL("h2fault", "/s/breach/h2-rst:code=3"))
		}, [9]classify.Class{protocol, protocol, failure, protocol, handshake, protocol, protocol, body, internal}},
		{"stream given up", func(t *testing.T) error {
			return http2Error(t, o, http.MethodPost, o.URL("h2fault", "/s/given-up/h2-rst:code=2"))
		}, [9]classify.Class{reset, reset, failure, reset, handshake, reset, reset, body, internal}},
		{"GOAWAY", func(t *testing.T) error {
			return http2Error(t, o, http.MethodGet, "http://"+serveGoAway(t, http2.ErrCodeInternal)+"/")
		}, [9]classify.Class{reset, reset, failure, reset, handshake, reset, reset, body, internal}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.make(t)
			if err == nil {
				t.Fatal("no error was made")
			}
			for _, form := range wrappings(err) {
				for i, phase := range phases {
					if got := classify.Error(phase, form.err); got != tt.want[i] {
						t.Errorf("%s: Error(%d %s, %v) = %q, want %q", form.name, phase, phase, form.err, got, tt.want[i])
					}
				}
			}
		})
	}
}

// TestErrorOverHTTP2 checks the errors with which net/http reports each code of HTTP/2: their types are not exported.
// Package fetch tests what else origins do.
func TestErrorOverHTTP2(t *testing.T) {
	t.Parallel()
	o := startOrigin(t)
	for code := http2.ErrCode(0); code <= http2.ErrCodeHTTP11Required; code++ {
		want := classify.ConnectionReset
		switch code {
		case http2.ErrCodeProtocol, http2.ErrCodeFlowControl, http2.ErrCodeStreamClosed, http2.ErrCodeFrameSize,
			http2.ErrCodeCompression, http2.ErrCodeInadequateSecurity, http2.ErrCodeHTTP11Required,
			http2.ErrCodeRefusedStream: // net/http cannot send the request again, so its error has no type
			want = classify.Protocol
		}
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			err := http2Error(t, o, http.MethodPost, o.URL("h2fault", fmt.Sprintf("/s/k%d/h2-rst:code=%d", code, code)))
			if got := classify.Error(classify.PhaseProcessing, err); got != want {
				t.Errorf("Error(%v) = %q, want %q", err, got, want)
			}
		})
	}
}

func all(c classify.Class) [9]classify.Class { return [9]classify.Class{c, c, c, c, c, c, c, c, c} }

// timeouts are the classes of a timeout in the order of phases.
func timeouts(deadline, lookup, connect classify.Class) [9]classify.Class {
	return [9]classify.Class{
		deadline, deadline, lookup, connect, connect,
		classify.WriteTimeout, classify.ResponseTimeout, classify.BodyTimeout, deadline,
	}
}

// TestErrorWithoutType checks that the phase decides the class of an untyped error
// (spec §3), and that its text never matters.
func TestErrorWithoutType(t *testing.T) {
	t.Parallel()
	want := []classify.Class{
		classify.Internal, classify.Internal, classify.DNSFailure, classify.ConnectFailure, classify.TLSHandshake,
		classify.Protocol, classify.Protocol, classify.BodyInterrupted, classify.Internal,
	}
	for _, text := range []string{
		"", "no such host", "connection refused", "connection reset by peer", "EOF", "unexpected EOF", "i/o timeout",
		"context canceled", "context deadline exceeded", "x509: certificate has expired or is not yet valid",
		"remote error: tls: bad certificate", "http2: server sent GOAWAY and closed the connection",
		"stream error: stream ID 1; INTERNAL_ERROR; received from peer", "http: server closed idle connection",
	} {
		for i, phase := range phases {
			for _, form := range wrappings(errors.New(text)) {
				if got := classify.Error(phase, form.err); got != want[i] {
					t.Errorf("%s: Error(%d %s, an error that says %q) = %q, want %q", form.name, phase, phase, text, got, want[i])
				}
			}
		}
	}
}

func TestErrorOfNil(t *testing.T) {
	t.Parallel()
	for _, phase := range phases {
		if got := classify.Error(phase, nil); got != classify.NoClass {
			t.Errorf("Error(%d %s, nil) = %q, want no class", phase, phase, got)
		}
	}
}

// known is an error that knows its class.
type known struct{ class classify.Class }

// Error implements error.
func (k known) Error() string { return "known" }

// ErrorClass implements classify.Classified.
func (k known) ErrorClass() classify.Class { return k.class }

// TestClassified checks that a Classified error keeps its class in each phase and form.
func TestClassified(t *testing.T) {
	t.Parallel()
	for _, class := range classify.Classes() {
		err := error(known{class})
		forms := append(wrappings(err),
			form{"before a cancel", errors.Join(err, context.Canceled)},
			form{"after a cancel", errors.Join(context.Canceled, err)},
			form{"after a time-out", fmt.Errorf("%w: %w", context.DeadlineExceeded, err)},
			form{"over an end", fmt.Errorf("%w: %w", io.EOF, err)})
		for _, phase := range phases {
			for _, form := range forms {
				if got := classify.Error(phase, form.err); got != class {
					t.Errorf("%s: Error(%d %s, %v) = %q, want %q", form.name, phase, phase, form.err, got, class)
				}
			}
		}
	}
}

// These helpers produce real network errors for the tables of neterror_test.go.

// short is a limit that is certain to pass if the peer never answers.
const short = 20 * time.Millisecond

func startOrigin(t *testing.T) *origin.Origin {
	t.Helper()
	o, err := origin.Start(origin.Config{Seed: 1})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// http2Error requests a URL over HTTP/2, and returns the error. A POST is sent once, because its body cannot be read
// twice: net/http sends a GET again after some errors.
func http2Error(t *testing.T, o *origin.Origin, method, url string) error {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: o.CA()}, Protocols: new(http.Protocols), DisableCompression: true}
	transport.Protocols.SetHTTP2(true)
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	var body io.Reader
	if method == http.MethodPost {
		body = struct{ io.Reader }{strings.NewReader("once")}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	must.Succeed(t, err)
	resp, err := transport.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

// dialed returns a raw connection that is closed at the end of the test.
func dialed(t *testing.T, addr string) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// resetError reads from a connection that is reset after the first byte sent.
func resetError(t *testing.T) error {
	addr := serveRaw(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1))
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // closing sends RST
		}
	})
	conn := dialed(t, addr)
	if _, err := io.WriteString(conn, "a"); err != nil {
		t.Fatal(err)
	}
	_, err := conn.Read(make([]byte, 1))
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read: %v, want a reset", err)
	}
	return err
}

// handshakeError runs a TLS handshake with a listener of the origin.
func handshakeError(t *testing.T, o *origin.Origin, listener string) error {
	t.Helper()
	return tls.Client(dialed(t, o.Addr(listener)), &tls.Config{RootCAs: o.CA(), ServerName: "127.0.0.1"}).HandshakeContext(t.Context())
}

// serveRaw listens on a port, calls do with the first connection and closes it.
// It returns the address.
func serveRaw(t *testing.T, do func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		do(conn)
	}()
	return l.Addr().String()
}

// serveGoAway speaks HTTP/2 with prior knowledge until a request arrives, and then sends a GOAWAY.
func serveGoAway(t *testing.T, code http2.ErrCode) string {
	t.Helper()
	return serveRaw(t, func(conn net.Conn) {
		if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		f := http2.NewFramer(conn, conn)
		if f.WriteSettings() != nil {
			return
		}
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if frame.Header().Type == http2.FrameHeaders {
				_ = f.WriteGoAway(frame.Header().StreamID, code, nil)
				// Everything is read first: closing with unread bytes sends a reset.
				if half, ok := conn.(*net.TCPConn); ok && half.CloseWrite() == nil {
					_, _ = io.Copy(io.Discard, conn)
				}
				return
			}
		}
	})
}

// nameServer starts a DNS server that answers every query with the code, or not
// at all if silent is set. It returns a resolver that uses only this server.
func nameServer(t *testing.T, code dnsmessage.RCode, silent bool) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	must.Succeed(t, err)
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	go func() {
		defer close(done)
		buffer := make([]byte, 4096)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			if reply := answer(buffer[:n], code); reply != nil && !silent {
				_, _ = server.WriteTo(reply, from)
			}
		}
	}()
	return resolver(t, "udp", server.LocalAddr().String())
}

// answer returns the query with a code and no records, or nil if it is malformed.
func answer(question []byte, code dnsmessage.RCode) []byte {
	var m dnsmessage.Message
	if m.Unpack(question) != nil {
		return nil
	}
	m.Response, m.RCode, m.Additionals = true, code, nil
	m.RecursionAvailable = true
	reply, err := m.Pack()
	if err != nil {
		return nil
	}
	return reply
}

// resolver returns a resolver that uses only addr. Its queries end with the test;
// otherwise those of a cancelled lookup would keep waiting.
func resolver(t *testing.T, network, addr string) *net.Resolver {
	t.Helper()
	var (
		mu    sync.Mutex
		open  []net.Conn
		ended bool
	)
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		for _, conn := range open {
			_ = conn.Close()
		}
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if ended {
			return nil, net.ErrClosed
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		if err == nil {
			open = append(open, conn)
		}
		return conn, err
	}}
}

// lookupError looks up a name that no search list can change.
func lookupError(ctx context.Context, t *testing.T, r *net.Resolver) error {
	t.Helper()
	addrs, err := r.LookupHost(ctx, "origin.invalid.")
	if err == nil {
		t.Fatalf("lookup gives %v, want an error", addrs)
	}
	return err
}
