// Package originrun is the command line of the misbehaving origin, for "fetch-conformance origin" and cmd/origin.
package originrun

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"log/slog"
	"os"

	"fetchd/conformance/origin"
	"fetchd/internal/cli"
)

// Texts are the long texts of --help; see [cli.Program].
//
//go:embed help.txt
var Texts string

// Flags is the command line.
type Flags struct {
	Addr    string `help:"Address of the listener http." default:"127.0.0.1:9080" placeholder:"HOST:PORT"`
	TLSAddr string `help:"Address of the listener https." name:"tls-addr" default:"127.0.0.1:9443" placeholder:"HOST:PORT"`
	Seed    uint64 `help:"Seed for the bytes of bodies with size=N." default:"0" placeholder:"N"`
	WriteCA string `help:"Write the certificate authority to this file, in PEM, for clients to trust. It is removed at the end." name:"write-ca" type:"path" placeholder:"FILE"`
	Log     bool   `help:"Write a line for each request to standard error."`
}

// Serve serves until ctx ends.
func (f *Flags) Serve(ctx context.Context, stdout, stderr io.Writer) error {
	cfg := origin.Config{Seed: f.Seed, Addr: f.Addr, TLSAddr: f.TLSAddr}
	if f.Log {
		cfg.Logger = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	o, err := origin.Start(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = o.Close() }() // always nil
	if f.WriteCA != "" {
		if err := os.WriteFile(f.WriteCA, o.CAPEM(), 0o644); err != nil {
			return cli.OutputError(fmt.Errorf("the authority: %w", err))
		}
		// The next start creates another authority.
		defer func() { _ = os.Remove(f.WriteCA) }()
	}
	if _, err := fmt.Fprintf(stdout, "%s\nThe URL says what happens, such as %s. All of it: %s\n",
		o.Summary(), o.URL("http", "/s/KEY/503/200"), o.URL("http", "/")); err != nil {
		return cli.OutputError(fmt.Errorf("the listeners: %w", err))
	}
	<-ctx.Done()
	return nil
}
