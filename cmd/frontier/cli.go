package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/alecthomas/kong"

	"fetchd/internal/dial"
	"fetchd/internal/version"
)

// streams are the standard streams of a run.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app is one run of the program, as every command needs it.
type app struct {
	streams
	env   func(string) string
	given []string // flags on the command line, without their dashes
}

// command is what a subcommand does. It returns the exit status.
type command interface {
	run(ctx context.Context, a *app) int
}

// grammar is the command line: a field for each command.
type grammar struct {
	Add     addCmd           `cmd:"" help:"Add URLs from arguments, lists and sitemaps."`
	Run     runCmd           `cmd:"" help:"Fetch what is in the frontier."`
	Status  statusCmd        `cmd:"" help:"Count URLs and hosts."`
	Why     whyCmd           `cmd:"" help:"Say why a URL is not being fetched now."`
	Retry   retryCmd         `cmd:"" help:"Try again what failed, or fetch again what is old."`
	Export  exportCmd        `cmd:"" help:"Write the URLs or the fetches as JSON lines or CSV."`
	Pause   pauseCmd         `cmd:"" help:"Stop claims of the whole crawl, or of a host."`
	Resume  resumeCmd        `cmd:"" help:"Take a pause back."`
	Set     setCmd           `cmd:"" help:"Give a host a delay or a number of fetches of its own."`
	Version kong.VersionFlag `help:"Print the version and exit."`

	Completion completionCmd `cmd:"" help:"Print a script with which bash, zsh or fish complete this program."`
}

// run is the whole program: it returns the exit status, and touches nothing of
// the process but what it is given.
func run(ctx context.Context, args []string, env func(string) string, std streams) int {
	a := &app{streams: std, env: env}
	var g grammar
	exited, status := false, exitOK
	parser, err := kong.New(&g, options(a, func(code int) { exited, status = true, code })...)
	if err != nil {
		a.errorf("command line: %v", err)
		return exitUsage
	}
	parsed, err := parser.Parse(args)
	if exited { // by --help or --version, whatever else is missing
		return status
	}
	if err != nil {
		a.errorf("%v", err)
		a.hintf(`Run "%s --help" for the flags.`, commandName(parser.Model, args))
		return exitUsage
	}
	cmd, ok := parsed.Selected().Target.Addr().Interface().(command)
	if !ok {
		a.errorf("command %s does nothing", parsed.Command())
		return exitUsage
	}
	a.given = given(parsed)
	return cmd.run(ctx, a)
}

func options(a *app, exit func(int)) []kong.Option {
	return []kong.Option{
		kong.Name("frontier"),
		kong.Description(description),
		kong.Writers(a.out, a.err),
		kong.Exit(exit),
		kong.Vars{"version": "frontier " + version.Long(), "agent": agent()},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, FlagsLast: true, WrapUpperBound: 100}),
		kong.Help(printHelp),
		kong.Resolvers(kong.ResolverFunc(a.resolve)),
	}
}

// dbVariable stands for --db.
const dbVariable = "FRONTIER_DB"

// resolve takes flags that were not given from the environment of the run.
func (a *app) resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	name := dial.Variable(flag.Name)
	if flag.Name == "db" {
		name = dbVariable
	}
	if name != "" && a.env(name) != "" {
		return a.env(name), nil
	}
	return nil, nil // not ours to say
}

// given are the flags that stand on the command line, in their order.
func given(c *kong.Context) []string {
	var names []string
	for _, p := range c.Path {
		if p.Flag != nil && !p.Resolved {
			names = append(names, p.Flag.Name)
		}
	}
	return names
}

// commandName is the program with its command, where one was named.
func commandName(model *kong.Application, args []string) string {
	if len(args) > 0 && slices.ContainsFunc(model.Children, func(n *kong.Node) bool { return n.Name == args[0] }) {
		return "frontier " + args[0]
	}
	return "frontier"
}

// printHelp is kong's help with the examples of the command at its end.
func printHelp(o kong.HelpOptions, c *kong.Context) error {
	if err := kong.DefaultHelpPrinter(o, c); err != nil {
		return err
	}
	examples := overviewExamples
	if node := c.Selected(); node != nil {
		if e, ok := node.Target.Addr().Interface().(interface{ examples() string }); ok {
			examples = e.examples()
		}
	}
	_, err := fmt.Fprintf(c.Stdout, "\nExamples:\n%s", examples)
	return err
}

// agent is how the crawler calls itself unless it is told otherwise.
func agent() string {
	return "frontier/" + version.String()
}

// errorf tells what this program could not do, on one line and without secrets.
func (a *app) errorf(format string, args ...any) {
	_, _ = fmt.Fprintf(a.err, "frontier: %s\n", safe(fmt.Sprintf(format, args...))) // nobody to tell
}

// hintf adds a line of this program's own words to what errorf told.
func (a *app) hintf(format string, args ...any) {
	_, _ = fmt.Fprintf(a.err, "  "+format+"\n", args...) // nobody to tell
}
