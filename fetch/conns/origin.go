package conns

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"slices"
	"strings"
)

// OriginTLS holds the TLS settings of one origin.
type OriginTLS struct {
	// RootCAs verifies its certificate. Nil means the roots of all origins.
	RootCAs *x509.CertPool
	// Certificate is the client certificate to present if the origin requests one. Nil
	// means none.
	Certificate *tls.Certificate
	// Callers lists the callers that may use the certificate, by [Target].Caller. Empty
	// means every caller. Connections are not shared with other callers (spec A6).
	Callers []string
}

// allows reports whether a caller may use the connections that show the certificate.
// Without a certificate every caller may.
func (o *OriginTLS) allows(caller string) bool {
	return o.Certificate == nil || len(o.Callers) == 0 || slices.Contains(o.Callers, caller)
}

// apply sets up a handshake with the origin for a caller (spec A6). It resumes no session:
// one of another port of the host, or of another caller, may or may not have been shown
// the certificate.
func (o *OriginTLS) apply(config *tls.Config, caller string) {
	config.ClientSessionCache = nil
	if o.RootCAs != nil {
		config.RootCAs = o.RootCAs
	}
	if o.Certificate != nil && o.allows(caller) {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return o.Certificate, nil }
	}
}

// bindingSchemes are the prefixes of authentication schemes that authenticate a
// connection instead of a request. Only Negotiate is registered (RFC 4559 §6 warns of
// it); the others are names that servers are known to use for it.
var bindingSchemes = []string{"nego", "ntlm", "kerb", "krb", "gss", "spnego"}

// BindsConnection reports whether lines of credentials or challenges name such a scheme
// (spec A5). It splits at commas inside quotes too: a false match costs a connection, a
// missed one gives an identity to the next caller.
func BindsConnection(lines ...string) bool {
	for _, line := range lines {
		for element := range strings.SplitSeq(line, ",") {
			if isBindingScheme(strings.TrimLeft(element, " \t")) {
				return true
			}
		}
	}
	return false
}

func isBindingScheme(element string) bool {
	return slices.ContainsFunc(bindingSchemes, func(scheme string) bool {
		return len(element) >= len(scheme) && strings.EqualFold(element[:len(scheme)], scheme)
	})
}

// offersBinding reports whether a response offers to authenticate its connection, or
// says that it has done so (RFC 4559 §4 and §6).
func offersBinding(h http.Header) bool {
	return h["Persistent-Auth"] != nil || h["Proxy-Support"] != nil ||
		BindsConnection(h["Www-Authenticate"]...) || BindsConnection(h["Authentication-Info"]...)
}
