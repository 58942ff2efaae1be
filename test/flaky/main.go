// Command flaky fetches five hundred URLs of a misbehaving origin with fetchd and with other clients, and
// compares what each returned with what the origin saw. See flaky --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := program{os.Args[1:], os.Environ(), os.Stdout, os.Stderr}.run(ctx)
	stop()
	os.Exit(code)
}
