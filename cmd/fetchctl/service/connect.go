package service

import (
	"crypto/x509"
	"fmt"
	"os"

	"google.golang.org/grpc"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/dial"
	"fetchd/internal/signkeys"
	"fetchd/stores"
)

// Connection has the flags of every command that calls a service.
type Connection struct {
	Server string `variable:"FETCHD_SERVER" placeholder:"HOST:PORT" group:"Service:" help:"Use the fetchd at this address instead of the service inside fetchctl ($$FETCHD_SERVER): HOST:PORT, http://HOST:PORT, https://HOST:PORT or dns:///HOST:PORT. The connection is plaintext, unless it is https:// or a TLS flag is given."`
	dial.Flags
}

// Connect connects to the service that the flags name. It does not wait for the service: an
// error means that the flags are not usable. The service inside has the given stores.
func (c Connection) Connect(bodies *stores.Set, more ...grpc.DialOption) (*Service, error) {
	if c.Server == "" {
		return Start(Config(bodies), nil, more...)
	}
	target, opts, err := c.Target("--server", c.Server)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(target, append(opts, more...)...)
	if err != nil {
		return nil, cli.UsageError("--server", fmt.Sprintf("%v", err))
	}
	return &Service{FetchServiceClient: pb.NewFetchServiceClient(conn), Close: func() { _ = conn.Close() }}, nil
}

// Origins has the flags for the way from the service inside to origins.
type Origins struct {
	Proxy  *string `short:"x" group:"Service:" placeholder:"URL" help:"Send every request through this proxy: http, https or socks5://[USER:PASSWORD@]HOST:PORT. It looks names up. Not with --server. Default: http_proxy, HTTPS_PROXY, ALL_PROXY and NO_PROXY of the environment, as for curl; an empty URL means none."`
	CACert string  `name:"cacert" group:"Service:" placeholder:"FILE" help:"Trust the certificate authorities in this PEM file instead of the system's. Not with --server."`

	Sign signkeys.Flags `embed:""`

	AuthProvider string `group:"Service:" placeholder:"NAME" help:"Let the service send the credential of its provider NAME, or sign with it. With --server."`
}

// Provider returns the auth provider for a URL, or an empty name.
func (f *Origins) Provider(url string) string {
	if f.Sign.Given() && signkeys.Signs(url) {
		return signkeys.Name
	}
	return f.AuthProvider
}

// Check rejects flags that do not go with --server.
func (f *Origins) Check(server string) error {
	switch {
	case f.Proxy != nil && server != "":
		return cli.UsageError("--proxy", "is for the service inside fetchctl: the operator of the one at --server or FETCHD_SERVER sets it with --egress-proxy")
	case f.CACert != "" && server != "":
		return cli.UsageError("--cacert", "is for the service inside fetchctl: the operator of the one at --server or FETCHD_SERVER sets it with --egress-ca-file. For the connection to the service itself there is --tls-ca-file")
	}
	if f.AuthProvider != "" && server == "" {
		return cli.UsageError("--auth-provider", "names a provider of a service: give --server too. The service inside fetchctl has --sign-key")
	}
	return f.Sign.Check(server, "Name a provider of its --origins-file with --auth-provider (docs/signing.md)")
}

// roots returns the authorities of --cacert, or nil.
func (f *Origins) roots() (*x509.CertPool, error) {
	if f.CACert == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(f.CACert)
	if err != nil {
		return nil, cli.UsageError("--cacert", fmt.Sprint(err))
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, cli.UsageError("--cacert", f.CACert+" has no certificate in PEM")
	}
	return roots, nil
}

// ConnectOut is Connect with the flags for the way to origins. It says on a terminal which proxy of
// the environment is used. first is the only URL, or empty.
func (c Connection) ConnectOut(p *cli.Program, f Origins, first string, quiet bool, bodies *stores.Set, more ...grpc.DialOption) (*Service, error) {
	if c.Server != "" {
		return c.Connect(bodies, more...)
	}
	config := Config(bodies)
	var err error
	if config.Fetch.RootCAs, err = f.roots(); err != nil {
		return nil, err
	}
	if config.AuthProviders, err = f.Sign.Providers(); err != nil {
		return nil, err
	}
	proxies, err := readProxies(f.Proxy, p.Env)
	if err != nil {
		return nil, err
	}
	if !quiet && f.Proxy == nil && cli.IsTerminal(p.Err) {
		for _, line := range proxies.told(first) {
			p.Errorf("%s", line)
		}
	}
	return route(config, proxies, more...)
}
