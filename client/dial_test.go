package client_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"fetchd/client"
	"fetchd/server"
	"fetchd/server/fetchdtest"
)

// ports is a service with a gRPC port and an HTTP port.
type ports struct{ grpc, http string }

// open starts a service.
func open(t *testing.T, config *tls.Config) ports {
	t.Helper()
	s := fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, Configure: func(c *server.Config) { c.TLS = config }})
	_, http, _ := strings.Cut(s.URL, "://")
	return ports{s.Addr, http}
}

// TestDial connects with each form of an address, and to ports that are not the one for gRPC.
func TestDial(t *testing.T) {
	issuer := httptest.NewTLSServer(nil)
	t.Cleanup(issuer.Close)
	roots := x509.NewCertPool()
	roots.AddCert(issuer.Certificate())
	trusted := grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}))
	plain, secure := open(t, nil), open(t, &tls.Config{Certificates: issuer.TLS.Certificates, MinVersion: tls.VersionTLS13})
	const otherPort = "; the server does not speak %: if this is the HTTP port of fetchd (--http-addr, by default 8081), give the gRPC port (--grpc-addr, by default 8080)"
	for _, row := range []struct {
		name, address string
		options       []grpc.DialOption
		code          codes.Code
		want          string
	}{
		{"HOST:PORT", plain.grpc, nil, codes.OK, ""},
		{"http", "http://" + plain.grpc + "/", nil, codes.OK, ""},
		{"dns", "dns:///" + plain.grpc, nil, codes.OK, ""},
		{"https", "https://" + secure.grpc, []grpc.DialOption{trusted}, codes.OK, ""},
		{"HOST:PORT with credentials", secure.grpc, []grpc.DialOption{trusted}, codes.OK, ""},
		{"https with the authorities of the system", "https://" + secure.grpc, nil, codes.Unavailable, "failed to verify certificate"},
		{"the HTTP port", plain.http, nil, codes.Unavailable, strings.Replace(otherPort, "%", "HTTP/2", 1)},
		{"the HTTP port with TLS", secure.http, []grpc.DialOption{trusted}, codes.Unimplemented, strings.Replace(otherPort, "%", "gRPC", 1)},
		{"TLS at a plaintext port", "https://" + plain.grpc, nil, codes.Unavailable, "; the port does not use TLS: give http://HOST:PORT"},
		{"plaintext at a port with TLS", secure.grpc, nil, codes.Unavailable, "; if the port uses TLS, give https://HOST:PORT"},
	} {
		t.Run(row.name, func(t *testing.T) {
			conn, err := client.Dial(row.address, row.options...)
			must(t, err)
			defer conn.Close()
			if err = client.New(conn).Ping(t.Context()); status.Code(err) != row.code || row.code != codes.OK && !strings.Contains(status.Convert(err).Message(), row.want) {
				t.Errorf("%v; want %v and %s", err, row.code, row.want)
			}
		})
	}
	for _, row := range []struct {
		name, address string
		options       []grpc.DialOption
		want          string
	}{
		{"no port", "fetchd.example", nil, `the address of the service is "fetchd.example", and the port is missing: give HOST:PORT, http`},
		{"another scheme", "grpc://fetchd.example:8080", nil, "grpc:// is not a scheme of fetchd"},
		{"a token without TLS", "http://fetchd.example:8080", []grpc.DialOption{client.Token("secret")}, "transport"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if conn, err := client.Dial(row.address, row.options...); conn != nil || err == nil || !strings.Contains(fmt.Sprint(err), row.want) {
				t.Errorf("%v; want %s", err, row.want)
			}
		})
	}
}
