// Package dial connects a command to a fetchd. It has the flags for TLS, a client certificate
// and a token.
package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"fetchd/internal/address"
	"fetchd/internal/cli"
	"fetchd/internal/typo"
)

// Flags are flags for kong, to be embedded in a command. The zero value is plaintext without a
// token.
type Flags struct {
	TLS         bool   `name:"tls" variable:"FETCHD_SERVER_TLS" group:"Service:" help:"Use TLS, with the system's certificate authorities ($$FETCHD_SERVER_TLS)."`
	TLSCAFile   string `name:"tls-ca-file" placeholder:"FILE" group:"Service:" help:"Use TLS, with the certificate authorities in this PEM file instead of the system's."`
	TLSCertFile string `name:"tls-cert-file" placeholder:"FILE" group:"Service:" help:"Client certificate in PEM; requires --tls-key-file."`
	TLSKeyFile  string `name:"tls-key-file" placeholder:"FILE" group:"Service:" help:"Private key of the client certificate, in PEM."`
	TokenFile   string `name:"token-file" variable:"FETCHD_SERVER_TOKEN_FILE" placeholder:"FILE" group:"Service:" help:"File with the token for the service ($$FETCHD_SERVER_TOKEN_FILE)."`
}

// Variables are the environment variables for the flags that say how a service is reached.
// A command declares the first one with its --server flag.
var Variables = []string{"FETCHD_SERVER", "FETCHD_SERVER_TLS", "FETCHD_SERVER_TOKEN_FILE"}

// Strays returns the variables that are probably misspelt [Variables]. Other variables with
// this prefix, such as FETCHD_TOKEN_FILE, are settings of fetchd.
func Strays(environ []string) []typo.Variable {
	return slices.DeleteFunc(typo.Near(environ, "FETCHD_", Variables), func(v typo.Variable) bool {
		return v.Name == "FETCHD_TOKEN_FILE"
	})
}

// Target parses the address of a service, and returns its target for gRPC and the dial options for it and the
// flags. An error is a usage error, in which flag names the address.
func (f Flags) Target(flag, text string) (target string, options []grpc.DialOption, err error) {
	parsed, err := f.parse(flag, text)
	if err != nil {
		return "", nil, err
	}
	f.TLS = f.TLS || parsed.Security == address.TLS
	options, err = f.options()
	return parsed.Target, options, err
}

// Check returns the error that [Flags.Target] would return for the address. It reads no file.
func (f Flags) Check(flag, text string) error {
	_, err := f.parse(flag, text)
	return err
}

func (f Flags) parse(flag, text string) (address.Address, error) {
	parsed, err := address.Parse(text)
	switch {
	case err != nil:
		return parsed, cli.UsageError(flag, fmt.Sprint(err))
	case parsed.Security == address.Plaintext && f.usesTLS():
		return parsed, cli.UsageError(flag, fmt.Sprintf("is %.80q, which is plaintext, but a setting asks for TLS: give https://, or leave out --tls and the like", text))
	}
	return parsed, nil
}

// options returns the dial options for the flags.
func (f Flags) options() ([]grpc.DialOption, error) {
	transport := insecure.NewCredentials()
	if f.usesTLS() {
		config, err := f.tlsConfig()
		if err != nil {
			return nil, err
		}
		transport = credentials.NewTLS(config)
	}
	opts := []grpc.DialOption{grpc.WithTransportCredentials(transport)}
	if f.TokenFile == "" {
		return opts, nil
	}
	raw, err := os.ReadFile(f.TokenFile)
	if err != nil {
		return nil, cli.UsageError("--token-file", fmt.Sprint(err))
	}
	token := strings.TrimSpace(string(raw))
	if token == "" || strings.ContainsAny(token, "\r\n\x00") {
		return nil, cli.UsageError("--token-file", f.TokenFile+" has no token: write it on a single line")
	}
	return append(opts, grpc.WithPerRPCCredentials(bearer{token, f.usesTLS()})), nil
}

// usesTLS reports whether any flag of TLS is given.
func (f Flags) usesTLS() bool {
	return f.TLS || f.TLSCAFile != "" || f.TLSCertFile != "" || f.TLSKeyFile != ""
}

func (f Flags) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.TLSCAFile != "" {
		pem, err := os.ReadFile(f.TLSCAFile)
		if err != nil {
			return nil, cli.UsageError("--tls-ca-file", fmt.Sprint(err))
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, cli.UsageError("--tls-ca-file", f.TLSCAFile+" has no certificate in PEM")
		}
	}
	if (f.TLSCertFile == "") != (f.TLSKeyFile == "") {
		return nil, cli.UsageError("--tls-cert-file", "and --tls-key-file belong together: give both or neither")
	}
	if f.TLSCertFile != "" {
		pair, err := tls.LoadX509KeyPair(f.TLSCertFile, f.TLSKeyFile)
		if err != nil {
			return nil, cli.UsageError("--tls-cert-file", fmt.Sprint(err))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// bearer sends a token with every call.
type bearer struct {
	token  string
	secure bool
}

var _ credentials.PerRPCCredentials = bearer{}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. A user who chooses
// plaintext is on loopback, or something else encrypts the connection.
func (b bearer) RequireTransportSecurity() bool { return b.secure }
