package main

import (
	"context"

	"github.com/alecthomas/kong"

	"fetchd/internal/cli"
	"fetchd/internal/version"
)

// app is one run of the program.
type app struct {
	cli.Program
	given []string // flags on the command line, without their dashes
}

// command is a subcommand. Its run returns the exit code.
type command interface {
	run(ctx context.Context, a *app) int
}

// grammar is the command line: a field for each command.
type grammar struct {
	Add     addCmd           `cmd:"" help:"Add URLs from arguments, lists and sitemaps."`
	Crawl   crawlCmd         `cmd:"" help:"Fetch pages and what they link to."`
	Run     runOrDemoCmd     `cmd:"" help:"Fetch what is in the frontier."`
	Serve   serveCmd         `cmd:"" help:"Serve the API, for crawlers that do their own fetching."`
	Status  statusCmd        `cmd:"" help:"Count URLs and hosts."`
	Why     whyCmd           `cmd:"" help:"Show why a URL is not being fetched now."`
	Retry   retryCmd         `cmd:"" help:"Try failed URLs again, or fetch old ones again."`
	Migrate migrateCmd       `cmd:"" help:"Bring the database to the schema of this version."`
	Prune   pruneCmd         `cmd:"" help:"Delete old outcomes, URLs and hosts."`
	Robots  robotsCmd        `cmd:"" help:"Show the robots.txt of a host, or have it fetched again."`
	Export  exportCmd        `cmd:"" help:"Write the URLs or the fetches as JSON lines or CSV."`
	Pause   pauseCmd         `cmd:"" help:"Start no more fetches, of the whole crawl or of one host."`
	Resume  resumeCmd        `cmd:"" help:"End a pause."`
	Set     setCmd           `cmd:"" help:"Set the delay or the number of fetches at once of one host."`
	Version kong.VersionFlag `help:"Print the version and exit."`

	Completion cli.Completion `cmd:"" help:"Print a completion script for bash, zsh or fish."`
}

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string, env func(string) string, std cli.Streams) int {
	a := &app{Program: cli.Program{Name: "frontier", Description: description, Manual: cli.Manual{Examples: overviewExamples},
		Streams: std, Env: env, Clean: safe}}
	parsed, err := a.Parse(new(grammar), args, kong.Vars{"agent": agent()})
	if err != nil {
		return a.end(ctx, err)
	}
	for _, p := range parsed.Path {
		if p.Flag != nil && !p.Resolved {
			a.given = append(a.given, p.Flag.Name)
		}
	}
	return cli.Command[command](parsed).run(ctx, a)
}

// agent is the default User-Agent of the crawler.
func agent() string {
	return "frontier/" + version.String()
}
