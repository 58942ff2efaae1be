package conns

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"time"

	"fetchd/fetch/fault"
)

// MaxNameBytes is the maximum length of the names in a [Certificate].
const MaxNameBytes = 256

// maxParsedName is the length in bytes of an encoded name from which only its common name is shown.
// To format a longer one would cost time that grows with the square of its length.
const maxParsedName = 2 << 10

// TLSDetails describe the TLS handshake with an origin.
type TLSDetails struct {
	// CipherSuite is for example "TLS_AES_128_GCM_SHA256". It is empty if the handshake failed.
	CipherSuite string
	// ALPN is the protocol that was negotiated, such as "h2". Empty means none.
	ALPN string
	// Certificate is that of the origin, without those that signed it.
	Certificate Certificate
}

// Certificate describes a certificate. Its text comes from the origin, is printable, and need not be true.
type Certificate struct {
	// Subject and Issuer are names as in RFC 4514, such as "CN=example.com,O=Example". Each is one line
	// of at most [MaxNameBytes], with unprintable characters escaped.
	Subject, Issuer string
	// NotAfter is when it expires.
	NotAfter time.Time
	// SHA256 is the digest of the certificate (DER) in hexadecimal.
	SHA256 string
}

// describe describes the first certificate of a chain.
func describe(chain []*x509.Certificate) Certificate {
	if len(chain) == 0 {
		return Certificate{}
	}
	c := chain[0]
	digest := sha256.Sum256(c.Raw)
	return Certificate{nameText(c.Subject, c.RawSubject), nameText(c.Issuer, c.RawIssuer), c.NotAfter.UTC(), hex.EncodeToString(digest[:])}
}

func nameText(n pkix.Name, raw []byte) string {
	if len(raw) > maxParsedName {
		n = pkix.Name{CommonName: n.CommonName}
	}
	return fault.Printable(n.String(), MaxNameBytes)
}
