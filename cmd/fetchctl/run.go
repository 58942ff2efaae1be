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
	env func(string) string
}

// command is what a subcommand does. It returns the exit status.
type command interface {
	run(ctx context.Context, a *app) int
}

// grammar is the command line.
type grammar struct {
	Get         getCmd           `cmd:"" help:"Fetch a URL: body to standard output or a file, attempts to standard error."`
	Download    downloadCmd      `cmd:"" help:"Fetch many URLs into files, several at once; a run that was cut off is continued."`
	Explain     explainCmd       `cmd:"" help:"Say what would be decided for an observation, by which rule. Nothing is fetched."`
	Demo        demoCmd          `cmd:"" help:"Run the rules against an origin that commits faults, and check what both sides saw."`
	Conformance conformanceCmd   `cmd:"" help:"Judge a server of the contract, or any HTTP client, by the vectors and scenarios of the specification."`
	Version     kong.VersionFlag `help:"Print the version and exit."`

	Completion completionCmd `cmd:"" help:"Print a script with which bash, zsh or fish complete this program."`
}

// run is the whole program: it returns the exit status, and touches nothing of
// the process but what it is given.
func run(ctx context.Context, args []string, env func(string) string, std streams) int {
	a := &app{std, env}
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
		a.hintf(`Run "%s --help" for the flags.`, commandName(args))
		return exitUsage
	}
	cmd, ok := parsed.Selected().Target.Addr().Interface().(command)
	if !ok {
		a.errorf("command %s does nothing", parsed.Command())
		return exitUsage
	}
	return cmd.run(ctx, a)
}

func options(a *app, exit func(int)) []kong.Option {
	return []kong.Option{
		kong.Name("fetchctl"),
		kong.Description(description),
		kong.Writers(a.out, a.err),
		kong.Exit(exit),
		kong.Vars{"version": "fetchctl " + version.Long()},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, FlagsLast: true, WrapUpperBound: 100}),
		kong.Help(printHelp),
		kong.Resolvers(kong.ResolverFunc(a.resolve)),
	}
}

// resolve takes flags that were not given from the environment of the run.
func (a *app) resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if name := dial.Variable(flag.Name); name != "" && a.env(name) != "" {
		return a.env(name), nil
	}
	return nil, nil // not ours to say
}

// commandName is the program with its command, where one was named.
func commandName(args []string) string {
	if len(args) > 0 && slices.Contains([]string{"get", "download", "explain", "demo", "conformance", "completion"}, args[0]) {
		return "fetchctl " + args[0]
	}
	return "fetchctl"
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

// errorf tells what this program could not do.
func (a *app) errorf(format string, args ...any) {
	_, _ = fmt.Fprintf(a.err, "fetchctl: "+format+"\n", args...) // nobody to tell
}

// hintf adds a line to what errorf told.
func (a *app) hintf(format string, args ...any) {
	_, _ = fmt.Fprintf(a.err, "  "+format+"\n", args...) // nobody to tell
}
