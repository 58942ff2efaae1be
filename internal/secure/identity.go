package secure

import (
	"crypto/tls"
	"fmt"
	"sync/atomic"
)

// IdentityFiles names the files of an [Identity], by the flags of the programs. Empty means none.
type IdentityFiles struct {
	Files
	Tokens string
	SANs   []string
}

// Identity is the certificate of a service and the callers that it knows, as last read from
// the files.
type Identity struct {
	Certificates *Certificates // nil for plaintext
	Callers      *Callers      // nil if callers do not authenticate
}

// Read reads the files. The error names the flag and the file.
func (f IdentityFiles) Read() (*Identity, error) {
	id := new(Identity)
	var err error
	if id.Certificates, err = f.ReadCertificates(); err != nil {
		return nil, err
	}
	if f.Tokens == "" && f.ClientCA == "" {
		return id, nil
	}
	id.Callers = &Callers{SANs: f.SANs}
	if f.ClientCA != "" {
		id.Callers.Certificates = id.Certificates
	}
	if f.Tokens != "" {
		if id.Callers.Tokens, err = ReadTokens(f.Tokens); err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
	}
	return id, nil
}

// ReadCertificates returns nil if no certificates are set.
func (f IdentityFiles) ReadCertificates() (*Certificates, error) {
	if f.Cert == "" {
		return nil, nil
	}
	return ReadCertificates(f.Files)
}

// With returns a copy of the identity with other certificates.
func (id *Identity) With(now *Certificates) *Identity {
	next := &Identity{Certificates: now, Callers: id.Callers}
	if id.Callers != nil && id.Callers.Certificates != nil {
		callers := *id.Callers
		callers.Certificates = now
		next.Callers = &callers
	}
	return next
}

// Changed returns the flags of the files that differ from those of old.
func (id *Identity) Changed(old *Identity) []string {
	var names []string
	if now := id.Certificates; now != nil {
		names = now.changed(old.Certificates)
	}
	if id.Callers != nil && id.Callers.Tokens != nil && !id.Callers.Tokens.Same(old.Callers.Tokens) {
		names = append(names, "token-file")
	}
	return names
}

func (c *Certificates) changed(old *Certificates) []string {
	var names []string
	a, b := c.Digests(), old.Digests()
	for _, file := range []struct {
		name string
		same bool
	}{
		{"tls-cert-file", a.Cert == b.Cert},
		{"tls-key-file", a.Key == b.Key},
		{"tls-client-ca-file", a.ClientCA == b.ClientCA},
	} {
		if !file.same {
			names = append(names, file.name)
		}
	}
	return names
}

// Known is the current identity, for new handshakes and calls. Which of its parts are nil
// never changes. Store an identity before any other use.
type Known struct{ now atomic.Pointer[Identity] }

// Load returns the current identity.
func (k *Known) Load() *Identity { return k.now.Load() }

// Store replaces the identity.
func (k *Known) Store(id *Identity) { k.now.Store(id) }

// Expired reports whether the certificate of the service has expired.
func (k *Known) Expired() bool { return k.Load().Certificates.Expired() }

// TLS returns nil for plaintext.
func (k *Known) TLS() *tls.Config {
	if k.Load().Certificates == nil {
		return nil
	}
	return Config(func() *Certificates { return k.Load().Certificates })
}
