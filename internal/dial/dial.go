// Package dial has the flags with which a command reaches a fetchd: TLS, a
// client certificate, a token.
package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"fetchd/internal/strayenv"
)

// Flags are for kong, embedded in a command. The zero value is plaintext
// without a token.
type Flags struct {
	TLS         bool   `name:"tls" group:"Service:" help:"Speak TLS with it, verified by the system's authorities ($$FETCHD_SERVER_TLS)."`
	TLSCAFile   string `name:"tls-ca-file" placeholder:"FILE" group:"Service:" help:"Authorities in PEM that verify it, in place of the system's."`
	TLSCertFile string `name:"tls-cert-file" placeholder:"FILE" group:"Service:" help:"Certificate to show it, with --tls-key-file."`
	TLSKeyFile  string `name:"tls-key-file" placeholder:"FILE" group:"Service:" help:"Its key."`
	TokenFile   string `name:"token-file" placeholder:"FILE" group:"Service:" help:"File with the token to show it ($$FETCHD_SERVER_TOKEN_FILE)."`
}

// variables are the environment variables of flags. It is constant.
var variables = map[string]string{"server": "FETCHD_SERVER", "tls": "FETCHD_SERVER_TLS", "token-file": "FETCHD_SERVER_TOKEN_FILE"}

// Variable is the environment variable that stands for a flag that was not given;
// empty if there is none.
func Variable(flag string) string { return variables[flag] }

// Variables are all that [Variable] names.
func Variables() []string { return slices.Sorted(maps.Values(variables)) }

// Strays returns the variables that were probably meant to be one of [Variables]. Others
// with their prefix are settings of fetchd, such as FETCHD_TOKEN_FILE.
func Strays(environ []string) []strayenv.Variable {
	return slices.DeleteFunc(strayenv.Near(environ, "FETCHD_", Variables()), func(v strayenv.Variable) bool {
		return v.Name == "FETCHD_TOKEN_FILE"
	})
}

// FlagError says that what a flag names is not usable.
type FlagError struct {
	Flag string // as the user writes it
	Text string // what is wrong, and what to do
}

// Error tells both.
func (e *FlagError) Error() string { return e.Flag + ": " + e.Text }

// Options say how the service is reached, and who asks it. An error is a [FlagError].
func (f Flags) Options() ([]grpc.DialOption, error) {
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
		return nil, &FlagError{"--token-file", fmt.Sprint(err)}
	}
	token := strings.TrimSpace(string(raw))
	if token == "" || strings.ContainsAny(token, "\r\n\x00") {
		return nil, &FlagError{"--token-file", f.TokenFile + " holds no token: put it there on a line of its own"}
	}
	return append(opts, grpc.WithPerRPCCredentials(bearer{token, f.usesTLS()})), nil
}

// usesTLS tells whether any flag of TLS is given.
func (f Flags) usesTLS() bool {
	return f.TLS || f.TLSCAFile != "" || f.TLSCertFile != "" || f.TLSKeyFile != ""
}

func (f Flags) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.TLSCAFile != "" {
		pem, err := os.ReadFile(f.TLSCAFile)
		if err != nil {
			return nil, &FlagError{"--tls-ca-file", fmt.Sprint(err)}
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &FlagError{"--tls-ca-file", f.TLSCAFile + " holds no certificate in PEM"}
		}
	}
	if (f.TLSCertFile == "") != (f.TLSKeyFile == "") {
		return nil, &FlagError{"--tls-cert-file", "goes with --tls-key-file: give both or none"}
	}
	if f.TLSCertFile != "" {
		pair, err := tls.LoadX509KeyPair(f.TLSCertFile, f.TLSKeyFile)
		if err != nil {
			return nil, &FlagError{"--tls-cert-file", fmt.Sprint(err)}
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// bearer shows a token with every call.
type bearer struct {
	token  string
	secure bool
}

var _ credentials.PerRPCCredentials = bearer{}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. Where the
// user asks for plaintext, something else encrypts, or it is on loopback.
func (b bearer) RequireTransportSecurity() bool { return b.secure }
