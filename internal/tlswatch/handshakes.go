package tlswatch

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
)

// Cause is why a handshake failed. It is a label of the metrics.
type Cause string

// The causes. The service refuses certificates of clients, and clients refuse that of the service.
const (
	ClientMissing    Cause = "client_certificate_missing"
	ClientExpired    Cause = "client_certificate_expired" // or not valid yet
	ClientUnknown    Cause = "client_certificate_unknown_authority"
	ClientInvalid    Cause = "client_certificate_invalid"
	ServiceExpired   Cause = "service_certificate_expired"
	ServiceUnknown   Cause = "service_certificate_unknown_authority"
	ServiceRefused   Cause = "service_certificate_refused" // for another reason, such as its name
	ProtocolMismatch Cause = "protocol"                    // a version, a cipher, or bytes that break the protocol
	NotTLS           Cause = "not_tls"
	Timeout          Cause = "timeout"
	Closed           Cause = "closed" // also by the limits of the port
	Other            Cause = "other"
)

// Causes are all causes.
var Causes = []Cause{ClientMissing, ClientExpired, ClientUnknown, ClientInvalid, ServiceExpired, ServiceUnknown, ServiceRefused, ProtocolMismatch, NotTLS, Timeout, Closed, Other}

// summaryEvery is the shortest time between two log lines about handshakes.
const summaryEvery = time.Second

// Handshakes counts the TLS handshakes of a service that fail. It logs them, at most one line a second.
// Connections that were only closed are not logged: probes of load balancers do that. The methods are
// safe for concurrent use, and a nil Handshakes counts nothing.
type Handshakes struct {
	logger  *slog.Logger
	expired func() bool
	failed  map[Cause]*atomic.Uint64

	mu     sync.Mutex
	unsaid map[Cause]int // since the last line
	last   failure
	quiet  bool // a line was logged less than summaryEvery ago
}

// failure is one handshake that failed.
type failure struct {
	cause   Cause
	address string
	err     error
}

// NewHandshakes returns counters. expired reports whether the certificate of the service has expired:
// many clients refuse such a certificate without this reason.
func NewHandshakes(logger *slog.Logger, expired func() bool) *Handshakes {
	h := &Handshakes{logger: logger, expired: expired, failed: make(map[Cause]*atomic.Uint64), unsaid: make(map[Cause]int)}
	for _, c := range Causes {
		h.failed[c] = new(atomic.Uint64)
	}
	return h
}

// Credentials returns the credentials of a gRPC server, whose handshakes it counts.
func (h *Handshakes) Credentials(inner credentials.TransportCredentials) credentials.TransportCredentials {
	if h == nil {
		return inner
	}
	return &counted{inner, h}
}

type counted struct {
	credentials.TransportCredentials
	handshakes *Handshakes
}

// ServerHandshake implements [credentials.TransportCredentials].
func (c *counted) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	peeked := &peek{Conn: raw}
	conn, info, err := c.TransportCredentials.ServerHandshake(peeked)
	if err != nil {
		c.handshakes.count(raw.RemoteAddr(), peeked.alert(err))
	}
	return conn, info, err
}

// Clone implements [credentials.TransportCredentials].
func (c *counted) Clone() credentials.TransportCredentials {
	return &counted{c.TransportCredentials.Clone(), c.handshakes}
}

// Serve serves HTTP on l, with TLS if web has a configuration for it, until web is shut down. [Handshakes.ConnState]
// of web finds the alerts of all clients.
func (h *Handshakes) Serve(web *http.Server, l net.Listener) (err error) {
	if web.TLSConfig == nil {
		err = web.Serve(l)
	} else {
		err = web.ServeTLS(&peeking{l}, "", "")
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

type peeking struct{ net.Listener }

// Accept implements [net.Listener].
func (l *peeking) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &peek{Conn: conn}, nil
}

// peek is a connection that knows the last bytes that were read. With TLS 1.3, OpenSSL refuses the
// certificate of a server by an alert in plaintext, which crypto/tls takes for a record that it cannot
// decrypt.
type peek struct {
	net.Conn
	last [alertRecord]byte // used by the reading goroutine
}

// alertRecord is the length of an alert in plaintext: 5 bytes are the head of the record (RFC 8446 §5.1).
const alertRecord = 7

// Read implements [net.Conn].
func (p *peek) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	got := b[max(0, n-alertRecord):n]
	copy(p.last[:], p.last[len(got):])
	copy(p.last[alertRecord-len(got):], got)
	return n, err
}

// alert returns the alert in plaintext that has ended a handshake, or else its error.
func (p *peek) alert(err error) error {
	const badRecordMAC = 20
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "local error" || alertOf(op.Err) != badRecordMAC || !bytes.Equal(p.last[:5], []byte{21, 3, 3, 0, 2}) {
		return err
	}
	return tls.AlertError(p.last[6])
}

// ConnState counts the handshakes of an HTTP server: set it as [http.Server].ConnState.
func (h *Handshakes) ConnState(conn net.Conn, state http.ConnState) {
	secured, ok := conn.(*tls.Conn)
	if h == nil || !ok || state != http.StateClosed || secured.ConnectionState().HandshakeComplete {
		return
	}
	// The connection keeps the error of its handshake. It is closed, so no handshake begins here.
	if err := secured.HandshakeContext(context.Background()); err != nil {
		if p, ok := secured.NetConn().(*peek); ok {
			err = p.alert(err)
		}
		h.count(conn.RemoteAddr(), err)
	}
}

func (h *Handshakes) count(from net.Addr, err error) {
	cause := h.causeOf(err)
	h.failed[cause].Add(1)
	if cause == Closed {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unsaid[cause]++
	h.last = failure{cause, from.String(), err}
	if !h.quiet {
		h.logLocked()
	}
}

// logLocked logs the failures since the last line, if there are any. It runs again after summaryEvery
// if there were.
func (h *Handshakes) logLocked() {
	h.quiet = len(h.unsaid) > 0
	if !h.quiet {
		return
	}
	var counts []any
	for _, c := range Causes {
		if n := h.unsaid[c]; n > 0 {
			counts = append(counts, slog.Int(string(c), n))
		}
	}
	clear(h.unsaid)
	h.logger.Warn("TLS handshakes failed", slog.Group("causes", counts...), slog.String("last_cause", string(h.last.cause)),
		slog.String("last_address", h.last.address), slog.String("last_error", fmt.Sprintf("%.200s", h.last.err)))
	time.AfterFunc(summaryEvery, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.logLocked()
	})
}

// causeOf returns the cause of a failure, as the server of the connection sees it.
func (h *Handshakes) causeOf(err error) Cause {
	if refused, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return causeOfRefusal(refused.Err)
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return NotTLS
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return Timeout
	}
	for _, closed := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, closed) {
			return Closed
		}
	}
	if alert, ok := errors.AsType[tls.AlertError](err); ok {
		return h.causeOfAlert(alert)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		switch op.Op { // crypto/tls has names for alerts
		case "remote error":
			return h.causeOfAlert(alertOf(op.Err))
		case "local error":
			return ProtocolMismatch
		}
		return Other
	}
	if err.Error() == noCertificate { //nolint:forbidigo // crypto/tls has no type for it, and a test checks the text
		return ClientMissing
	}
	return ProtocolMismatch // crypto/tls has no types for its other errors
}

// noCertificate is the text of an error that has no type in crypto/tls.
const noCertificate = "tls: client didn't provide a certificate"

// causeOfRefusal returns why the certificate of a client was refused.
func causeOfRefusal(err error) Cause {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return ClientExpired
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return ClientUnknown
	}
	return ClientInvalid
}

// alertOf returns the number of an alert. Its type in crypto/tls is a uint8 without an
// exported name.
func alertOf(err error) tls.AlertError {
	if v := reflect.ValueOf(err); v.Kind() == reflect.Uint8 {
		return tls.AlertError(v.Uint())
	}
	return 0 // close_notify
}

// causeOfAlert returns the cause of an alert from the client. Go's own client and some others send
// bad_certificate whatever is wrong.
//
// RFC 8446 §6.2.
func (h *Handshakes) causeOfAlert(alert tls.AlertError) Cause {
	const (
		badCertificate, unsupportedCertificate, certificateRevoked = 42, 43, 44
		certificateExpired, certificateUnknown, unknownCA          = 45, 46, 48
	)
	switch alert {
	case certificateExpired:
		return ServiceExpired
	case unknownCA:
		return ServiceUnknown
	case badCertificate, unsupportedCertificate, certificateRevoked, certificateUnknown:
		if h.expired() {
			return ServiceExpired
		}
		return ServiceRefused
	}
	return ProtocolMismatch
}
