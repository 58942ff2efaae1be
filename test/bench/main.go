// Command bench compares what a fetch costs through fetchd and by other means, in one run,
// and writes docs/benchmarks.md. See bench --help.
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
