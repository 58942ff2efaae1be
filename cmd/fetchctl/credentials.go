package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// options say how a service is reached, and who asks it.
func (c connection) options() ([]grpc.DialOption, error) {
	transport := insecure.NewCredentials()
	if c.usesTLS() {
		config, err := c.tlsConfig()
		if err != nil {
			return nil, err
		}
		transport = credentials.NewTLS(config)
	}
	opts := []grpc.DialOption{grpc.WithTransportCredentials(transport)}
	if c.TokenFile == "" {
		return opts, nil
	}
	raw, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return nil, &usageError{"--token-file", fmt.Sprint(err)}
	}
	token := strings.TrimSpace(string(raw))
	if token == "" || strings.ContainsAny(token, "\r\n\x00") {
		return nil, &usageError{"--token-file", fmt.Sprintf("%s holds no token: put it there on a line of its own", c.TokenFile)}
	}
	return append(opts, grpc.WithPerRPCCredentials(bearer{token, c.usesTLS()})), nil
}

// usesTLS tells whether any flag of TLS is given.
func (c connection) usesTLS() bool {
	return c.TLS || c.TLSCAFile != "" || c.TLSCertFile != "" || c.TLSKeyFile != ""
}

func (c connection) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.TLSCAFile != "" {
		pem, err := os.ReadFile(c.TLSCAFile)
		if err != nil {
			return nil, &usageError{"--tls-ca-file", fmt.Sprint(err)}
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &usageError{"--tls-ca-file", c.TLSCAFile + " holds no certificate in PEM"}
		}
	}
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		return nil, &usageError{"--tls-cert-file", "goes with --tls-key-file: give both or none"}
	}
	if c.TLSCertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.TLSCertFile, c.TLSKeyFile)
		if err != nil {
			return nil, &usageError{"--tls-cert-file", fmt.Sprint(err)}
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// bearer shows a token with every call. It implements
// credentials.PerRPCCredentials.
type bearer struct {
	token  string
	secure bool
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. Where the
// user asks for plaintext, something else encrypts, or it is on loopback.
func (b bearer) RequireTransportSecurity() bool { return b.secure }
