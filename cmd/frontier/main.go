// Command frontier stores the URLs of a crawl and decides when each one is fetched.
//
//	frontier add       add URLs from arguments, lists and sitemaps
//	frontier crawl     fetch pages and what they link to, or what was added
//	frontier status    count URLs and hosts
//	frontier why URL   show why a URL is not being fetched now
//	frontier retry     try failed URLs again, or fetch old ones again
//	frontier export    write the URLs or the fetches as JSON lines
//	frontier pause     start no more fetches, of the whole crawl or of one host
//	frontier resume    end a pause
//	frontier set       set the delay or the number of fetches at once of one host
//
// Everything is in one database, a SQLite file or PostgreSQL, which --db names. Several of these
// commands may run at once on one database.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/alecthomas/kong"

	"fetchd/cmd/frontier/worker"
	"fetchd/internal/cli"
	"fetchd/internal/daemon"
	"fetchd/internal/dial"
	"fetchd/internal/typo"
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // a closed pipe is an error of the write instead
	daemon.Memory()                // a crawler holds much, too
	ctx, stop := cli.Interruptible()
	cli.WarnVariables(os.Stderr, "frontier", strays(os.Environ()))
	code := run(ctx, os.Args[1:], os.Getenv, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}

// grammar is the command line: a field for each command.
type grammar struct {
	Add     addCmd           `cmd:"" help:"Add URLs from arguments, lists and sitemaps."`
	Crawl   crawlCmd         `cmd:"" help:"Fetch pages and what they link to, or continue what the database has."`
	Serve   serveCmd         `cmd:"" help:"Serve the API, for crawlers that do their own fetching."`
	Status  statusCmd        `cmd:"" help:"Count URLs and hosts."`
	Why     whyCmd           `cmd:"" help:"Show why a URL is not being fetched now."`
	Retry   retryCmd         `cmd:"" help:"Try failed URLs again, or fetch old ones again."`
	Migrate migrateCmd       `cmd:"" help:"Bring the database to the schema of this version."`
	Prune   pruneCmd         `cmd:"" help:"Delete old outcomes, URLs and hosts."`
	Robots  robotsCmd        `cmd:"" help:"Show the robots.txt of a host, or have it fetched again."`
	Export  exportCmd        `cmd:"" help:"Write the URLs or the fetches as JSON lines."`
	Pause   pauseCmd         `cmd:"" help:"Start no more fetches, of the whole crawl or of one host."`
	Resume  resumeCmd        `cmd:"" help:"End a pause."`
	Set     setCmd           `cmd:"" help:"Set the delay or the number of fetches at once of one host."`
	Demo    demoCmd          `cmd:"" help:"Crawl a built-in site on loopback, and check the result."`
	Version kong.VersionFlag `help:"Print the version and exit."`

	Completion cli.Completion `cmd:"" ownflags:"" help:"Print a completion script for bash, zsh or fish."`
}

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string, env func(string) string, std cli.Streams) int {
	a := &app{Program: cli.Program{Name: "frontier", Texts: texts,
		Streams: std, Env: env, Clean: safe}}
	if len(args) > 0 && args[0] == "run" {
		return a.end(ctx, &cli.Error{Code: cli.ExitUsage, Err: errors.New(`run: there is no such command: "frontier crawl" without a URL fetches what is in the database`)})
	}
	parsed, err := a.Parse(new(grammar), args, kong.Vars{"agent": worker.Agent()}, kong.ExplicitGroups(groups))
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

// strays returns the environment variables that look like settings of this program.
func strays(environ []string) []typo.Variable {
	return slices.Concat(dial.Strays(environ), typo.Find(environ, "FRONTIER_", []string{"FRONTIER_DB"}),
		typo.Near(environ, "CRAWLER_", []string{"CRAWLER_FOLLOW_REDIRECTS", "CRAWLER_MAX_REDIRECTS"}))
}
