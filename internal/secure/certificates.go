package secure

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Files holds the names of the PEM files for TLS.
type Files struct {
	// Cert contains the certificate of the service and its intermediate certificates.
	Cert string
	// Key contains the private key.
	Key string
	// ClientCA contains the authorities of client certificates. Empty means that callers need no
	// certificate.
	ClientCA string
}

// Certificates holds the contents of [Files].
type Certificates struct {
	pair      tls.Certificate
	inCA      []*x509.Certificate // authorities of callers; nil if callers need no certificate
	callersCA *x509.CertPool      // the same
	trusted   map[string]bool     // the raw certificates of callersCA
	verified  sync.Map            // results for certificates that no authority signed directly, by raw bytes
	read      Digests
	server    *tls.Config
}

// Digests holds the SHA-256 of each file, to detect changes. It is zero for a file that is not set.
type Digests struct{ Cert, Key, ClientCA [sha256.Size]byte }

// maxChainBytes is the maximum size of the certificates that are sent to clients. OpenSSL reads 100 KiB.
const maxChainBytes = 64 << 10

// protocols are the ALPN protocols of both ports. gRPC accepts only the first.
var protocols = []string{"h2", "http/1.1"}

// ReadCertificates reads the files. An error names the flag and the file.
func ReadCertificates(f Files) (*Certificates, error) {
	cert, err := ReadFile(f.Cert)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file: %w", err)
	}
	key, err := ReadFile(f.Key)
	if err != nil {
		return nil, fmt.Errorf("--tls-key-file: %w", err)
	}
	c := &Certificates{read: Digests{Cert: sha256.Sum256(cert), Key: sha256.Sum256(key)}}
	if c.pair, err = tls.X509KeyPair(cert, key); err != nil {
		return nil, fmt.Errorf("--tls-cert-file: %s with the key %s: %w", f.Cert, f.Key, err)
	}
	size := 0
	for _, der := range c.pair.Certificate {
		size += len(der)
	}
	if size > maxChainBytes {
		return nil, fmt.Errorf("--tls-cert-file: %s: its %d certificates are more than clients read: keep that of the service and its intermediate certificates", f.Cert, len(c.pair.Certificate))
	}
	if f.ClientCA != "" {
		text, err := ReadFile(f.ClientCA)
		if err != nil {
			return nil, fmt.Errorf("--tls-client-ca-file: %w", err)
		}
		if c.inCA, err = authorities(text); err != nil {
			return nil, fmt.Errorf("--tls-client-ca-file: %s: %w", f.ClientCA, err)
		}
		c.callersCA, c.trusted = x509.NewCertPool(), make(map[string]bool)
		for _, authority := range c.inCA {
			c.callersCA.AddCert(authority)
			c.trusted[string(authority.Raw)] = true
		}
		c.read.ClientCA = sha256.Sum256(text)
	}
	c.server = c.config()
	return c, nil
}

// authorities parses all certificates of a file. It skips none, because the operator may rely on it.
func authorities(text []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("contains a %s: keep only certificates in this file", block.Type)
		}
		authority, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, authority)
	}
	if len(all) == 0 || len(bytes.TrimSpace(text)) > 0 {
		return nil, errors.New("must contain only certificates in PEM, and at least one")
	}
	return all, nil
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

// config returns the configuration of a handshake.
func (c *Certificates) config() *tls.Config {
	cfg := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{c.pair},
		NextProtos:   protocols,
		// A resumed session would not be checked against the current authorities. Callers
		// keep their connections, so resumption would save little.
		SessionTicketsDisabled: true,
	}
	if c.callersCA != nil {
		cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, c.callersCA
	}
	return cfg
}

// Digests returns the digests of the files as they were read.
func (c *Certificates) Digests() Digests { return c.read }

// Chain returns the certificate of the service, and the intermediate certificates that it sends with it.
func (c *Certificates) Chain() []*x509.Certificate {
	chain := []*x509.Certificate{c.pair.Leaf}
	for _, der := range c.pair.Certificate[1:] {
		if more, err := x509.ParseCertificate(der); err == nil {
			chain = append(chain, more)
		}
	}
	return chain
}

// Authorities returns the authorities of client certificates.
func (c *Certificates) Authorities() []*x509.Certificate { return c.inCA }

// Expired reports whether the certificate of the service has expired.
func (c *Certificates) Expired() bool { return time.Now().After(c.pair.Leaf.NotAfter) }

// AsClient returns the configuration with which the service calls itself, for health checks. It does
// not verify the server. If callers need a certificate, it uses the one of the service. It returns
// an error if the authorities would not accept that certificate.
func (c *Certificates) AsClient() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, InsecureSkipVerify: true}
	if c.callersCA == nil {
		return cfg, nil
	}
	chain := c.Chain()
	if err := c.verify(chain[0], chain[1:]); err != nil {
		return nil, err
	}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c.pair, nil }
	return cfg, nil
}

// Config returns the configuration of a listener. Each handshake uses the certificates that now
// returns at its start. The minimum version is TLS 1.2.
func Config(now func() *Certificates) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols, SessionTicketsDisabled: true,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return now().server, nil },
	}
}
