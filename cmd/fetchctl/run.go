package main

import (
	"context"

	"github.com/alecthomas/kong"

	"fetchd/internal/cli"
)

// app is one run of the program.
type app struct{ cli.Program }

// command is a subcommand. Its run returns the exit code.
type command interface {
	run(ctx context.Context, a *app) int
}

// grammar is the command line.
type grammar struct {
	Get         getCmd           `cmd:"" help:"Fetch a URL: body to standard output or a file, attempts to standard error."`
	Download    downloadCmd      `cmd:"" help:"Fetch many URLs into files, several at once, and continue an interrupted run."`
	Warc        warcCmd          `cmd:"" help:"Index and check WARC files."`
	Explain     explainCmd       `cmd:"" help:"Show what would be decided for an observation, and by which rule. Nothing is fetched."`
	Mcp         mcpCmd           `cmd:"" name:"mcp" help:"Give a language model tools that fetch: a server of the Model Context Protocol on standard input and output."`
	Demo        demoCmd          `cmd:"" help:"Run the rules against an origin that misbehaves, and check what both sides saw."`
	Conformance conformanceCmd   `cmd:"" help:"Judge a server of the contract, or any HTTP client, by the vectors and scenarios of the specification."`
	Version     kong.VersionFlag `help:"Print the version and exit."`

	Completion cli.Completion `cmd:"" help:"Print a completion script for bash, zsh or fish."`
}

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string, env func(string) string, std cli.Streams) int {
	a := &app{cli.Program{Name: "fetchctl", Description: description, Manual: cli.Manual{Examples: overviewExamples},
		Streams: std, Env: env, Clean: cli.Escape}}
	parsed, err := a.Parse(new(grammar), args)
	if err != nil {
		return a.Exit(ctx, err)
	}
	return cli.Command[command](parsed).run(ctx, a)
}
