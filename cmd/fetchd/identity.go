package main

import (
	"crypto/tls"
	"fmt"
	"sync/atomic"

	"fetchd/internal/secure"
	"fetchd/server"
)

// identity is the certificate of the service and the callers that it knows, as last read from
// the files.
type identity struct {
	certificates *secure.Certificates // nil for plaintext
	callers      *secure.Callers      // nil if callers do not authenticate
}

// readIdentity reads the files. The error names the flag and the file.
func (s *settings) readIdentity() (*identity, error) {
	id := new(identity)
	var err error
	if id.certificates, err = s.readCertificates(); err != nil {
		return nil, err
	}
	if s.TokenFile == "" && s.TLSClientCAFile == "" {
		return id, nil
	}
	id.callers = &secure.Callers{SANs: s.TLSAllowSAN}
	if s.TLSClientCAFile != "" {
		id.callers.Certificates = id.certificates
	}
	if s.TokenFile != "" {
		if id.callers.Tokens, err = secure.ReadTokens(s.TokenFile); err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
	}
	return id, nil
}

// readCertificates returns nil if no certificates are set.
func (s *settings) readCertificates() (*secure.Certificates, error) {
	if s.TLSCertFile == "" {
		return nil, nil
	}
	c, err := secure.ReadCertificates(secure.Files{Cert: s.TLSCertFile, Key: s.TLSKeyFile, ClientCA: s.TLSClientCAFile})
	if err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	return c, nil
}

// with returns a copy of the identity with other certificates.
func (id *identity) with(now *secure.Certificates) *identity {
	next := &identity{certificates: now, callers: id.callers}
	if id.callers != nil && id.callers.Certificates != nil {
		callers := *id.callers
		callers.Certificates = now
		next.callers = &callers
	}
	return next
}

// changed returns the settings of which the files differ from old.
func (id *identity) changed(old *identity) []string {
	names := changedCertificates(id.certificates, old.certificates)
	if id.callers != nil && id.callers.Tokens != nil && !id.callers.Tokens.Same(old.callers.Tokens) {
		names = append(names, "token-file")
	}
	return names
}

func changedCertificates(now, old *secure.Certificates) []string {
	if now == nil {
		return nil
	}
	var names []string
	a, b := now.Digests(), old.Digests()
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

// limits returns the limits in the settings and the token file.
func (s *settings) limits(id *identity) server.Limits {
	l := server.Limits{MaxTotalTimeout: s.MaxTotalTimeout, MaxBodyBytes: s.MaxBodyBytes,
		MaxFetches: s.MaxFetches, MaxFetchesPerCaller: s.MaxFetchesPerCaller}
	if s.NonIdempotentRetries == nonIdempotentForbid {
		l.NonIdempotentRetries = server.NonIdempotentForbidden
	}
	if id.callers != nil && id.callers.Tokens != nil {
		l.CallerMaxFetches = id.callers.Tokens.Limits()
	}
	return l
}

// known is the current identity, for new handshakes and calls. Which of its parts are nil
// never changes.
type known struct{ now atomic.Pointer[identity] }

// tls returns nil for plaintext.
func (k *known) tls() *tls.Config {
	if k.now.Load().certificates == nil {
		return nil
	}
	return secure.Config(func() *secure.Certificates { return k.now.Load().certificates })
}

// authenticate returns nil if callers do not authenticate.
func (k *known) authenticate() server.Authenticator {
	if k.now.Load().callers == nil {
		return nil
	}
	return func(shown server.Credentials) (string, error) {
		return k.now.Load().callers.Name(shown.Token, shown.TLS)
	}
}
