package fetch_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/internal/budget"
	"fetchd/test/wait"
)

// TestCertificatesThatTakeMemory checks that a chain larger than usual is charged to
// the fetch that dials and that its connection serves no other fetch. A still larger
// chain is refused.
func TestCertificatesThatTakeMemory(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		extra  int // bytes in the chain
		budget int64
		class  classify.Class
		reason string
		reused bool
	}{
		{"usual", 2 << 10, 1 << 20, 0, "", true},
		{"large", 14 << 10, 1 << 20, 0, "", false},
		{"large, and no memory for it", 14 << 10, 100 << 10, classify.OutOfMemory, "memory", false},
		{"too large in memory", 25 << 10, 1 << 20, classify.TLSHandshake, "certificates_too_large", false},
		{"too long", 50 << 10, 1 << 20, classify.TLSHandshake, "handshake_too_large", false},
	} {
		for _, over := range []struct {
			name           string
			http2, proxied bool
		}{{"HTTP/1.1", false, false}, {"HTTP/2", true, false}, {"HTTP/1.1 and a proxy", false, true}, {"HTTP/2 and a proxy", true, true}} {
			t.Run(row.name+" over "+over.name, func(t *testing.T) {
				t.Parallel()
				s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				s.EnableHTTP2 = over.http2
				s.StartTLS()
				t.Cleanup(s.Close)
				s.TLS.Certificates[0].Certificate = append(s.TLS.Certificates[0].Certificate[:1:1], largeCertificate(t, row.extra))
				roots := x509.NewCertPool()
				roots.AddCert(s.Certificate())
				cfg := fetch.Config{Egress: unrestricted, RootCAs: roots}
				if over.proxied {
					proxy := httptest.NewServer(&connectProxy{target: s.Listener.Addr().String()})
					t.Cleanup(proxy.Close)
					cfg.Proxy = mustParse(t, proxy.URL)
				}
				c := newClient(t, cfg)
				b := budget.New(row.budget)
				for try := range 2 {
					r := get(t, s.URL+"/")
					r.Policy.MaxAttempts, r.Memory = 1, b.Lease("caller")
					out := c.Fetch(t.Context(), r, nil)
					r.Memory.Close()
					var class classify.Class
					reason := ""
					if out.Failure != nil {
						class, reason = out.Failure.Class, out.Failure.Reason
					}
					if class != row.class || reason != row.reason {
						t.Fatalf("fetch %d: %s %q, want %s %q", try, class, reason, row.class, row.reason)
					}
					if reused := out.Hops[0].Exchange.Reused; class == 0 && try == 1 && reused != row.reused {
						t.Errorf("the second fetch reused the connection: %t, want %t", reused, row.reused)
					}
				}
				// A closed HTTP/2 connection is charged for five seconds more.
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				if wait.Until(ctx, 20*time.Millisecond, func() bool { return b.Usage().Total() == 0 }) != nil {
					t.Errorf("%d bytes are still charged", b.Usage().Total())
				}
			})
		}
	}
}

// largeCertificate returns a certificate with an extension of that many bytes.
func largeCertificate(t *testing.T, n int) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3}, Value: make([]byte, n)}}}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
