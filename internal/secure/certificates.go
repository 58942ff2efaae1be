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
	"slices"
	"sync"
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
	callersCA *x509.CertPool  // nil: callers show no certificate
	trusted   map[string]bool // the raw certificates of callersCA
	verified  sync.Map        // results for certificates that none of trusted signed directly, by raw bytes
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
		if c.callersCA, c.trusted, err = authorities(text); err != nil {
			return nil, fmt.Errorf("%s: %w", f.ClientCA, err)
		}
		c.read.ClientCA = sha256.Sum256(text)
	}
	c.server = c.config()
	return c, nil
}

// authorities reads every certificate of a file: one that is skipped would be an
// authority that someone relies on.
func authorities(text []byte) (*x509.CertPool, map[string]bool, error) {
	pool, trusted := x509.NewCertPool(), make(map[string]bool)
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, nil, fmt.Errorf("holds a %s, want certificates only", block.Type)
		}
		authority, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, err
		}
		pool.AddCert(authority)
		trusted[string(authority.Raw)] = true
	}
	if len(trusted) == 0 || len(bytes.TrimSpace(text)) > 0 {
		return nil, nil, errors.New("holds something that is no certificate in PEM")
	}
	return pool, trusted, nil
}

// signed reports whether the authorities have signed the certificate of a connection. The
// handshake has verified it, perhaps against other authorities. It is called for each
// call, so a chain with one of the authorities is not verified again.
func (c *Certificates) signed(state *tls.ConnectionState) bool {
	if state == nil || len(state.VerifiedChains) == 0 || c.callersCA == nil {
		return false
	}
	for _, chain := range state.VerifiedChains {
		for _, cert := range slices.Backward(chain) {
			if c.trusted[string(cert.Raw)] {
				return true
			}
		}
	}
	leaf := state.VerifiedChains[0][0]
	if good, known := c.verified.Load(string(leaf.Raw)); known {
		return good == true
	}
	good := c.verify(leaf, state.PeerCertificates[min(1, len(state.PeerCertificates)):]) == nil
	c.verified.Store(string(leaf.Raw), good)
	return good
}

// verify checks a client certificate against the authorities.
func (c *Certificates) verify(leaf *x509.Certificate, between []*x509.Certificate) error {
	pool := x509.NewCertPool()
	for _, cert := range between {
		pool.AddCert(cert)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: c.callersCA, Intermediates: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
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
	var between []*x509.Certificate
	for _, der := range c.pair.Certificate[1:] {
		if more, err := x509.ParseCertificate(der); err == nil {
			between = append(between, more)
		}
	}
	if err := c.verify(c.pair.Leaf, between); err != nil {
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
