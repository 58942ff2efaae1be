package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// healthcheckTime limits a health check. An orchestrator's own limit is longer.
const healthcheckTime = 3 * time.Second

// healthcheck asks the service whether it is serving. An image without a shell can check
// itself this way.
func healthcheck(ctx context.Context, s *settings) error {
	ctx, cancel := context.WithTimeout(ctx, healthcheckTime)
	defer cancel()
	secured, err := s.asClient()
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+reachable(s.GRPCAddr), grpc.WithTransportCredentials(secured))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is in flight
	resp, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return fmt.Errorf("no service answers at %s: %w", s.GRPCAddr, err)
	}
	if resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("the service at %s is %s", s.GRPCAddr, resp.GetStatus())
	}
	return nil
}

// asClient returns the credentials with which the service can be called on its own port.
func (s *settings) asClient() (credentials.TransportCredentials, error) {
	certificates, err := s.identityFiles().ReadCertificates()
	if err != nil {
		return nil, err
	}
	if certificates == nil {
		return insecure.NewCredentials(), nil
	}
	cfg, err := certificates.AsClient()
	if err != nil {
		return nil, fmt.Errorf("--healthcheck presents --tls-cert-file to the service, and --tls-client-ca-file does not accept it: "+
			"have that authority sign it for client authentication too: %w", err)
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
