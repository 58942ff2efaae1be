package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // only to silence it: net/http writes there
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"fetchd/server"
)

// run is the command: it serves until ctx ends and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var f flags
	if code, done := parse(&f, args, stdout, stderr); done {
		return code
	}
	if f.EgressCheck != "" {
		return egressCheck(ctx, &f, stdout, stderr)
	}
	work := serve
	if f.Healthcheck {
		work = healthcheck
	}
	if err := work(ctx, &f, stderr); err != nil {
		_, _ = fmt.Fprintf(stderr, "fetchd: %v\n", err)
		return exitError
	}
	return exitOK
}

// serve runs the service until ctx ends, then drains it.
func serve(ctx context.Context, f *flags, stderr io.Writer) error {
	logger := newLogger(f, stderr)
	log.SetOutput(io.Discard) // net/http writes an origin's bytes there, which may be a caller's secret
	listener, err := net.Listen("tcp", f.GRPCAddr)
	if err != nil {
		return fmt.Errorf("--grpc-addr: %w", err)
	}
	engine, err := fetchConfig(f)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	engine.Egress.Own = own(listener)
	s, err := server.New(server.Config{Fetch: engine,
		Limits: server.Limits{MaxTotalTimeout: f.MaxTotalTimeout, MaxBodyBytes: f.MaxBodyBytes,
			MaxFetches: f.MaxFetches, MaxFetchesPerCaller: f.MaxFetchesPerCaller},
		Logger: logger, MaxConnections: f.MaxConnections, MaxConnectionsPerCaller: f.MaxConnectionsPerCaller,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	logger.Info("serving", slog.String("grpc_addr", listener.Addr().String()), slog.String("version", versionText()))
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }() // ends with Shutdown
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	logger.Info("draining", slog.Duration("drain_time", f.DrainTime))
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.DrainTime)
	defer cancel()
	if err := s.Shutdown(drain); err != nil {
		return fmt.Errorf("fetches were cut off after --drain-time %s: %w", f.DrainTime, err)
	}
	logger.Info("stopped")
	return <-served
}

func newLogger(f *flags, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.LogLevel)) // kong has checked it
	options := &slog.HandlerOptions{Level: level}
	if f.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// healthcheckTime bounds a health check: an orchestrator's own limit is longer.
const healthcheckTime = 3 * time.Second

// healthcheck asks the service whether it serves. It needs no shell and no
// other program, so that a static image can check itself.
func healthcheck(ctx context.Context, f *flags, _ io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, healthcheckTime)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+reachable(f.GRPCAddr), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is lost with it
	resp, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return fmt.Errorf("no service answers at %s: %w", f.GRPCAddr, err)
	}
	if resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("the service at %s is %s", f.GRPCAddr, resp.GetStatus())
	}
	return nil
}

// reachable turns an address to listen on into one to call.
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
