package fetch_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
)

// issued is a certificate with its key.
type issued struct {
	*x509.Certificate
	key *ecdsa.PrivateKey
}

// issue makes a certificate that lasts from an hour ago to in an hour, unless change says otherwise. Without an
// issuer it signs itself. Without DNS names it is that of an authority.
func issue(t testing.TB, name string, by *issued, change func(c *x509.Certificate)) *issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	if change != nil {
		change(template)
	}
	if template.IsCA = len(template.DNSNames) == 0; template.IsCA {
		template.KeyUsage = x509.KeyUsageCertSign
	}
	issuer := &issued{template, key}
	if by != nil {
		issuer = by
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.Certificate, key.Public(), issuer.key)
	must(t, err)
	c, err := x509.ParseCertificate(der)
	must(t, err)
	return &issued{c, key}
}

// pemOf returns certificates in PEM.
func pemOf(all ...*issued) []byte {
	var text bytes.Buffer
	for _, c := range all {
		_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	}
	return text.Bytes()
}

// chained returns what an origin shows.
func chained(leaf *issued, more ...*issued) tls.Certificate {
	c := tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: leaf.key}
	for _, m := range more {
		c.Certificate = append(c.Certificate, m.Raw)
	}
	return c
}

// published adds to a certificate for names where its issuer's certificate is.
func published(names ...string) func(c *x509.Certificate) {
	return func(c *x509.Certificate) {
		c.DNSNames, c.IssuingCertificateURL = names, []string{"http://authority.example/issuer.der"}
	}
}

// shower serves with TLS, and returns a dialer to it for every address.
func shower(t *testing.T, config *tls.Config, http2 bool, h http.Handler) func(context.Context, string, string) (net.Conn, error) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2, s.TLS, s.Config.ErrorLog = http2, config, slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, s.Listener.Addr().String())
	}
}

// parsed returns intermediates.
func parsed(t testing.TB, all ...*issued) *fetch.Intermediates {
	t.Helper()
	i, err := fetch.ParseIntermediates(pemOf(all...))
	must(t, err)
	return i
}

// TestIntermediates checks which chains are accepted without and with intermediates, and what is wrong with the
// others.
func TestIntermediates(t *testing.T) {
	t.Parallel()
	ended := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	root, foreign := issue(t, "root", nil, nil), issue(t, "foreign root", nil, nil)
	upper := issue(t, "upper", root, nil)
	lower := issue(t, "lower", upper, nil)
	namesake, late := issue(t, "upper", foreign, nil), issue(t, "late", root, ended)
	crossed, early := renewed(t, foreign, root), renewed(t, late, root)
	leaf := func(by *issued) *issued { return issue(t, "leaf", by, published("example.com")) }
	const incomplete, unknown = "incomplete_chain", "certificate_unknown_authority"
	for _, row := range []struct {
		name          string
		shown         tls.Certificate
		file          []*issued
		without, with string // the reason; empty: a success
	}{
		{"the leaf alone", chained(leaf(upper)), []*issued{upper}, incomplete, ""},
		{"two are missing", chained(leaf(lower)), []*issued{lower, upper}, incomplete, ""},
		{"the upper one is missing", chained(leaf(lower), lower), []*issued{upper}, unknown, ""},
		{"the wrong one was sent", chained(leaf(upper), late), []*issued{upper}, incomplete, ""},
		{"the file has others", chained(leaf(upper)), []*issued{lower, foreign}, incomplete, incomplete},
		{"the file has one of two", chained(leaf(lower)), []*issued{lower}, incomplete, unknown},
		{"the file has an expired one", chained(leaf(late)), []*issued{late}, incomplete, incomplete},
		{"an expired one was sent, and the file has the new one", chained(leaf(late), late), []*issued{early}, "certificate_expired", ""},
		{"the file has a namesake with another key", chained(leaf(upper)), []*issued{namesake}, incomplete, unknown},
		{"the file has both", chained(leaf(upper)), []*issued{namesake, upper}, incomplete, ""},
		{"the file has a certificate of the unknown root", chained(leaf(foreign)), []*issued{crossed}, incomplete, ""},
		{"the file has a root", chained(leaf(foreign)), []*issued{foreign}, incomplete, unknown},
		{"a complete chain", chained(leaf(upper), upper), []*issued{upper}, "", ""},
		{"a complete chain of an unknown root", chained(leaf(namesake), namesake), []*issued{upper}, unknown, unknown},
		{"a namesake was sent", chained(leaf(upper), namesake), []*issued{lower}, unknown, unknown},
		{"a leaf that signs itself", chained(issue(t, "leaf", nil, published("example.com"))), []*issued{upper}, unknown, unknown},
		{"a leaf that names no address", chained(issue(t, "leaf", upper, func(c *x509.Certificate) { c.DNSNames = []string{"example.com"} })), []*issued{upper}, unknown, ""},
		{"another name", chained(issue(t, "leaf", upper, published("example.net"))), []*issued{upper}, "certificate_wrong_name", "certificate_wrong_name"},
		{"an expired leaf", chained(issue(t, "leaf", upper, func(c *x509.Certificate) { published("example.com")(c); ended(c) })), []*issued{upper}, "certificate_expired", "certificate_expired"},
		{"a leaf for clients only", chained(issue(t, "leaf", upper, func(c *x509.Certificate) {
			published("example.com")(c)
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		})), []*issued{upper}, incomplete, "certificate_invalid"},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %t", row.name, http2), func(t *testing.T) {
				t.Parallel()
				roots := x509.NewCertPool()
				roots.AddCert(root.Certificate)
				dial := shower(t, &tls.Config{Certificates: []tls.Certificate{row.shown}}, http2, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				for i, want := range []string{row.without, row.with, row.without} {
					cfg := fetch.Config{Egress: unrestricted, RootCAs: roots, Dial: dial}
					if i == 1 {
						cfg.Intermediates = parsed(t, row.file...)
					}
					c := newClient(t, cfg)
					if i == 2 { // as after a reload
						c.SetIntermediates(parsed(t, row.file...))
						c.SetIntermediates(nil)
					}
					r := get(t, "https://example.com/")
					r.Policy.MaxAttempts = 1
					out := c.Fetch(t.Context(), r, nil)
					if want == "" && out.Failure == nil {
						continue
					}
					if out.Failure == nil || out.Failure.Class != classify.TLSCertificate || out.Failure.Reason != want {
						t.Errorf("client %d: %+v, want TLS_CERTIFICATE, reason %q", i, out.Failure, want)
					} else if out.Hops[0].Exchange.TLSDetails == nil || want == incomplete && !strings.Contains(out.Failure.Message, "--egress-intermediates") {
						t.Errorf("client %d: %q, certificate %+v, want a remedy and the certificate", i, out.Failure.Message, out.Hops[0].Exchange.TLSDetails)
					}
				}
			})
		}
	}
}

// renewed returns a certificate with the name and the key of an old one.
func renewed(t *testing.T, old, by *issued) *issued {
	t.Helper()
	template := *old.Certificate
	template.NotAfter = time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, &template, by.Certificate, old.key.Public(), by.key)
	must(t, err)
	c, err := x509.ParseCertificate(der)
	must(t, err)
	return &issued{c, old.key}
}

// TestIntermediatesAndSessions checks that sessions are resumed.
func TestIntermediatesAndSessions(t *testing.T) {
	t.Parallel()
	root := issue(t, "root", nil, nil)
	upper := issue(t, "upper", root, nil)
	shown := chained(issue(t, "leaf", upper, published("example.com")))
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		resumed := make(chan bool, 1)
		dial := shower(t, &tls.Config{MaxVersion: version, Certificates: []tls.Certificate{shown}}, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			resumed <- r.TLS.DidResume
		}))
		roots := x509.NewCertPool()
		roots.AddCert(root.Certificate)
		c := newClient(t, fetch.Config{Egress: unrestricted, RootCAs: roots, Intermediates: parsed(t, upper), Dial: dial})
		for n := range 3 {
			if out := c.Fetch(t.Context(), get(t, "https://example.com/"), nil); out.Failure != nil {
				t.Fatalf("TLS %x, fetch %d: %+v", version, n, out.Failure)
			}
			if got := <-resumed; got != (n > 0) {
				t.Errorf("TLS %x, fetch %d: resumed %t", version, n, got)
			}
		}
	}
}

// TestParseIntermediates checks what is refused, and what is skipped.
func TestParseIntermediates(t *testing.T) {
	t.Parallel()
	root := issue(t, "root", nil, nil)
	leaf := pemOf(issue(t, "leaf", root, published("example.com")))
	broken := bytes.Replace(pemOf(root), []byte("MII"), []byte("AAA"), 1)
	for name, row := range map[string]struct {
		text []byte
		ok   bool
	}{
		"nothing":               {nil, false},
		"rubbish":               {[]byte("rubbish"), false},
		"a leaf":                {leaf, false},
		"a broken one":          {broken, false},
		"a key":                 {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: root.Raw}), false},
		"an authority":          {pemOf(root), true},
		"an authority and more": {bytes.Join([][]byte{[]byte("text\n"), leaf, broken, pemOf(root)}, nil), true},
	} {
		i, err := fetch.ParseIntermediates(row.text)
		if (err == nil) != row.ok || row.ok && !i.IsOf(row.text) || i.IsOf([]byte("other")) {
			t.Errorf("%s: %v, want ok %t", name, err, row.ok)
		}
	}
}
