// Command fetchd fetches URLs for other programs over gRPC. See fetchd --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	code := run(ctx, program{args: os.Args[1:], stdout: os.Stdout, stderr: os.Stderr,
		hangup: hangup, look: time.Tick(lookEvery)})
	stop()
	os.Exit(code)
}
