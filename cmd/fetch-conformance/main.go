// Command fetch-conformance judges implementations of docs/spec.md: programs that decide, HTTP clients, and services
// of the API. See fetch-conformance --help.
package main

import (
	"context"
	"maps"
	"os"

	"github.com/alecthomas/kong"

	"fetchd/conformance/originrun"
	"fetchd/internal/cli"
)

const description = `Judges when an HTTP client repeats a request, waits, follows redirects, and puts bodies together.

A decider needs no network: it reads what was observed and writes what it decides. A client is any program that fetches a URL, or that an HTTP adapter calls: it is judged by what a misbehaving origin sees of it. A service is one that speaks the API of fetchd. A guard is a client, a proxy or an MCP server that must not connect to a network inside, whatever the URL.

Levels: core (which failures are retried, and how often), waiting, redirects, bodies, resumption. An implementation is whole at a level if nothing fails there and before.`

const examples = `
  fetch-conformance decide ./my-decider
  fetch-conformance client --level waiting curl -sS --retry 3 -o {out} {url}
  fetch-conformance client --adapter http://127.0.0.1:8000/
  fetch-conformance service 127.0.0.1:8080 --record after.json
  fetch-conformance guard my-guarded-client {url}
  fetch-conformance guard --proxy 127.0.0.1:3128 squid -N -f squid.conf
  fetch-conformance guard --mcp fetchctl mcp
  fetch-conformance diff before.json after.json`

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
	Origin  originCmd  `cmd:"" help:"Run the misbehaving origin, to try a client by hand."`
	List    listCmd    `cmd:"" help:"List the scenarios with their levels and rules."`
	Diff    diffCmd    `cmd:"" help:"Compare two records. Exits with 1 if something that held does not hold any more."`
	Summary summaryCmd `cmd:"" help:"Print a table of records in Markdown: a row for each, a column for each level."`

	Version    kong.VersionFlag `help:"Print the version and exit."`
	Completion cli.Completion   `cmd:"" help:"Print a completion script for bash, zsh or fish."`
}

// exits are the exit codes of the commands that judge.
var exits = cli.Exits{
	cli.ExitOK:     "everything that was judged held",
	cli.ExitFailed: "something failed",
	cli.ExitUsage:  "",
	cli.ExitOutput: "",
}

// Manual is the end of the command's help.
func (*decideCmd) Manual() cli.Manual { return cli.Manual{Exits: exits} }

// Manual is the end of the command's help.
func (*clientCmd) Manual() cli.Manual { return cli.Manual{Exits: exits} }

// Manual is the end of the command's help.
func (*guardCmd) Manual() cli.Manual { return cli.Manual{Exits: exits} }

// Manual is the end of the command's help.
func (*serviceCmd) Manual() cli.Manual {
	all := maps.Clone(exits)
	all[cli.ExitService] = "the service cannot be reached"
	return cli.Manual{Exits: all}
}

// Manual is the end of the command's help.
func (*diffCmd) Manual() cli.Manual {
	return cli.Manual{Exits: cli.Exits{cli.ExitOK: "nothing is worse", cli.ExitFailed: "something that held does not hold any more", cli.ExitUsage: "", cli.ExitOutput: ""}}
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
	p := &cli.Program{Name: "fetch-conformance", Description: description, Streams: streams, Manual: cli.Manual{Examples: examples, Exits: map[int]string{
		cli.ExitOK:      "everything that was judged held",
		cli.ExitFailed:  "something failed",
		cli.ExitUsage:   "",
		cli.ExitService: "the service cannot be reached",
		cli.ExitOutput:  "",
	}}}
	parsed, err := p.Parse(new(grammar), args)
	if err == nil {
		err = cli.Command[command](parsed).run(ctx, &app{p})
	}
	return p.Exit(ctx, err)
}

type originCmd struct{ originrun.Flags }

// Help implements kong.HelpProvider.
func (*originCmd) Help() string { return originrun.Description }

// Manual is the end of the command's help.
func (*originCmd) Manual() cli.Manual {
	return cli.Manual{Exits: originrun.Exits, Examples: `
  fetch-conformance origin
  fetch-conformance origin --addr 127.0.0.1:9080 --log
  fetch-conformance origin --write-ca ca.pem`}
}

func (c *originCmd) run(ctx context.Context, a *app) error { return c.Serve(ctx, a.Out, a.Err) }
