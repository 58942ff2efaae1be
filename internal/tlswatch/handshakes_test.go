package tlswatch_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"

	"fetchd/internal/tlswatch"
	"fetchd/test/must"
	"fetchd/test/wait"
)

// signer is an authority.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	s := &signer{key: key}
	s.cert = s.sign(t, s, &x509.Certificate{Subject: pkix.Name{CommonName: "signer"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}).Leaf
	return s
}

// sign returns a certificate of s with the key of its holder. It is valid unless the template says when.
func (s *signer) sign(t *testing.T, holder *signer, template *x509.Certificate) tls.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(7)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	template.NotBefore = time.Now().Add(-2 * time.Hour)
	parent := s.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, holder.key.Public(), s.key)
	must.Succeed(t, err)
	leaf, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: holder.key, Leaf: leaf}
}

// peer is what a client does with a connection until it fails. It closes it.
type peer func(t *testing.T, conn net.Conn)

// handshake is a client that speaks TLS.
func handshake(cfg *tls.Config) peer {
	return func(t *testing.T, conn net.Conn) {
		t.Helper()
		client := tls.Client(conn, cfg)
		if client.Handshake() == nil {
			_, _ = client.Read(make([]byte, 1)) // in TLS 1.3 the server's refusal comes after the handshake
		}
		_ = client.Close()
	}
}

// says is a client that sends bytes, then reads until the server closes the connection.
func says(text string) peer {
	return func(t *testing.T, conn net.Conn) {
		t.Helper()
		_, _ = io.WriteString(conn, text)
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}
}

// alerts returns a client that answers the certificate of the server with an alert, in TLS 1.2, where it
// is not encrypted.
func alerts(number byte) peer {
	return func(t *testing.T, conn net.Conn) {
		t.Helper()
		handshake(&tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, VerifyPeerCertificate: func([][]byte, [][]*x509.Certificate) error {
			_, _ = conn.Write([]byte{21, 3, 3, 0, 2, 2, number})
			return errors.New("refused")
		}})(t, conn)
	}
}

// alertsInPlaintext returns a client that refuses the certificate of the server as OpenSSL does in TLS 1.3.
func alertsInPlaintext(number byte) peer {
	return func(t *testing.T, conn net.Conn) {
		t.Helper()
		handshake(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, VerifyPeerCertificate: func([][]byte, [][]*x509.Certificate) error {
			_, _ = conn.Write([]byte{20, 3, 3, 0, 1, 1, 21, 3, 3, 0, 2, 2, number})
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.CloseWrite() // crypto/tls would send its own alert too
			}
			return errors.New("refused")
		}})(t, conn)
	}
}

// ports are the two ways in which a service makes handshakes. Each returns when it is closed.
var ports = []struct {
	name  string
	serve func(h *tlswatch.Handshakes, cfg *tls.Config, l net.Listener)
}{
	{"gRPC", func(h *tlswatch.Handshakes, cfg *tls.Config, l net.Listener) {
		server := h.Credentials(credentials.NewTLS(cfg)).Clone()
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second)) // as gRPC does
			if secured, _, err := server.ServerHandshake(conn); err == nil {
				_ = secured.Close()
			}
			_ = conn.Close()
		}
	}},
	{"HTTP", func(h *tlswatch.Handshakes, cfg *tls.Config, l net.Listener) {
		server := &http.Server{TLSConfig: cfg, ConnState: h.ConnState, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
			Handler: http.NotFoundHandler()}
		_ = h.Serve(server, l)
	}},
}

// TestCauses makes handshakes fail on loopback, on both ports.
func TestCauses(t *testing.T) {
	authority, stranger := newSigner(t), newSigner(t)
	holder := newSigner(t)
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	service := authority.sign(t, holder, &x509.Certificate{ExtKeyUsage: usage, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{service}, NextProtos: []string{"h2", "http/1.1"}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: x509.NewCertPool()}
	cfg.ClientCAs.AddCert(authority.cert)
	client := func(shows ...tls.Certificate) *tls.Config {
		c := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
		if len(shows) > 0 {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shows[0], nil }
		}
		return c
	}
	good := authority.sign(t, holder, &x509.Certificate{ExtKeyUsage: usage})
	version := func(c *tls.Config, v uint16) *tls.Config { c.MinVersion, c.MaxVersion = tls.VersionTLS10, v; return c }
	mistrusts := func(v uint16) peer {
		return handshake(&tls.Config{ServerName: "127.0.0.1", RootCAs: x509.NewCertPool(), MaxVersion: v})
	}
	for _, row := range []struct {
		name    string
		peer    peer
		expired bool // the certificate of the service
		want    tlswatch.Cause
	}{
		{"a good one", handshake(client(good)), false, ""},
		{"no certificate, TLS 1.3", handshake(client()), false, tlswatch.ClientMissing},
		{"no certificate, TLS 1.2", handshake(version(client(), tls.VersionTLS12)), false, tlswatch.ClientMissing},
		{"an expired certificate", handshake(client(authority.sign(t, holder, &x509.Certificate{ExtKeyUsage: usage, NotAfter: time.Now().Add(-time.Hour)}))), false, tlswatch.ClientExpired},
		{"a certificate of a stranger", handshake(client(stranger.sign(t, holder, &x509.Certificate{ExtKeyUsage: usage}))), false, tlswatch.ClientUnknown},
		{"a certificate for servers", handshake(client(authority.sign(t, holder, &x509.Certificate{ExtKeyUsage: usage[:1]}))), false, tlswatch.ClientInvalid},
		{"a client that mistrusts, TLS 1.3", mistrusts(tls.VersionTLS13), false, tlswatch.ServiceRefused},
		{"a client that mistrusts, TLS 1.2", mistrusts(tls.VersionTLS12), false, tlswatch.ServiceRefused},
		{"a client that refuses an expired certificate without saying why", mistrusts(tls.VersionTLS13), true, tlswatch.ServiceExpired},
		{"alert certificate_expired", alerts(45), false, tlswatch.ServiceExpired},
		{"alert certificate_expired in plaintext", alertsInPlaintext(45), false, tlswatch.ServiceExpired},
		{"alert unknown_ca in plaintext", alertsInPlaintext(48), true, tlswatch.ServiceUnknown},
		{"alert bad_certificate in plaintext", alertsInPlaintext(42), false, tlswatch.ServiceRefused},
		{"alert unknown_ca", alerts(48), false, tlswatch.ServiceUnknown},
		{"alert unknown_ca for an expired one", alerts(48), true, tlswatch.ServiceUnknown},
		{"alert certificate_unknown", alerts(46), false, tlswatch.ServiceRefused},
		{"alert certificate_unknown for an expired one", alerts(46), true, tlswatch.ServiceExpired},
		{"alert handshake_failure", alerts(40), true, tlswatch.ProtocolMismatch},
		{"TLS 1.1", handshake(version(client(good), tls.VersionTLS11)), false, tlswatch.ProtocolMismatch},
		{"another protocol in TLS", handshake(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"smtp"}}), false, tlswatch.ProtocolMismatch},
		{"a record that is no hello", says("\x16\x03\x01\x00\x05abcde"), false, tlswatch.ProtocolMismatch},
		{"HTTP without TLS", says("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), false, tlswatch.NotTLS},
		{"gRPC without TLS", says("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), false, tlswatch.NotTLS},
		{"closed at once", func(_ *testing.T, c net.Conn) { _ = c.Close() }, false, tlswatch.Closed},
		{"reset in a record", func(t *testing.T, c net.Conn) {
			t.Helper()
			_, _ = io.WriteString(c, "\x16\x03\x01")
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			_ = c.Close()
		}, false, tlswatch.Closed},
	} {
		for _, port := range ports {
			t.Run(row.name+"/"+port.name, func(t *testing.T) {
				h := tlswatch.NewHandshakes(slog.New(slog.DiscardHandler), func() bool { return row.expired })
				l, err := net.Listen("tcp", "127.0.0.1:0")
				must.Succeed(t, err)
				ended := make(chan struct{})
				closed := make(chan struct{}, 1)
				go func() {
					defer close(ended)
					port.serve(h, cfg, &telling{l, closed})
				}()
				conn, err := net.Dial("tcp", l.Addr().String())
				must.Succeed(t, err)
				row.peer(t, conn)
				<-closed // HTTP counts when the connection is closed
				_ = l.Close()
				<-ended
				want := map[tlswatch.Cause]float64{}
				if row.want != "" {
					want[row.want] = 1
				}
				if got := await(t, h, len(want)); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("got %v, want %v", got, want)
				}
			})
		}
	}
}

// telling is a listener whose connections report that they are closed.
type telling struct {
	net.Listener
	closed chan<- struct{}
}

func (l *telling) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tellingConn{c, l.closed}, nil
}

type tellingConn struct {
	net.Conn
	closed chan<- struct{}
}

func (c *tellingConn) Close() error {
	err := c.Conn.Close()
	select {
	case c.closed <- struct{}{}:
	default:
	}
	return err
}

// await returns the counters that are not zero. An HTTP server counts right after it has closed the
// connection, so it waits until there are n.
func await(t *testing.T, h *tlswatch.Handshakes, n int) (found map[tlswatch.Cause]float64) {
	t.Helper()
	if err := wait.Until(t.Context(), time.Millisecond, func() bool {
		found = failures(t, h)
		return len(found) >= n
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

func failures(t *testing.T, h *tlswatch.Handshakes) map[tlswatch.Cause]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(tlswatch.NewCollector("x", nil, h))
	families, err := r.Gather()
	must.Succeed(t, err)
	if got := len(families[0].GetMetric()); got != len(tlswatch.Causes) {
		t.Fatalf("%d series, want one for each of %d causes from the start", got, len(tlswatch.Causes))
	}
	found := map[tlswatch.Cause]float64{}
	for _, m := range families[0].GetMetric() {
		if n := m.GetCounter().GetValue(); n > 0 {
			found[tlswatch.Cause(m.GetLabel()[0].GetValue())] = n
		}
	}
	return found
}

// pipes is a listener in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443} }
func (p pipes) Close() error   { return nil }

// TestTimeout checks that a silent client counts.
func TestTimeout(t *testing.T) {
	service := newSigner(t)
	pair := service.sign(t, service, &x509.Certificate{})
	for _, port := range ports {
		t.Run(port.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := tlswatch.NewHandshakes(slog.New(slog.DiscardHandler), func() bool { return false })
				l := make(pipes)
				go port.serve(h, &tls.Config{Certificates: []tls.Certificate{pair}}, l)
				client, server := net.Pipe()
				l <- server
				wait.For(t.Context(), 11*time.Second)
				synctest.Wait()
				if got := failures(t, h); len(got) != 1 || got[tlswatch.Timeout] != 1 {
					t.Errorf("got %v, want one timeout", got)
				}
				_ = client.Close()
				close(l)
			})
		})
	}
}

// TestSummary checks that failures are logged at most once a second, none is left out of the sums, and
// connections that are only closed are not logged.
func TestSummary(t *testing.T) {
	service := newSigner(t)
	pair := service.sign(t, service, &x509.Certificate{})
	synctest.Test(t, func(t *testing.T) {
		var log logText
		h := tlswatch.NewHandshakes(slog.New(slog.NewJSONHandler(&log, nil)), func() bool { return false })
		server := h.Credentials(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}}))
		fails := func(peer peer) {
			there, here := net.Pipe()
			go peer(t, there)
			_, _, _ = server.ServerHandshake(here)
			_ = here.Close()
			synctest.Wait()
		}
		notTLS, closed := says("GET / HTTP/1.1\r\n\r\n"), func(_ *testing.T, c net.Conn) { _ = c.Close() }
		for _, step := range []struct {
			name  string
			peers []peer
			then  time.Duration
			want  []string
		}{
			{"the first is logged at once", []peer{notTLS}, 0, []string{`{"not_tls":1}`}},
			{"more within the second", []peer{notTLS, notTLS, alerts(48), closed}, 0, nil},
			{"at its end", nil, time.Second, []string{`{"service_certificate_unknown_authority":1,"not_tls":2}`}},
			{"nothing more", nil, time.Hour, nil},
			{"closed", []peer{closed, closed}, time.Hour, nil},
			{"again at once, and the last of them", []peer{notTLS, alerts(48)}, 2 * time.Second, []string{`{"not_tls":1}`, `{"service_certificate_unknown_authority":1}`}},
		} {
			for _, p := range step.peers {
				fails(p)
			}
			wait.For(t.Context(), step.then)
			synctest.Wait()
			var got []string
			for line := range strings.Lines(log.take()) {
				var l struct {
					Level, Msg string
					Causes     json.RawMessage
					Last       string `json:"last_cause"`
				}
				if err := json.Unmarshal([]byte(line), &l); err != nil || l.Level != "WARN" || l.Msg != "TLS handshakes failed" || !strings.Contains(string(l.Causes), l.Last) {
					t.Errorf("line %s, %v", line, err)
				}
				got = append(got, string(l.Causes))
			}
			if fmt.Sprint(got) != fmt.Sprint(step.want) {
				t.Errorf("%s: got %s, want %s", step.name, got, step.want)
			}
		}
		if got := failures(t, h); got[tlswatch.Closed] != 3 || got[tlswatch.NotTLS] != 4 {
			t.Errorf("counted %v, want 3 closed and 4 not_tls", got)
		}
	})
}

// TestNoHandshakes checks that a service without TLS counts nothing.
func TestNoHandshakes(t *testing.T) {
	var h *tlswatch.Handshakes
	h.ConnState(&tls.Conn{}, http.StateClosed)
	inner := credentials.NewTLS(&tls.Config{})
	if got := h.Credentials(inner); got != inner {
		t.Errorf("got %T, want the credentials themselves", got)
	}
}
