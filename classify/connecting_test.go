package classify_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"fetchd/classify"
	"fetchd/conformance/origin"
)

// Errors of the lookup, the connection and the handshake.

func lookups(o *origin.Origin) []failure {
	lookup := func(code dnsmessage.RCode) func(*testing.T) error {
		return func(t *testing.T) error { return lookupError(t.Context(), t, nameServer(t, code, false)) }
	}
	return []failure{
		{"lookup: NXDOMAIN", classify.PhaseResolve, classify.DNSNotFound, lookup(dnsmessage.RCodeNameError)},
		{"lookup: a name without addresses", classify.PhaseResolve, classify.DNSNotFound, lookup(dnsmessage.RCodeSuccess)},
		{"lookup: SERVFAIL", classify.PhaseResolve, classify.DNSFailure, lookup(dnsmessage.RCodeServerFailure)},
		{"lookup: REFUSED", classify.PhaseResolve, classify.DNSFailure, lookup(dnsmessage.RCodeRefused)},
		{"lookup: NOTIMP", classify.PhaseResolve, classify.DNSFailure, lookup(dnsmessage.RCodeNotImplemented)},
		{"lookup: time-out", classify.PhaseResolve, classify.DNSFailure, func(t *testing.T) error {
			ctx, cancel := context.WithTimeout(t.Context(), short)
			defer cancel()
			return lookupError(ctx, t, nameServer(t, dnsmessage.RCodeSuccess, true))
		}},
		{"lookup: cancelled", classify.PhaseResolve, classify.Cancelled, func(t *testing.T) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return lookupError(ctx, t, nameServer(t, dnsmessage.RCodeSuccess, true))
		}},
		{"lookup: the name server refuses connections", classify.PhaseResolve, classify.DNSFailure, func(t *testing.T) error {
			return lookupError(t.Context(), t, resolver(t, "tcp", o.Addr("refused")))
		}},
		{"lookup: NXDOMAIN, seen while dialing", classify.PhaseConnect, classify.DNSNotFound, func(t *testing.T) error {
			d := net.Dialer{Resolver: nameServer(t, dnsmessage.RCodeNameError, false)}
			return connectError(t, &d, "origin.invalid.:80")
		}},
		{"lookup: SERVFAIL, seen while dialing", classify.PhaseConnect, classify.DNSFailure, func(t *testing.T) error {
			d := net.Dialer{Resolver: nameServer(t, dnsmessage.RCodeServerFailure, false)}
			return connectError(t, &d, "origin.invalid.:80")
		}},
		{"lookup: time-out, seen while dialing", classify.PhaseConnect, classify.DNSFailure, func(t *testing.T) error {
			d := net.Dialer{Resolver: nameServer(t, dnsmessage.RCodeSuccess, true), Timeout: short}
			return connectError(t, &d, "origin.invalid.:80")
		}},
		{"lookup: no host name", classify.PhaseResolve, classify.DNSNotFound, func(t *testing.T) error {
			_, err := nameServer(t, dnsmessage.RCodeSuccess, false).LookupHost(t.Context(), strings.Repeat("a", 300))
			return err
		}},
	}
}

func connects(o *origin.Origin) []failure {
	return []failure{
		{"connect: refused", classify.PhaseConnect, classify.ConnectRefused, func(t *testing.T) error {
			return connectError(t, new(net.Dialer), o.Addr("refused"))
		}},
		{"connect: refused, from net/http", classify.PhaseConnect, classify.ConnectRefused, func(t *testing.T) error {
			return headError(t, newClient(t, o), o.URL("refused", "/"))
		}},
		{"connect: refused in TLS", classify.PhaseConnect, classify.ConnectRefused, func(t *testing.T) error {
			return headError(t, newClient(t, o), "https://"+o.Addr("refused")+"/")
		}},
		{"connect: time-out", classify.PhaseConnect, classify.ConnectTimeout, func(t *testing.T) error {
			return connectError(t, &net.Dialer{Timeout: 1}, o.Addr("http"))
		}},
		{"connect: deadline of the context", classify.PhaseConnect, classify.ConnectTimeout, func(t *testing.T) error {
			ctx, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
			defer cancel()
			return headErrorOf(t, newClient(t, o), request(ctx, t, http.MethodGet, o.URL("http", "/s/late/200"), nil))
		}},
		{"connect: cancelled", classify.PhaseConnect, classify.Cancelled, func(t *testing.T) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return headErrorOf(t, newClient(t, o), request(ctx, t, http.MethodGet, o.URL("http", "/s/gone/200"), nil))
		}},
		{"connect: reset by who has just accepted", classify.PhaseConnect, classify.ConnectionReset, connectReset},
		{"connect: no route", classify.PhaseConnect, classify.ConnectFailure, func(t *testing.T) error {
			return unreachable(t, syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.EADDRNOTAVAIL)
		}},
		{"connect: from an address that is not ours", classify.PhaseConnect, classify.ConnectFailure, func(t *testing.T) error {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(203, 0, 113, 1)}}
			return connectError(t, &d, o.Addr("http"))
		}},
		{"connect: no port", classify.PhaseConnect, classify.ConnectFailure, func(t *testing.T) error {
			return connectError(t, new(net.Dialer), "127.0.0.1:70000")
		}},
		{"connect: a proxy that refuses", classify.PhaseConnect, classify.ConnectFailure, func(t *testing.T) error {
			proxy := &url.URL{Scheme: "http", Host: o.Addr("http")}
			return headError(t, newClient(t, o, func(tr *http.Transport) { tr.Proxy = http.ProxyURL(proxy) }), "https://origin.test/")
		}},
	}
}

func handshakes(o *origin.Origin) []failure {
	// Both as net/http wraps it and unwrapped.
	over := func(listener string) func(*testing.T) error {
		return func(t *testing.T) error { return headError(t, newClient(t, o), "https://"+o.Addr(listener)+"/s/k/200") }
	}
	bare := func(listener string, cfg *tls.Config) func(*testing.T) error {
		return func(t *testing.T) error {
			own := cfg.Clone()
			own.RootCAs = o.CA()
			return handshakeError(t.Context(), t, o.Addr(listener), own)
		}
	}
	var rows []failure
	for _, row := range []struct {
		listener string
		want     classify.Class
	}{
		{"tls-expired", classify.TLSCertificate},
		{"tls-wrong-name", classify.TLSCertificate},
		{"tls-unknown-ca", classify.TLSCertificate},
		{"tls-old", classify.TLSHandshake},
		{"tls-cut", classify.TLSHandshake},
		{"tls-reset", classify.TLSHandshake},
		{"tls-plain", classify.TLSHandshake},
		{"tls-garbage", classify.TLSHandshake},
		{"tcp-close", classify.TLSHandshake},
	} {
		rows = append(rows,
			failure{"handshake: " + row.listener, classify.PhaseTLS, row.want, bare(row.listener, &tls.Config{})},
			failure{"handshake: " + row.listener + ", from net/http", classify.PhaseTLS, row.want, over(row.listener)})
	}
	return append(rows, []failure{
		{"handshake: no protocol in common", classify.PhaseTLS, classify.TLSHandshake,
			bare("https", &tls.Config{NextProtos: []string{"none"}})},
		{"handshake: no certificate for TLS 1.2", classify.PhaseTLS, classify.TLSHandshake,
			bare("mtls", &tls.Config{MaxVersion: tls.VersionTLS12})},
		{"handshake: certificate chosen by nobody", classify.PhaseTLS, classify.TLSCertificate, func(t *testing.T) error {
			return handshakeError(t.Context(), t, o.Addr("https"), &tls.Config{RootCAs: x509.NewCertPool()})
		}},
		{"handshake: time-out of net/http", classify.PhaseTLS, classify.ConnectTimeout, func(t *testing.T) error {
			c := newClient(t, o, func(tr *http.Transport) { tr.TLSHandshakeTimeout = short })
			return headError(t, c, o.URL("tls-silent", "/"))
		}},
		{"handshake: deadline of the context", classify.PhaseTLS, classify.ConnectTimeout, func(t *testing.T) error {
			ctx, cancel := context.WithTimeout(t.Context(), short)
			defer cancel()
			return handshakeError(ctx, t, o.Addr("tls-silent"), &tls.Config{RootCAs: o.CA()})
		}},
		{"handshake: cancelled", classify.PhaseTLS, classify.Cancelled, func(t *testing.T) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return handshakeError(ctx, t, o.Addr("tls-silent"), &tls.Config{RootCAs: o.CA()})
		}},
		// In TLS 1.3 the server checks the client's certificate after the client's handshake.
		// This uses crypto/tls directly: if the client keeps writing, a reset can overtake the alert.
		{"handshake: no certificate, told in place of the head", classify.PhaseProcessing, classify.TLSHandshake, func(t *testing.T) error {
			conn := tls.Client(dialed(t, o.Addr("mtls")), &tls.Config{RootCAs: o.CA(), ServerName: "127.0.0.1"})
			if err := conn.HandshakeContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, err := conn.Read(make([]byte, 1))
			return err
		}},
	}...)
}
