package tlswatch_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"fetchd/internal/tlswatch"
	"fetchd/test/selfsigned"
)

func TestDescribe(t *testing.T) {
	long := new(big.Int).Lsh(big.NewInt(1), 4000)
	for _, row := range []struct {
		name, origin string
		cert         x509.Certificate
		want, serial string
	}{
		{"the common name", "", x509.Certificate{Subject: pkix.Name{CommonName: "cn"}, DNSNames: []string{"dns"}}, "cn", "ff"},
		{"a DNS name", "", x509.Certificate{DNSNames: []string{"dns", "other"}}, "dns", "ff"},
		{"a URI", "", x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "a", Path: "/b"}}}, "spiffe://a/b", "ff"},
		{"an address", "", x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, "127.0.0.1", "ff"},
		{"an organization", "", x509.Certificate{Subject: pkix.Name{Organization: []string{"o"}}}, "o", "ff"},
		{"nothing", "", x509.Certificate{}, "unnamed", "ff"},
		{"for an origin", "a.example:443", x509.Certificate{Subject: pkix.Name{CommonName: "cn"}}, "a.example:443", "ff"},
		{"characters that a log cannot show", "", x509.Certificate{Subject: pkix.Name{CommonName: "a\n\x00\xff\"b"}}, `a???"b`, "ff"},
		{"a long name", "", x509.Certificate{Subject: pkix.Name{CommonName: strings.Repeat("é", 999)}}, strings.Repeat("é", 64), "ff"},
		{"a long serial", "", x509.Certificate{SerialNumber: long}, "unnamed", "1" + strings.Repeat("0", 39)},
	} {
		if row.cert.SerialNumber == nil {
			row.cert.SerialNumber = big.NewInt(255)
		}
		got := tlswatch.Describe(tlswatch.Service, row.origin, &row.cert)[0]
		if got.Name != row.want || got.Serial != row.serial || !utf8.ValidString(got.Name) {
			t.Errorf("%s: %q %q, want %q %q", row.name, got.Name, got.Serial, row.want, row.serial)
		}
	}
}

func TestFault(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		name        string
		begin, end  time.Duration
		want        string
		wantExpired bool
	}{
		{"valid", -year, 31 * day, "", false},
		{"30 days left", -year, 30 * day, "expires in 30 days", false},
		{"hours left", -year, 30 * time.Hour, "expires in 30 hours", false},
		{"two of three days left", -day, 2 * day, "", false},
		{"one of three days left", -2 * day, day, "expires in 24 hours", false},
		{"seconds left", -day, 90 * time.Second, "expires in 1m30s", false},
		{"the last instant", -day, 0, "expires in 0s", false},
		{"expired", -day, -3 * day, "expired 3 days ago", true},
		{"not valid yet", day, 90 * day, "is not valid before 2026-01-02T00:00:00Z", false},
	} {
		c := tlswatch.Certificate{NotBefore: now.Add(row.begin), NotAfter: now.Add(row.end)}
		if got := c.Fault(now); got != row.want || c.Expired(now) != row.wantExpired {
			t.Errorf("%s: %q, expired %t, want %q, %t", row.name, got, c.Expired(now), row.want, row.wantExpired)
		}
	}
}

// FuzzParse checks that the certificates of a text are those that the pool takes from it.
func FuzzParse(f *testing.F) {
	_, cert, key, err := selfsigned.New()
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{"", "x", string(cert), string(key) + string(cert) + "\n#\n" + string(cert),
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "-----BEGIN CERTIFICATE-----\nA: b\n\n" + strings.TrimPrefix(string(cert), "-----BEGIN CERTIFICATE-----\n")} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		all := tlswatch.Parse(text)
		if want := x509.NewCertPool().AppendCertsFromPEM(text); want != (len(all) > 0) {
			t.Errorf("%d certificates, the pool takes some: %t", len(all), want)
		}
		for _, c := range tlswatch.Describe(tlswatch.EgressAuthority, "", all...) {
			if !utf8.ValidString(c.Name) || c.Name == "" || len([]rune(c.Name)) > 64 || len(c.Serial) > 40 {
				t.Errorf("%+v", c)
			}
		}
	})
}
