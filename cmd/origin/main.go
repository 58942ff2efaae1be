// Command origin runs an HTTP origin that misbehaves as the URL of a request says, so that HTTP
// clients can be tested against it. See its GET /, or origin --help.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/alecthomas/kong"

	"fetchd/conformance/origin"
	"fetchd/internal/cli"
)

// texts are the long texts of --help; see [cli.Program].
//
//go:embed help.txt
var texts string

// grammar is the command line.
type grammar struct {
	Addr    string `help:"Address of the listener http." default:"127.0.0.1:9080" placeholder:"HOST:PORT"`
	TLSAddr string `help:"Address of the listener https." name:"tls-addr" default:"127.0.0.1:9443" placeholder:"HOST:PORT"`
	Seed    uint64 `help:"Seed for the bytes of bodies with size=N." default:"0" placeholder:"N"`
	WriteCA string `help:"Write the certificate authority to this file, in PEM, for clients to trust. It is removed at the end." name:"write-ca" type:"path" placeholder:"FILE"`
	Log     bool   `help:"Write a line for each request to standard error."`

	Version    kong.VersionFlag `help:"Print the version and exit."`
	Completion cli.Completion   `cmd:"" ownflags:"" help:"Print a completion script for bash, zsh or fish."`
	Serving    struct{}         `cmd:"" default:"1" hidden:"" name:"serve" help:"Serve."`
}

func main() {
	ctx, stop := cli.Interruptible()
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run serves until ctx ends and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	p := cli.Program{Name: "origin", Texts: texts, Streams: cli.Streams{Out: stdout, Err: stderr}}
	var g grammar
	_, err := p.Parse(&g, args)
	if err == nil {
		err = g.serve(ctx, stdout, stderr)
	}
	return p.Exit(context.Background(), err) // SIGTERM is how the origin is stopped, not an interruption
}

// serve serves until ctx ends.
func (f *grammar) serve(ctx context.Context, stdout, stderr io.Writer) error {
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
