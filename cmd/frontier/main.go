package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"fetchd/internal/dial"
	"fetchd/internal/strayenv"
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // a reader that has seen enough is met as an error of the write
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals) // before the user is told that a second signal ends the process at once
		cancel()
	}()
	for _, stray := range strays(os.Environ()) {
		fmt.Fprintf(os.Stderr, "frontier: %s\n", stray)
	}
	code := run(ctx, os.Args[1:], os.Getenv, streams{os.Stdin, os.Stdout, os.Stderr})
	cancel()
	os.Exit(code)
}

// strays are the variables that look like those of this program.
func strays(environ []string) []strayenv.Variable {
	return slices.Concat(dial.Strays(environ), strayenv.Find(environ, "FRONTIER_", []string{dbVariable}),
		strayenv.Near(environ, "CRAWLER_", []string{"CRAWLER_FOLLOW_REDIRECTS", "CRAWLER_MAX_REDIRECTS"}))
}
