package tlswatch

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"fetchd/internal/secure"
)

// Use is what a service uses a certificate for. It is a label of the metrics.
type Use string

// The uses.
const (
	// Service is the certificate that the service presents to its callers.
	Service Use = "service"
	// ServiceChain is an intermediate certificate that it sends with its own.
	ServiceChain Use = "service_chain"
	// ClientAuthority is an authority that signs the certificates of callers.
	ClientAuthority Use = "client_authority"
	// EgressAuthority is an authority for all origins.
	EgressAuthority Use = "egress_authority"
	// OriginClient is a certificate that the service presents to an origin.
	OriginClient Use = "origin_client"
	// OriginAuthority is an authority for one origin.
	OriginAuthority Use = "origin_authority"
)

// Certificate is a certificate in use.
type Certificate struct {
	Use Use
	// Name is the origin of certificates for an origin. For others it is the common name of the
	// subject, or else the first name that the certificate is for. It is printable and has at most
	// 64 characters.
	Name string
	// Serial is the serial number, in hexadecimal, at most 40 digits.
	Serial              string
	NotBefore, NotAfter time.Time
}

// String returns what identifies the certificate.
func (c *Certificate) String() string { return fmt.Sprintf("%s %q serial %s", c.Use, c.Name, c.Serial) }

// Maximum numbers. A bundle of all public authorities has about 150.
const (
	maxOfFile = 200 // certificates of one file; those that expire first count
	maxInAll  = 1000
	maxName   = 64
	maxSerial = 40
)

// Describe returns the certificates for a use. Origin is empty unless they are for one origin.
func Describe(use Use, origin string, all ...*x509.Certificate) []Certificate {
	described := make([]Certificate, 0, len(all))
	for _, c := range all {
		serial := fmt.Sprintf("%x", c.SerialNumber)
		described = append(described, Certificate{Use: use, Name: shorten(cmp.Or(origin, nameOf(c), "unnamed")), Serial: serial[:min(len(serial), maxSerial)],
			NotBefore: c.NotBefore, NotAfter: c.NotAfter})
	}
	return first(described, maxOfFile)
}

// Of returns the certificates of a service that callers connect to. Nil has none.
func Of(c *secure.Certificates) []Certificate {
	if c == nil {
		return nil
	}
	chain := c.Chain()
	return slices.Concat(Describe(Service, "", chain[0]), Describe(ServiceChain, "", chain[1:]...), Describe(ClientAuthority, "", c.Authorities()...))
}

// Parse returns the certificates in a text in PEM. It skips what [x509.CertPool.AppendCertsFromPEM]
// skips.
func Parse(text []byte) []*x509.Certificate {
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
}

// first returns the certificates without duplicates, at most n, those that expire first.
func first(all []Certificate, n int) []Certificate {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Certificate) int {
		return cmp.Or(a.NotAfter.Compare(b.NotAfter), cmp.Compare(a.Use, b.Use), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Serial, b.Serial))
	})
	seen := make(map[identity]bool)
	all = slices.DeleteFunc(all, func(c Certificate) bool {
		again := seen[c.identity()]
		seen[c.identity()] = true
		return again
	})
	return all[:min(len(all), n)]
}

// identity has the labels of a certificate. A metric must not have two values for them.
type identity struct {
	use          Use
	name, serial string
}

func (c *Certificate) identity() identity { return identity{c.Use, c.Name, c.Serial} }

// nameOf returns what people call a certificate by, or "".
func nameOf(c *x509.Certificate) string {
	names := []string{c.Subject.CommonName}
	names = append(names, c.DNSNames...)
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	names = append(names, c.EmailAddresses...)
	names = append(names, strings.Join(c.Subject.OrganizationalUnit, " "), strings.Join(c.Subject.Organization, " "))
	return cmp.Or(names...)
}

// shorten returns a name without characters that a log or a label cannot show.
func shorten(name string) string {
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return '?'
		}
		return r
	}, name)
	if runes := []rune(name); len(runes) > maxName {
		return string(runes[:maxName])
	}
	return name
}
