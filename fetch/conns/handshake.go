package conns

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/internal/budget"
)

// Limits on what an origin sends in a TLS handshake. Chains of 3 to 6 KiB are usual.
const (
	MaxHandshakeBytes = 32 << 10
	// secureBytes is the extra memory of a new connection with TLS: records, and with
	// HTTP/2 its frames and header tables. The fetch that dials is charged for it.
	secureBytes = 48 << 10
	// usualHandshakeBytes is part of the fixed charge of every fetch.
	usualHandshakeBytes = 12 << 10
	// partialHandshakeBytes is the memory that crypto/tls uses for a longer handshake.
	partialHandshakeBytes = 96 << 10
	// MaxCertificateBytes limits the memory of a connection's certificates. Up to
	// usualCertificateBytes are not charged.
	MaxCertificateBytes   = 64 << 10
	usualCertificateBytes = 24 << 10
)

var (
	errHandshakeBytes = fault.New(classify.TLSHandshake, classify.PhaseTLS, "handshake_too_large")
	errCertificates   = fault.New(classify.TLSHandshake, classify.PhaseTLS, "certificates_too_large")
)

var errUnusable = fault.New(classify.TLSCertificate, classify.PhaseTLS, "certificate_invalid")

// unusable adds the class to an error of a certificate that cannot be read or has a key that cannot be used (N6).
// crypto/tls tells them by their texts only.
func unusable(err error) error {
	text := fmt.Sprint(err)
	if strings.HasPrefix(text, "tls: failed to parse certificate from server: ") ||
		strings.HasPrefix(text, "tls: server sent certificate containing RSA key larger than ") ||
		strings.HasPrefix(text, "tls: server's certificate contains an unsupported type of public key: ") {
		return fmt.Errorf("%w: %w", errUnusable, err)
	}
	return err
}

// handshakeMeter limits a handshake, and charges it to the exchange that dials.
type handshakeMeter struct {
	x       *Exchange                       // nil when the handshake is over
	chain   func(tls.ConnectionState) error // verifies the certificates; nil if crypto/tls has done so
	read    int
	charged bool
	// asked is set if the origin asks for a client certificate that this side does not have. It may
	// then end the connection after the handshake.
	asked bool
	// heavy is set if the certificates use more memory than usual. Such a connection
	// serves one fetch, and its session is not kept.
	heavy bool
}

// measure attaches a meter to the handshake over s that config is for.
func measure(x *Exchange, s *socket, config *tls.Config) *handshakeMeter {
	m := &handshakeMeter{x: x, chain: config.VerifyConnection}
	s.meter = m
	config.VerifyConnection = m.verify
	if config.GetClientCertificate == nil {
		config.GetClientCertificate = m.noCertificate
	}
	if config.ClientSessionCache != nil {
		config.ClientSessionCache = &meteredSessions{config.ClientSessionCache, m}
	}
	return m
}

// noCertificate is a [tls.Config.GetClientCertificate].
func (m *handshakeMeter) noCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	m.asked = true
	return new(tls.Certificate), nil
}

// charge reports whether the memory was granted. It is charged until the exchange ends.
func (m *handshakeMeter) charge(n int64) bool {
	m.x.mu.Lock()
	defer m.x.mu.Unlock()
	if m.x.ended || !m.x.settings.Memory.Grow(budget.Receiving, n) {
		return false
	}
	m.x.charged += n
	return true
}

// count adds n bytes that were read.
func (m *handshakeMeter) count(n int) error {
	first := m.read == 0
	m.read += n
	switch {
	case first && !m.charge(secureBytes):
		return fault.OutOfMemory
	case m.read > MaxHandshakeBytes:
		return errHandshakeBytes
	case m.read > usualHandshakeBytes && !m.charged:
		m.charged = true
		if !m.charge(partialHandshakeBytes) {
			return fault.OutOfMemory
		}
	}
	return nil
}

// verify is a [tls.Config.VerifyConnection]. crypto/tls calls it before the origin can
// delay the rest of the handshake while its certificates are in memory.
func (m *handshakeMeter) verify(state tls.ConnectionState) error {
	if m.chain != nil {
		if err := m.chain(state); err != nil {
			return err
		}
	}
	n := certificateBytes(state.PeerCertificates)
	if m.heavy = n > usualCertificateBytes; !m.heavy {
		return nil
	}
	if n > MaxCertificateBytes {
		return errCertificates
	}
	if !m.charge(n) {
		return fault.OutOfMemory
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
