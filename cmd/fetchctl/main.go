// Command fetchctl fetches URLs through fetchd and shows what happens.
//
//	fetchctl get URL       fetch one URL: body to standard output or a file
//	fetchctl download      fetch many URLs into files, and continue an interrupted run
//	fetchctl warc          index and check WARC files
//	fetchctl explain       show what would be decided, and by which rule
//	fetchctl mcp           give a language model a tool that fetches
//	fetchctl demo          run the rules against an origin that misbehaves
//
// It only uses the API, fetchd.v1.FetchService. Without --server it runs the service inside
// the process, with the user's own access rights: like curl, it reaches any address and port.
// Only mcp, whose URLs a model chooses, reaches public addresses alone.
//
// The exit codes are those of package internal/cli: 10 to 14 for a fetch that failed at the
// origin, others for errors of the program and the service. See fetchctl --help.
package main

import (
	"context"
	_ "embed"
	"errors"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"fetchd/cmd/fetchctl/demo"
	"fetchd/cmd/fetchctl/download"
	"fetchd/cmd/fetchctl/explain"
	"fetchd/cmd/fetchctl/get"
	"fetchd/cmd/fetchctl/mcp"
	"fetchd/cmd/fetchctl/warctool"
	"fetchd/internal/cli"
	"fetchd/internal/dial"
)

func main() {
	ctx, stop := cli.Interruptible()
	std := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	cli.WarnVariables(os.Stderr, "fetchctl", dial.Strays(os.Environ()))
	code := run(ctx, os.Args[1:], os.Getenv, std)
	stop()
	os.Exit(code)
}

// texts are the long texts of --help; see [cli.Program].
//
//go:embed help.txt
var texts string

// grammar is the command line.
type grammar struct {
	Get      get.Command      `cmd:"" help:"Fetch a URL: body to standard output or a file, attempts to standard error."`
	Download download.Command `cmd:"" help:"Fetch many URLs into files, several at once, and continue an interrupted run."`
	Warc     warctool.Command `cmd:"" help:"Index and check WARC files."`
	Explain  explain.Command  `cmd:"" help:"Show what would be decided for an observation, and by which rule. Nothing is fetched."`
	Mcp      mcp.Command      `cmd:"" name:"mcp" help:"Give a language model a tool that fetches: a server of the Model Context Protocol on standard input and output."`
	Demo     demo.Command     `cmd:"" help:"Run the rules against an origin that misbehaves, and check what both sides saw."`
	Version  kong.VersionFlag `short:"V" help:"Print the version and exit."`

	Completion cli.Completion `cmd:"" ownflags:"" help:"Print a completion script for bash, zsh or fish."`
}

// command is a subcommand. Its Run returns the exit code.
type command interface {
	Run(ctx context.Context, p *cli.Program) int
}

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string, env func(string) string, std cli.Streams) int {
	p := &cli.Program{Name: "fetchctl", Texts: texts,
		Streams: std, Env: env, Clean: cli.Escape}
	if len(args) > 0 && strings.Contains(args[0], "://") {
		return p.Exit(ctx, &cli.Error{Code: cli.ExitUsage, Err: errors.New("a URL is given, and no command"), Hint: `Run "fetchctl get URL".`})
	}
	parsed, err := p.Parse(new(grammar), args)
	if err != nil {
		return p.Exit(ctx, err)
	}
	return cli.Command[command](parsed).Run(ctx, p)
}
