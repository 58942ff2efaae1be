// Package service has what the commands of fetchctl share: the connection to a fetchd, or the service inside the process,
// with errors that name resolvers and proxies; policies of a request; the message of a call that failed.
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/address"
	"fetchd/internal/badrequest"
	"fetchd/internal/cli"
	"fetchd/internal/version"
	"fetchd/server"
	"fetchd/server/embed"
	"fetchd/stores"
)

// maximum is the time limit of a fetch. It is long because the user can interrupt the program.
const maximum = 24 * time.Hour

// Config is the configuration of the service, with stores.
func Config(bodies *stores.Set) server.Config {
	return server.Config{
		Fetch:  fetch.Config{Egress: fetch.Egress{Unrestricted: true}, UserAgent: "fetchd/" + version.String()},
		Limits: server.Limits{MaxTotalTimeout: maximum},
		Stores: bodies,
	}
}

// Service is a connection to a fetchd, in this process or elsewhere. The caller closes it.
type Service struct {
	pb.FetchServiceClient
	Close func()
}

// Start runs a service inside this process, on l or in memory.
func Start(cfg server.Config, l net.Listener, opts ...grpc.DialOption) (*Service, error) {
	conn, stop, err := embed.Start(cfg, l, opts...)
	if err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	return &Service{pb.NewFetchServiceClient(conn), stop}, nil
}

// route runs a service that uses the proxies, and names resolvers and proxies in errors.
func route(config server.Config, proxies proxies, more ...grpc.DialOption) (*Service, error) {
	d := &details{proxies: proxies, errors: make(map[attemptKey]string)}
	if len(proxies.byScheme) > 0 {
		config.Fetch.ProxyFor = proxies.forHop
	}
	config.Logger = slog.New(d)
	return Start(config, nil, append(more[:len(more):len(more)], grpc.WithStreamInterceptor(d.intercept))...)
}

// Fail prints why a command failed and returns the exit code. server is the address of
// the service, empty for the service inside fetchctl.
func Fail(ctx context.Context, p *cli.Program, server string, err error) int {
	if _, ok := errors.AsType[*cli.Error](err); ok || err == nil {
		return p.Exit(ctx, err)
	}
	e := &cli.Error{Code: cli.ExitService, Err: err}
	if st, ok := status.FromError(err); ok {
		e.Err, e.Hint = fmt.Errorf("%v: %s", st.Code(), st.Message()), remedy(st, server)
		if other := address.Remedy(st.Message()); other != "" {
			e.Err, e.Hint = fmt.Errorf("%v: %s", st.Code(), strings.TrimSuffix(st.Message(), "; "+other)), "At "+cli.Escape(server)+", "+other+"."
		}
		if st.Code() == codes.InvalidArgument {
			e = badRequest(st)
		}
	}
	return p.Exit(ctx, e)
}

// badRequest returns the error for a request that the service refused, with one line for
// each violation.
func badRequest(st *status.Status) *cli.Error {
	var violations []string
	for _, v := range badrequest.Of(st) {
		violations = append(violations, cli.Escape(v.GetField())+": "+cli.Escape(v.GetDescription()))
	}
	if violations == nil {
		return &cli.Error{Code: cli.ExitUsage, Err: errors.New(st.Message())}
	}
	return &cli.Error{Code: cli.ExitUsage, Err: errors.New("the request is not usable"), Hint: strings.Join(violations, "\n  ")}
}

// remedy returns what a user can do about a service that failed.
func remedy(st *status.Status, server string) string {
	if server == "" {
		return "The service inside fetchctl failed; this is a bug. Try a running fetchd with --server."
	}
	switch st.Code() {
	case codes.Unavailable:
		if strings.Contains(st.Message(), "certificate signed by unknown authority") {
			return "Give the certificate authority of the service with --tls-ca-file FILE."
		}
		return fmt.Sprintf("Is fetchd running at %s? Start it, or use neither --server nor FETCHD_SERVER: the service then runs inside fetchctl.", cli.Escape(server))
	case codes.Unimplemented:
		return fmt.Sprintf("The server at %s does not offer fetchd.v1.FetchService. Is it the gRPC port of fetchd?", cli.Escape(server))
	case codes.DeadlineExceeded:
		return "The service did not answer in time. Give a longer --timeout, or look at its log."
	case codes.ResourceExhausted:
		return "The service is over a limit. Try again a little later."
	case codes.Unauthenticated:
		return "Give the token of the service with --token-file FILE, or a client certificate with --tls-cert-file. Its operator has them."
	case codes.PermissionDenied:
		return "The service does not allow this. Ask its operator."
	case codes.Aborted:
		for _, d := range st.Details() {
			if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetReason() == "CALLER_REVOKED" {
				return "The service no longer accepts this token or certificate. Ask its operator for a new one."
			}
		}
		return "The output was not read for too long. Read faster, or write it to a file with -o."
	}
	return "The log of the service says more."
}
