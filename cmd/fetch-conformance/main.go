// Command fetch-conformance judges implementations of docs/spec.md: programs that decide, HTTP clients, and services
// of the API. See fetch-conformance --help.
package main

import (
	"context"
	_ "embed"
	"os"

	"github.com/alecthomas/kong"

	"fetchd/internal/cli"
)

// texts are the long texts of --help; see [cli.Program].
//
//go:embed help.txt
var texts string

// command is a command that runs.
type command interface {
	run(ctx context.Context, a *app) error
}

// grammar is the command line.
type grammar struct {
	Decide  decideCmd  `cmd:"" help:"Judge a program that reads observations and writes verdicts, as lines of JSON."`
	Client  clientCmd  `cmd:"" help:"Judge an HTTP client by what the origin sees of it."`
	Service serviceCmd `cmd:"" help:"Judge a service that speaks the API of fetchd."`
	Guard   guardCmd   `cmd:"" help:"Judge an egress guard by the addresses that it connects to: an HTTP client, a proxy or an MCP server. Needs Linux and root."`
	List    listCmd    `cmd:"" help:"List the scenarios with their levels and rules."`
	Diff    diffCmd    `cmd:"" help:"Compare two records. Exits with 1 if something that held does not hold any more."`
	Summary summaryCmd `cmd:"" help:"Print a table of records in Markdown: a row for each, a column for each level."`

	Version    kong.VersionFlag `help:"Print the version and exit."`
	Completion cli.Completion   `cmd:"" ownflags:"" help:"Print a completion script for bash, zsh or fish."`
}

// app is one run of the program.
type app struct{ *cli.Program }

func main() {
	ctx, stop := cli.Interruptible()
	code := run(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}

// run runs a command and returns the exit code.
func run(ctx context.Context, args []string, streams cli.Streams) int {
	p := &cli.Program{Name: "fetch-conformance", Texts: texts, Streams: streams}
	parsed, err := p.Parse(new(grammar), args)
	if err == nil {
		err = cli.Command[command](parsed).run(ctx, &app{p})
	}
	return p.Exit(ctx, err)
}
