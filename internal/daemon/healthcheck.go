package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"fetchd/internal/secure"
)

// healthTimeout is the maximum time of a check. An orchestrator's own healthTimeout is longer.
const healthTimeout = 3 * time.Second

// CheckHealth asks the service at a listen address whether it is serving. certificates are those of the
// service, or nil without TLS. A service that presents a certificate that has expired is an error,
// because callers refuse it.
func CheckHealth(ctx context.Context, address string, certificates *secure.Certificates) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	var shown atomic.Pointer[x509.Certificate] // what the service presents
	secured, err := asClient(certificates, &shown)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+reachable(address), grpc.WithTransportCredentials(secured))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is in flight
	resp, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return fmt.Errorf("no service answers at %s: %w", address, err)
	}
	if resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("the service at %s is %s", address, resp.GetStatus())
	}
	if cert := shown.Load(); cert != nil && time.Now().After(cert.NotAfter) {
		return fmt.Errorf("the service at %s presents a certificate that expired at %s, so callers refuse it: replace --tls-cert-file and --tls-key-file",
			address, cert.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// asClient returns the credentials with which a service can be called on its own port. They store the
// certificate that the service presents.
func asClient(certificates *secure.Certificates, shown *atomic.Pointer[x509.Certificate]) (credentials.TransportCredentials, error) {
	if certificates == nil {
		return insecure.NewCredentials(), nil
	}
	cfg, err := certificates.AsClient()
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return nil, fmt.Errorf("the health check presents --tls-cert-file to the service, which refuses it: replace it and --tls-key-file: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("the health check presents --tls-cert-file to the service, and --tls-client-ca-file does not accept it: "+
			"have that authority sign it for client authentication too: %w", err)
	}
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		shown.Store(state.PeerCertificates[0])
		return nil
	}
	return credentials.NewTLS(cfg), nil
}

// reachable converts a listen address to an address that can be called.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}
