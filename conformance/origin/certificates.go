package origin

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"slices"
	"time"
)

// authority signs the certificates of one origin. The certificate unknown is signed
// by a second authority, which is not in the origin's CA pool.
type authority struct {
	cert *x509.Certificate
	key  crypto.PrivateKey

	good, expired, wrongName, unknown, client tls.Certificate
}

const certificateLife = 24 * time.Hour

func newAuthority() (*authority, error) {
	a, err := newSigner("origin test CA")
	if err != nil {
		return nil, err
	}
	untrusted, err := newSigner("origin unknown CA")
	if err != nil {
		return nil, err
	}
	tomorrow := time.Now().Add(certificateLife)
	hosts := []string{"localhost", "origin.test", "*.origin.test"}
	for _, leaf := range []struct {
		into     *tls.Certificate
		signer   *authority
		names    []string
		notAfter time.Time
	}{
		{&a.good, a, hosts, tomorrow},
		{&a.expired, a, hosts, time.Now().Add(-time.Hour)},
		{&a.wrongName, a, []string{"wrong.example"}, tomorrow},
		{&a.unknown, untrusted, hosts, tomorrow},
		{&a.client, a, []string{"client.origin.test"}, tomorrow},
	} {
		template := &x509.Certificate{
			Subject:     pkix.Name{CommonName: "origin test certificate"},
			DNSNames:    leaf.names,
			NotAfter:    leaf.notAfter,
			KeyUsage:    x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		if slices.Contains(leaf.names, "localhost") {
			template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
		}
		if *leaf.into, err = issue(template, leaf.signer); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func newSigner(name string) (*authority, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotAfter:              time.Now().Add(2 * certificateLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	c, err := issue(template, nil)
	if err != nil {
		return nil, err
	}
	return &authority{cert: c.Leaf, key: c.PrivateKey}, nil
}

// issue makes a key and signs a certificate for it. If signer is nil, the
// certificate signs itself.
func issue(template *x509.Certificate, signer *authority) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("generate key: %w", err)
	}
	if signer == nil {
		signer = &authority{cert: template, key: key}
	}
	template.NotBefore = time.Now().Add(-2 * certificateLife)
	// Without a serial number CreateCertificate chooses a random one.
	der, err := x509.CreateCertificate(rand.Reader, template, signer.cert, &key.PublicKey, signer.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("sign %s: %w", template.Subject.CommonName, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("parse %s: %w", template.Subject.CommonName, err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// clientPEM returns the client certificate and its key, for the listener mtls.
func (a *authority) clientPEM() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(a.client.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("encode client key: %w", err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.client.Certificate[0]})
	return append(cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...), nil
}
