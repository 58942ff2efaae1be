// Command origin runs an HTTP origin that misbehaves as the URL of a request says, so that HTTP
// clients can be tested against it. See its GET /, or origin --help. "fetch-conformance origin" is the same.
package main

import (
	"context"
	"io"
	"os"

	"github.com/alecthomas/kong"

	"fetchd/conformance/originrun"
	"fetchd/internal/cli"
)

// grammar is the command line.
type grammar struct {
	originrun.Flags

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
	p := cli.Program{Name: "origin", Texts: originrun.Texts, Streams: cli.Streams{Out: stdout, Err: stderr}}
	var g grammar
	_, err := p.Parse(&g, args)
	if err == nil {
		err = g.Serve(ctx, stdout, stderr)
	}
	return p.Exit(context.Background(), err) // SIGTERM is how the origin is stopped, not an interruption
}
