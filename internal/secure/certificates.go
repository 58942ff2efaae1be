package secure

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
)

// Files name what a listener is served with, in PEM.
type Files struct {
	// Cert is the service's certificate and those between it and an authority.
	Cert string
	// Key is its private key.
	Key string
	// ClientCA holds the authorities that sign callers' certificates; empty means
	// that none is asked for.
	ClientCA string
}

// Certificates are what [Files] held when they were read.
type Certificates struct {
	pair      tls.Certificate
	callersCA *x509.CertPool // nil: callers show no certificate
	read      Digests
	server    *tls.Config
}

// Digests are those of the files, to tell whether they have changed. A file that
// is not named has the zero value.
type Digests struct{ Cert, Key, ClientCA [sha256.Size]byte }

// protocols are those of both ports: gRPC takes the first alone.
var protocols = []string{"h2", "http/1.1"}

// ReadCertificates reads the files. The error names the one that is not usable.
func ReadCertificates(f Files) (*Certificates, error) {
	cert, err := os.ReadFile(f.Cert)
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(f.Key)
	if err != nil {
		return nil, err
	}
	c := &Certificates{read: Digests{Cert: sha256.Sum256(cert), Key: sha256.Sum256(key)}}
	if c.pair, err = tls.X509KeyPair(cert, key); err != nil {
		return nil, fmt.Errorf("%s with the key %s: %w", f.Cert, f.Key, err)
	}
	if f.ClientCA != "" {
		text, err := os.ReadFile(f.ClientCA)
		if err != nil {
			return nil, err
		}
		if c.callersCA, err = authorities(text); err != nil {
			return nil, fmt.Errorf("%s: %w", f.ClientCA, err)
		}
		c.read.ClientCA = sha256.Sum256(text)
	}
	c.server = c.config()
	return c, nil
}

// authorities reads every certificate of a file: one that is skipped would be an
// authority that someone relies on.
func authorities(text []byte) (*x509.CertPool, error) {
	pool, found := x509.NewCertPool(), false
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("holds a %s, want certificates only", block.Type)
		}
		authority, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(authority)
		found = true
	}
	if !found || len(bytes.TrimSpace(text)) > 0 {
		return nil, errors.New("holds something that is no certificate in PEM")
	}
	return pool, nil
}

// config is how one handshake goes.
func (c *Certificates) config() *tls.Config {
	cfg := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{c.pair},
		NextProtos:   protocols,
		// A session that is resumed is not checked against authorities that have
		// changed since. Connections of callers are long; they lose nothing.
		SessionTicketsDisabled: true,
	}
	if c.callersCA != nil {
		cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, c.callersCA
	}
	return cfg
}

// Digests are those of the files when they were read.
func (c *Certificates) Digests() Digests { return c.read }

// AsClient is how the service calls itself: it knows whom it talks to and
// verifies nothing. Where callers must show a certificate it shows its own; the
// error says that its authorities would not take that.
func (c *Certificates) AsClient() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, InsecureSkipVerify: true}
	if c.callersCA == nil {
		return cfg, nil
	}
	between := x509.NewCertPool()
	for _, der := range c.pair.Certificate[1:] {
		if more, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(more)
		}
	}
	_, err := c.pair.Leaf.Verify(x509.VerifyOptions{Roots: c.callersCA, Intermediates: between,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return nil, err
	}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c.pair, nil }
	return cfg, nil
}

// Config is how a listener is served with the certificates that now returns
// when a handshake begins. TLS 1.2 is the oldest version taken.
func Config(now func() *Certificates) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols, SessionTicketsDisabled: true,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return now().server, nil },
	}
}
