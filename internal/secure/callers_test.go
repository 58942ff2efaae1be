package secure_test

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"fetchd/internal/secure"
)

// showing is a connection whose certificate has been verified.
func showing(cert *x509.Certificate) *tls.ConnectionState {
	return &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}
}

// TestNamesOfCertificates: which of its names a caller goes by. That no other
// certificate comes so far is the matter of cmd/fetchd, on real connections.
func TestNamesOfCertificates(t *testing.T) {
	id := &url.URL{Scheme: "spiffe", Host: "example", Path: "/a"}
	all := &x509.Certificate{Raw: []byte("all"), URIs: []*url.URL{id}, DNSNames: []string{"a.example", "b.example"}, EmailAddresses: []string{"a@example.com"}}
	bare := &x509.Certificate{Raw: []byte("bare")}
	mixed := &x509.Certificate{DNSNames: []string{"spiffe://example/a", "a@example.com"}}
	for _, row := range []struct {
		name    string
		allowed []string
		state   *tls.ConnectionState
		want    string // empty: refused
	}{
		{"all are allowed: the URI first", nil, showing(all), "san:spiffe://example/a"},
		{"all are allowed: a DNS name", nil, showing(&x509.Certificate{DNSNames: []string{"a.example"}}), "san:a.example"},
		{"all are allowed: no name", nil, showing(bare), fmt.Sprintf("cert:%x", sha256.Sum256([]byte("bare")))},
		{"a URI", []string{"spiffe://example/a"}, showing(all), "san:spiffe://example/a"},
		{"the second DNS name", []string{"b.example"}, showing(all), "san:b.example"},
		{"an address", []string{"a@example.com"}, showing(all), "san:a@example.com"},
		{"the first that is allowed", []string{"x.example", "a@example.com", "a.example"}, showing(all), "san:a@example.com"},
		{"another", []string{"x.example"}, showing(all), ""},
		{"the case counts", []string{"A.example"}, showing(all), ""},
		{"part of a name", []string{"example"}, showing(all), ""},
		{"no name", []string{"a.example"}, showing(bare), ""},
		{"a URI as a DNS name", []string{"spiffe://example/a"}, showing(mixed), ""},
		{"an address as a DNS name", []string{"a@example.com"}, showing(mixed), ""},
		{"plaintext", nil, nil, ""},
		{"a certificate that was not verified", nil, &tls.ConnectionState{PeerCertificates: []*x509.Certificate{all}}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := (&secure.Callers{Certificates: true, SANs: row.allowed}).Name("", row.state)
			if got != row.want || errors.Is(err, secure.ErrCertificate) != (row.want == "") {
				t.Errorf("%q allowed: %q, %v, want %q", row.allowed, got, err, row.want)
			}
		})
	}
	if name, err := new(secure.Callers).Name("x", showing(all)); err == nil {
		t.Errorf("callers that nothing is asked of are named %q", name)
	}
}
