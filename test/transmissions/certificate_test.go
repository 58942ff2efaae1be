package transmissions

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
)

// TestCertificateDemanded fetches from an origin that demands a client certificate, which the client
// does not have. In TLS 1.3 the client has finished its side of the handshake before the origin refuses
// it, and may have sent its request by then. Every fetch must end in the same way, also if a reset
// destroys the alert of the origin, and also through a proxy, which passes the reset on.
func TestCertificateDemanded(t *testing.T) {
	t.Parallel()
	const runs = 12
	for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
		for _, after := range []struct {
			name    string
			refused func(net.Conn) bool
		}{{"close in order", leave}, {"close", nil}, {"reset", reset1}} {
			for _, p := range profiles {
				for _, row := range []struct {
					method  string
					proxied bool
				}{{http.MethodGet, false}, {http.MethodPut, false}, {http.MethodGet, true}} {
					t.Run(fmt.Sprintf("%s, %s, %s, %s, proxied %t", version, after.name, p.name, row.method, row.proxied), func(t *testing.T) {
						t.Parallel()
						var proxy *url.URL
						if row.proxied {
							proxy = startProxy(t)
						}
						s := script{http1: answer1, refused: after.refused, secure: &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13}}
						if version == "HTTP/2" {
							s.http2 = answer2
						}
						o := start(t, s)
						// N5: STANDARD repeats a failed handshake, DOWNLOAD does not.
						want := "tls_handshake after 3 attempts, I4, retryable true"
						if p.profile == classify.Download {
							want = "tls_handshake after 1 attempts, N5, retryable false"
						}
						for i := range runs {
							e := run(t.Context(), newClient(t, func(c *fetch.Config) { c.Proxy = proxy }), newRequest(t, p.profile, row.method, o.url+"/certificate"))
							got := "success"
							if e.Failure != nil {
								got = fmt.Sprintf("%s after %d attempts, %s, retryable %t", e.class(), e.Attempts, e.Rule, e.Failure.Retryable)
							}
							if got != want {
								t.Errorf("run %d: %s (%s, %s), want %s", i+1, got, e.Failure.Reason, e.Failure.Detail, want)
							}
						}
						if n := len(o.requests("/certificate")); n != 0 {
							t.Errorf("the origin received %d requests behind a handshake that failed", n)
						}
					})
				}
			}
		}
	}
}
