package secure

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// What callers are told. They hold nothing that a stranger may not know.
var (
	ErrToken       = errors.New("send an Authorization header: Bearer TOKEN")
	ErrCertificate = errors.New("show a client certificate that this service allows")
)

// Callers are those who may call. The zero value knows nobody.
type Callers struct {
	// Tokens are asked for; nil means that none is.
	Tokens *Tokens
	// Certificates are those in force, if callers must show one. Nil means that none is
	// required.
	Certificates *Certificates
	// SANs are the names of certificates that are allowed, each exactly; none
	// means all that the authorities have signed.
	SANs []string
}

// Name is that of the caller who shows a token and a connection: what the token
// file calls it, or else "san:" and the name of its certificate that is allowed.
// The connection may have been verified against other authorities before a reload.
// It is safe for concurrent use.
func (c *Callers) Name(token string, state *tls.ConnectionState) (string, error) {
	name := ""
	if c.Certificates != nil {
		if !c.Certificates.signed(state) {
			return "", ErrCertificate
		}
		var ok bool
		if name, ok = c.allowed(state.VerifiedChains[0][0]); !ok {
			return "", ErrCertificate
		}
	}
	if c.Tokens == nil {
		if name == "" {
			return "", ErrCertificate
		}
		return name, nil
	}
	name, ok := c.Tokens.owner(token)
	if !ok {
		return "", ErrToken
	}
	return name, nil
}

// allowed names a certificate, if it may call.
func (c *Callers) allowed(cert *x509.Certificate) (string, bool) {
	uris := make([]string, 0, len(cert.URIs))
	for _, u := range cert.URIs {
		uris = append(uris, u.String())
	}
	for _, want := range c.SANs {
		names := cert.DNSNames
		switch kindOf(want) {
		case uri:
			names = uris
		case email:
			names = cert.EmailAddresses
		}
		if slices.Contains(names, want) {
			return "san:" + want, true
		}
	}
	if len(c.SANs) > 0 {
		return "", false
	}
	if names := slices.Concat(uris, cert.DNSNames, cert.EmailAddresses); len(names) > 0 {
		return "san:" + names[0], true
	}
	return fmt.Sprintf("cert:%x", sha256.Sum256(cert.Raw)), true
}

// kind is which of a certificate's names one is compared with.
type kind int

const (
	dns kind = iota
	uri
	email
)

func kindOf(san string) kind {
	switch {
	case strings.Contains(san, ":"):
		return uri
	case strings.Contains(san, "@"):
		return email
	}
	return dns
}

// CheckSAN tells why no certificate can have that name.
func CheckSAN(san string) error {
	if san == "" || strings.ContainsAny(san, "*\\ \t\r\n") {
		return errors.New("names are compared exactly: give a whole DNS name, URI or email address, without wildcards")
	}
	return nil
}
