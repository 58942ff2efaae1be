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

// Errors that are sent to callers. They contain no secrets.
var (
	ErrToken        = errors.New("send an Authorization header: Bearer TOKEN")
	ErrUnknownToken = errors.New("this token is not known")
	ErrCertificate  = errors.New("connect with a client certificate that this service allows")
)

// Callers identifies the callers of a service. The zero value allows none.
type Callers struct {
	// Tokens are the valid tokens. Nil means that no token is required.
	Tokens *Tokens
	// Certificates holds the authorities of client certificates. Nil means that no client
	// certificate is required.
	Certificates *Certificates
	// SANs are the names of the client certificates that are allowed, compared exactly. Empty
	// allows each certificate that the authorities signed.
	SANs []string
}

// Name returns the name of the caller with a token and a connection: its name in the token file, or
// else "san:" and the allowed name of its certificate. The connection may have been verified with
// other authorities, before a reload. Name is safe for concurrent use.
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
	if token == "" {
		return "", ErrToken
	}
	name, ok := c.Tokens.owner(token)
	if !ok {
		return "", ErrUnknownToken
	}
	return name, nil
}

// Names returns the names of the callers that the files and flags name. It is empty if callers are
// named by certificates and every signed certificate is allowed. A nil *Callers has none.
func (c *Callers) Names() []string {
	var names []string
	switch {
	case c == nil:
	case c.Tokens != nil:
		names = c.Tokens.Names()
	default:
		for _, san := range c.SANs {
			names = append(names, sanPrefix+san)
		}
	}
	return names
}

// sanPrefix begins the name of a caller that a certificate names.
const sanPrefix = "san:"

// allowed returns the caller of a certificate, and whether it is allowed.
func (c *Callers) allowed(cert *x509.Certificate) (string, bool) {
	uris := make([]string, 0, len(cert.URIs))
	for _, u := range cert.URIs {
		uris = append(uris, u.String())
	}
	for _, want := range c.SANs {
		names := cert.DNSNames
		switch {
		case strings.Contains(want, ":"):
			names = uris
		case strings.Contains(want, "@"):
			names = cert.EmailAddresses
		}
		if slices.Contains(names, want) {
			return sanPrefix + want, true
		}
	}
	if len(c.SANs) > 0 {
		return "", false
	}
	if names := slices.Concat(uris, cert.DNSNames, cert.EmailAddresses); len(names) > 0 {
		return sanPrefix + names[0], true
	}
	return fmt.Sprintf("cert:%x", sha256.Sum256(cert.Raw)), true
}

// CheckSAN returns an error if no certificate can match san.
func CheckSAN(san string) error {
	if san == "" || strings.ContainsAny(san, "*\\ \t\r\n") {
		return errors.New("names are compared exactly: give a whole DNS name, URI or email address, without wildcards")
	}
	return nil
}

// Bearer returns the token of the Authorization headers of a call (RFC 6750 §2.1). Two headers are
// ambiguous and give none.
func Bearer(headers []string) string {
	if len(headers) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
