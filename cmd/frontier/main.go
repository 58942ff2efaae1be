package main

import (
	"os"
	"os/signal"
	"slices"
	"syscall"

	"fetchd/internal/cli"
	"fetchd/internal/dial"
	"fetchd/internal/typo"
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // a closed pipe is an error of the write instead
	ctx, stop := cli.Interruptible()
	cli.WarnVariables(os.Stderr, "frontier", strays(os.Environ()))
	code := run(ctx, os.Args[1:], os.Getenv, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}

// strays returns the environment variables that look like settings of this program.
func strays(environ []string) []typo.Variable {
	return slices.Concat(dial.Strays(environ), typo.Find(environ, "FRONTIER_", []string{"FRONTIER_DB"}),
		typo.Near(environ, "CRAWLER_", []string{"CRAWLER_FOLLOW_REDIRECTS", "CRAWLER_MAX_REDIRECTS"}))
}
