package origin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// authority signs the certificates of one origin. The certificate unknown is signed
// by a second authority, which is not in the origin's CA pool.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	good, expired, wrongName, unknown, client tls.Certificate
}

const certificateLife = 24 * time.Hour

func newAuthority() (*authority, error) {
	a, err := newSigner("origin test CA")
	if err != nil {
		return nil, err
	}
	stranger, err := newSigner("origin unknown CA")
	if err != nil {
		return nil, err
	}
	now := time.Now()
	hosts := []string{"localhost", "origin.test", "*.origin.test"}
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, leaf := range []struct {
		into   *tls.Certificate
		signer *authority
		spec   x509.Certificate
	}{
		{&a.good, a, x509.Certificate{DNSNames: hosts, IPAddresses: ips, NotAfter: now.Add(certificateLife)}},
		{&a.expired, a, x509.Certificate{DNSNames: hosts, IPAddresses: ips, NotAfter: now.Add(-time.Hour)}},
		{&a.wrongName, a, x509.Certificate{DNSNames: []string{"wrong.example"}, NotAfter: now.Add(certificateLife)}},
		{&a.unknown, stranger, x509.Certificate{DNSNames: hosts, IPAddresses: ips, NotAfter: now.Add(certificateLife)}},
		{&a.client, a, x509.Certificate{DNSNames: []string{"client.origin.test"}, NotAfter: now.Add(certificateLife)}},
	} {
		if *leaf.into, err = leaf.signer.sign(leaf.spec); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func newSigner(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-2 * certificateLife),
		NotAfter:              now.Add(2 * certificateLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	return &authority{cert: cert, key: key}, nil
}

// sign issues a certificate with the names and the NotAfter of spec.
func (a *authority) sign(spec x509.Certificate) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("generate key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("choose serial: %w", err)
	}
	spec.SerialNumber = serial
	spec.Subject = pkix.Name{CommonName: "origin test certificate"}
	spec.NotBefore = a.cert.NotBefore
	spec.KeyUsage = x509.KeyUsageDigitalSignature
	spec.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, &spec, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("sign certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
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
