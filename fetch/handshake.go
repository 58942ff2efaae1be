package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"

	"fetchd/classify"
	"fetchd/internal/budget"
)

// Limits on what an origin sends in a TLS handshake. Chains of 3 to 6 KiB are usual.
const (
	maxHandshakeBytes = 32 << 10
	// secureBytes is what a new connection with TLS takes besides one without: records,
	// and with HTTP/2 its frames and header tables. It is charged to the fetch that dials.
	secureBytes = 48 << 10
	// usualHandshakeBytes are a part of what each fetch is charged with.
	usualHandshakeBytes = 12 << 10
	// partialHandshakeBytes is what crypto/tls takes for a handshake that is longer.
	partialHandshakeBytes = 96 << 10
	// maxCertificateBytes is what the certificates of a connection may take in memory, and
	// usualCertificateBytes what is no matter.
	maxCertificateBytes   = 64 << 10
	usualCertificateBytes = 24 << 10
)

var (
	errHandshakeBytes = &fault{classify.TLSHandshake, classify.PhaseTLS, "handshake_too_large"}
	errCertificates   = &fault{classify.TLSHandshake, classify.PhaseTLS, "certificates_too_large"}
)

// handshakeMeter bounds a handshake and charges it to the exchange that dials, as long
// as that goes on.
type handshakeMeter struct {
	trace   *trace // of that exchange; nil: nobody pays
	read    int
	charged bool
	// heavy is set where the certificates take more than usual: the connection serves
	// one fetch, and its session is not kept.
	heavy bool
}

// measure has the handshake that config is for measured on conn, which is nil where the
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

// count takes n bytes that were read.
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

// verify is a [tls.Config.VerifyConnection], which is called before the origin can make
// the handshake wait with its certificates in memory.
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

// certificateBytes is about what parsed certificates take: their bytes, the copies that
// crypto/x509 makes of parts, and the names.
func certificateBytes(chain []*x509.Certificate) (n int64) {
	const entry = 48
	for _, c := range chain {
		names := len(c.DNSNames) + len(c.EmailAddresses) + len(c.IPAddresses) + len(c.URIs) + len(c.Extensions) +
			len(c.Subject.Names) + len(c.Issuer.Names) + len(c.PolicyIdentifiers) + len(c.CRLDistributionPoints)
		n += 3*int64(len(c.Raw)) + entry*int64(names)
	}
	return n
}

// Put implements [tls.ClientSessionCache]. A session keeps the certificates.
func (c *meteredSessions) Put(key string, session *tls.ClientSessionState) {
	if !c.meter.heavy {
		c.ClientSessionCache.Put(key, session)
	}
}

// meteredSessions is the cache of sessions as one connection has it.
type meteredSessions struct {
	tls.ClientSessionCache
	meter *handshakeMeter
}
