package door

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/test/selfsigned"
)

// certificates returns configurations of both ends, which present and require the same certificate.
func certificates(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	pair, text, _, err := selfsigned.New()
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	made := time.Now()
	now := func() time.Time { return made } // a bubble has another time
	server = &tls.Config{Time: now, MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.VerifyClientCertIfGiven, NextProtos: []string{"h2"}}
	return server, &tls.Config{Time: now, MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: "127.0.0.1", NextProtos: []string{"h2"}}
}

// pair returns both ends of a connection that a listener has admitted.
func pair(t *testing.T, l *Listener) (*Conn, net.Conn) {
	t.Helper()
	there, here := net.Pipe()
	t.Cleanup(func() { _ = there.Close() })
	c := l.admit(here)
	if c == nil {
		t.Fatal("the connection is not admitted")
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, there
}

// TestClientCertificate checks which handshakes of gRPC authenticate a connection.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	server, client := certificates(t)
	anonymous := client.Clone()
	anonymous.Certificates = nil
	for _, row := range []struct {
		name       string
		client     *tls.Config
		identifies func(*tls.ConnectionState) bool
		stranger   bool
	}{
		{"a caller", client, func(s *tls.ConnectionState) bool { return len(s.VerifiedChains) > 0 }, false},
		{"a certificate that is not enough", client, func(*tls.ConnectionState) bool { return false }, true},
		{"no certificate", anonymous, func(*tls.ConnectionState) bool { return true }, true},
		{"callers do not authenticate", client, nil, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c, there := pair(t, Listen(nil, Limits{Total: 1, PerAddress: 1, Strangers: 1}))
			go func() { _ = tls.Client(there, row.client).HandshakeContext(t.Context()) }()
			embedded := struct{ *Conn }{c} // as a program may do
			if _, _, err := Credentials(server, row.identifies).Clone().ServerHandshake(embedded); err != nil {
				t.Fatal(err)
			}
			if c.IsStranger() != row.stranger {
				t.Errorf("stranger: %t, want %t", c.IsStranger(), row.stranger)
			}
		})
	}
}

// TestHandshakeWaits checks that a handshake waits for its turn, but not forever, and that it ends its
// turn.
func TestHandshakeWaits(t *testing.T) {
	t.Parallel()
	server, client := certificates(t)
	config := TLS(server)
	synctest.Test(t, func(t *testing.T) {
		l := Listen(nil, Limits{Total: 100, PerAddress: 100, Strangers: 100})
		l.turns.free = 1
		start := func(ctx context.Context) (*Conn, chan error) {
			c, there := pair(t, l)
			done := make(chan error, 1)
			go func() { _ = tls.Client(there, client).HandshakeContext(context.Background()) }()
			go func() { done <- tls.Server(c, config).HandshakeContext(ctx) }()
			synctest.Wait()
			return c, done
		}
		first, done := start(t.Context())
		if err := <-done; err != nil {
			t.Fatalf("the first handshake: %v", err)
		}
		first.endHandshake()
		if l.turns.free != 1 {
			t.Fatalf("%d turns free", l.turns.free)
		}
		holder, _ := pair(t, l)
		if l.askTurn(holder) != nil {
			t.Fatal("there is no turn")
		}
		closed, closedDone := start(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		_, canceled := start(ctx)
		_, late := start(t.Context())
		_ = closed.Close()
		cancel()
		for _, done := range []chan error{closedDone, canceled} {
			if err := <-done; err == nil {
				t.Error("a handshake that has ended gets a turn")
			}
		}
		<-time.After(turnTime - 1)
		synctest.Wait()
		_, next := start(t.Context())
		select {
		case err := <-late:
			t.Fatalf("the handshake ended early: %v", err)
		default:
		}
		<-time.After(time.Nanosecond)
		if err := <-late; !errors.Is(err, errBusy) {
			t.Errorf("a handshake without a turn: %v, want %v", err, errBusy)
		}
		_ = holder.Close()
		if err := <-next; err != nil {
			t.Errorf("the next handshake: %v", err)
		}
	})
}
