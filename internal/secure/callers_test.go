package secure_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fetchd/internal/secure"
	"fetchd/test/must"
)

// authority signs certificates for clients.
type authority struct {
	*testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// in returns a for a subtest.
func (a *authority) in(t *testing.T) *authority {
	c := *a
	c.T = t
	return &c
}

// newAuthority returns an authority signed by by; nil is itself. It has a new key unless
// one is given.
func newAuthority(t *testing.T, name string, by *authority, key *ecdsa.PrivateKey) *authority {
	t.Helper()
	if key == nil {
		var err error
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	a := &authority{T: t, key: key}
	a.cert = a.sign(&x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, by)
	return a
}

// sign returns a certificate for the key of a, signed by by.
func (a *authority) sign(template *x509.Certificate, by *authority) *x509.Certificate {
	a.Helper()
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, key := template, a.key
	if by != nil {
		parent, key = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, a.key.Public(), key)
	must.Succeed(a, err)
	cert, err := x509.ParseCertificate(der)
	must.Succeed(a, err)
	return cert
}

// inForce returns certificates that require callers signed by the authorities.
func inForce(t *testing.T, authorities ...*authority) *secure.Certificates {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, ders ...[]byte) string {
		var text []byte
		for _, der := range ders {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})...)
		}
		file := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(file, text, 0o600))
		return file
	}
	secret, err := x509.MarshalPKCS8PrivateKey(authorities[0].key)
	must.Succeed(t, err)
	var ders [][]byte
	for _, a := range authorities {
		ders = append(ders, a.cert.Raw)
	}
	c, err := secure.ReadCertificates(secure.Files{Cert: write("cert", "CERTIFICATE", ders[0]), Key: write("key", "PRIVATE KEY", secret), ClientCA: write("ca", "CERTIFICATE", ders...)})
	must.Succeed(t, err)
	return c
}

// showing returns the state of a connection with a verified certificate.
func showing(chain ...*x509.Certificate) *tls.ConnectionState {
	return &tls.ConnectionState{PeerCertificates: chain[:len(chain)-1], VerifiedChains: [][]*x509.Certificate{chain}}
}

// TestAuthoritiesThatChange checks that a connection is judged by the authorities in
// force, even if its handshake used others.
func TestAuthoritiesThatChange(t *testing.T) {
	root := newAuthority(t, "root", nil, nil)
	between := newAuthority(t, "between", root, nil)
	leaf := newAuthority(t, "leaf", between, nil).sign(&x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"a.example"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, between)
	other := newAuthority(t, "root", nil, nil)
	for _, row := range []struct {
		name string
		now  []*authority
		good bool
	}{
		{"the same", []*authority{root}, true},
		{"the same and another", []*authority{other, root}, true},
		{"another with the same name", []*authority{other}, false},
		{"the same key, renewed", []*authority{newAuthority(t, "root", nil, root.key)}, true},
		{"the intermediate", []*authority{between}, true},
		{"the intermediate, signed by another root", []*authority{newAuthority(t, "between", other, between.key)}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			between := between.in(t)
			root := root.in(t)
			c := &secure.Callers{Certificates: inForce(t, row.now...)}
			for range 2 { // the second result is cached
				if name, err := c.Name("", showing(leaf, between.cert, root.cert)); (err == nil) != row.good || row.good && name != "san:a.example" {
					t.Errorf("%q, %v, want good: %t", name, err, row.good)
				}
			}
		})
	}
}

// TestNamesOfCertificates checks which name of its certificate identifies a caller. That other
// certificates are refused is tested in cmd/fetchd, on real connections.
func TestNamesOfCertificates(t *testing.T) {
	id := &url.URL{Scheme: "spiffe", Host: "example", Path: "/a"}
	all := &x509.Certificate{Raw: []byte("all"), URIs: []*url.URL{id}, DNSNames: []string{"a.example", "b.example"}, EmailAddresses: []string{"a@example.com"}}
	bare := &x509.Certificate{Raw: []byte("bare")}
	root := newAuthority(t, "root", nil, nil)
	certificates := inForce(t, root)
	showing := func(cert *x509.Certificate) *tls.ConnectionState { return showing(cert, root.cert) }
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
		{"an address", []string{"a@example.com"}, showing(all), "san:a@example.com"},
		{"the first that is allowed", []string{"x.example", "a@example.com", "a.example"}, showing(all), "san:a@example.com"},
		{"the case counts", []string{"A.example"}, showing(all), ""},
		{"part of a name", []string{"example"}, showing(all), ""},
		{"no name", []string{"a.example"}, showing(bare), ""},
		{"a URI as a DNS name", []string{"spiffe://example/a"}, showing(mixed), ""},
		{"an address as a DNS name", []string{"a@example.com"}, showing(mixed), ""},
		{"plaintext", nil, nil, ""},
		{"a certificate that was not verified", nil, &tls.ConnectionState{PeerCertificates: []*x509.Certificate{all}}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := (&secure.Callers{Certificates: certificates, SANs: row.allowed}).Name("", row.state)
			if got != row.want || errors.Is(err, secure.ErrCertificate) != (row.want == "") {
				t.Errorf("%q allowed: %q, %v, want %q", row.allowed, got, err, row.want)
			}
		})
	}
	if name, err := new(secure.Callers).Name("x", showing(all)); err == nil {
		t.Errorf("callers that nothing is asked of are named %q", name)
	}
}
