package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"fetchd/internal/dial"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	for _, stray := range dial.Strays(os.Environ()) {
		fmt.Fprintf(os.Stderr, "fetchctl: %s\n", stray)
	}
	code := run(ctx, os.Args[1:], os.Getenv, streams{os.Stdin, os.Stdout, os.Stderr})
	stop()
	os.Exit(code)
}
