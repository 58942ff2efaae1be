package fetch_test

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
)

// presented returns what package fetch should say about the certificate of a listener.
func (w *wire) presented(listener string) fetch.Certificate {
	w.Helper()
	var certificate fetch.Certificate
	config := &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(state tls.ConnectionState) error {
		c := state.PeerCertificates[0]
		digest := sha256.Sum256(c.Raw)
		certificate = fetch.Certificate{Subject: c.Subject.String(), Issuer: c.Issuer.String(), NotAfter: c.NotAfter, SHA256: hex.EncodeToString(digest[:])}
		return nil
	}}
	conn, err := tls.Dial("tcp", w.origin.Addr(listener), config)
	if err != nil {
		w.Fatal(err)
	}
	_ = conn.Close()
	if certificate.Subject == "" || certificate.Issuer == "" {
		w.Fatalf("%+v: want a certificate with names", certificate)
	}
	return certificate
}

// TestTLSDetails checks what a hop says about its TLS handshake: on request, and always if the
// certificate was rejected. Nothing is said about the handshake with a proxy.
func TestTLSDetails(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, listener string
		wanted         bool
		class          classify.Class
		alpn           string
		details        bool
	}{
		{"HTTP/1.1", "https1", true, 0, "http/1.1", true},
		{"HTTP/2", "https", true, 0, "h2", true},
		{"not wanted", "https", false, 0, "", false},
		{"no TLS", "http", true, 0, "", false},
		{"an expired certificate", "tls-expired", false, classify.TLSCertificate, "", true},
		{"an expired certificate, wanted", "tls-expired", true, classify.TLSCertificate, "", true},
		{"a certificate of another name", "tls-wrong-name", false, classify.TLSCertificate, "", true},
		{"a certificate of an unknown authority", "tls-unknown-ca", false, classify.TLSCertificate, "", true},
		{"a handshake that fails", "tls-old", true, classify.TLSHandshake, "", false},
	} {
		for _, proxy := range []string{"no", "http", "https", "socks5"} {
			t.Run(fmt.Sprintf("%s, %s proxy", row.name, proxy), func(t *testing.T) {
				t.Parallel()
				w := newWire(t)
				switch proxy {
				case "http", "https":
					w.client = (&connectProxy{target: w.origin.Addr(row.listener)}).serve(t, w, proxy)
				case "socks5":
					w.client = throughProxy(t, w, "socks5://"+socksProxy(t, w.origin.Addr(row.listener)), w.origin.CA())
				}
				for n := range 2 { // the second one on a connection that is reused
					r := w.request(row.listener, "/s/details/200")
					r.Policy.MaxAttempts, r.TLSDetails = 1, row.wanted
					res := w.run(t.Context(), r)
					class := classOf(res.Failure)
					if x := res.Hops[0].Exchange; class != row.class || x.Reused != (n > 0 && class == 0) {
						t.Fatalf("class %s (%+v), reused %t, want %s", class, res.Failure, x.Reused, row.class)
					}
					got := res.Hops[0].Exchange.TLSDetails
					if !row.details {
						if got != nil {
							t.Errorf("%+v, want none", got)
						}
						continue
					}
					want := fetch.TLSDetails{ALPN: row.alpn, Certificate: w.presented(row.listener)}
					if class == 0 {
						want.CipherSuite = "TLS_AES_128_GCM_SHA256"
					}
					if got == nil || *got != want {
						t.Errorf("%+v\nwant %+v", got, want)
					}
				}
			})
		}
	}
}

// TestNoDetailsOfProxies checks that the certificate of a proxy is not taken for that of the origin if it
// is rejected.
func TestNoDetailsOfProxies(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	for _, listener := range []string{"http", "https"} {
		w.client = throughProxy(t, w, "https://"+net.JoinHostPort("localhost", portOf(t, w.origin.Addr("tls-expired"))), w.origin.CA())
		r := w.request(listener, "/s/details/200")
		r.Policy.MaxAttempts, r.TLSDetails = 1, true
		res := w.run(t.Context(), r)
		if res.Failure == nil || res.Failure.Class != classify.TLSCertificate {
			t.Fatalf("failure %+v, want TLS_CERTIFICATE", res.Failure)
		}
		if got := res.Hops[0].Exchange.TLSDetails; got != nil {
			t.Errorf("%s: %+v, want nothing about the proxy", listener, got)
		}
	}
}

func portOf(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}
