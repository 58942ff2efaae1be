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
	for _, stray := range slices.Concat(dial.Strays(os.Environ()), strayenv.Find(os.Environ(), "FRONTIER_", []string{dbVariable})) {
		fmt.Fprintf(os.Stderr, "frontier: %s\n", stray)
	}
	code := run(ctx, os.Args[1:], os.Getenv, streams{os.Stdin, os.Stdout, os.Stderr})
	cancel()
	os.Exit(code)
}
