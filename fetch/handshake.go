package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/internal/budget"
)

// Limits on what an origin sends in a TLS handshake. Chains of 3 to 6 KiB are usual.
const (
	maxHandshakeBytes = 32 << 10
	// secureBytes is the extra memory of a new connection with TLS: records, and with
	// HTTP/2 its frames and header tables. The fetch that dials is charged for it.
	secureBytes = 48 << 10
	// usualHandshakeBytes is part of the fixed charge of every fetch.
	usualHandshakeBytes = 12 << 10
	// partialHandshakeBytes is the memory that crypto/tls uses for a longer handshake.
	partialHandshakeBytes = 96 << 10
	// maxCertificateBytes limits the memory of a connection's certificates. Up to
	// usualCertificateBytes are not charged.
	maxCertificateBytes   = 64 << 10
	usualCertificateBytes = 24 << 10
)

var (
	errHandshakeBytes = fault.New(classify.TLSHandshake, classify.PhaseTLS, "handshake_too_large")
	errCertificates   = fault.New(classify.TLSHandshake, classify.PhaseTLS, "certificates_too_large")
)

// handshakeMeter limits a handshake, and charges it to the exchange that dials while
// the handshake lasts.
type handshakeMeter struct {
	trace   *trace // of that exchange; nil: nothing is charged
	read    int
	charged bool
	// heavy is set if the certificates use more memory than usual. Such a connection
	// serves one fetch, and its session is not kept.
	heavy bool
}

// measure attaches m to the handshake on conn that config is for. conn is nil if the
// dialer did not make it.
func measure(ctx context.Context, conn *observedConn, config *tls.Config) *handshakeMeter {
	m := new(handshakeMeter)
	if x, ok := ctx.Value(dialScope{}).(*exchange); ok {
		m.trace = &x.trace
	}
	if conn != nil {
		conn.handshake = m
	}
	config.VerifyConnection = m.verify
	if config.ClientSessionCache != nil {
		config.ClientSessionCache = &meteredSessions{config.ClientSessionCache, m}
	}
	return m
}

// charge reports whether the memory was granted.
func (m *handshakeMeter) charge(n int64) bool {
	if m.trace == nil {
		return true
	}
	m.trace.mu.Lock()
	defer m.trace.mu.Unlock()
	if m.trace.gone || !m.trace.limits.Memory.Grow(budget.Receiving, n) {
		return false
	}
	m.trace.dialled += n
	return true
}

// count adds n bytes that were read.
func (m *handshakeMeter) count(n int) error {
	first := m.read == 0
	m.read += n
	switch {
	case first && !m.charge(secureBytes):
		return errOutOfMemory
	case m.read > maxHandshakeBytes:
		return errHandshakeBytes
	case m.read > usualHandshakeBytes && !m.charged:
		m.charged = true
		if !m.charge(partialHandshakeBytes) {
			return errOutOfMemory
		}
	}
	return nil
}

// verify is a [tls.Config.VerifyConnection]. crypto/tls calls it before the origin can
// delay the rest of the handshake while its certificates are in memory.
func (m *handshakeMeter) verify(state tls.ConnectionState) error {
	n := certificateBytes(state.PeerCertificates)
	if m.heavy = n > usualCertificateBytes; !m.heavy {
		return nil
	}
	if n > maxCertificateBytes {
		return errCertificates
	}
	if !m.charge(n) {
		return errOutOfMemory
	}
	return nil
}

// certificateBytes estimates the memory of parsed certificates: their bytes, the parts
// that crypto/x509 copies, and the names.
func certificateBytes(chain []*x509.Certificate) (n int64) {
	const entry = 48
	for _, c := range chain {
		names := len(c.DNSNames) + len(c.EmailAddresses) + len(c.IPAddresses) + len(c.URIs) + len(c.Extensions) +
			len(c.Subject.Names) + len(c.Issuer.Names) + len(c.PolicyIdentifiers) + len(c.CRLDistributionPoints)
		n += 3*int64(len(c.Raw)) + entry*int64(names)
	}
	return n
}

// Put implements [tls.ClientSessionCache]. A session keeps its certificates in memory.
func (c *meteredSessions) Put(key string, session *tls.ClientSessionState) {
	if !c.meter.heavy {
		c.ClientSessionCache.Put(key, session)
	}
}

// meteredSessions is the session cache of one connection.
type meteredSessions struct {
	tls.ClientSessionCache
	meter *handshakeMeter
}
