// Command fetchd fetches URLs for other programs over gRPC. See fetchd --help.
package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"fetchd/internal/cli"

	"google.golang.org/grpc/grpclog"
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // the end of the log's reader is an error of the write instead
	ctx, stop := cli.Interruptible()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	code := run(ctx, program{args: os.Args[1:], stdout: os.Stdout, stderr: os.Stderr,
		hangup: hangup, look: time.Tick(lookEvery), libraries: writeLibraries})
	stop()
	os.Exit(code)
}

// writeLibraries makes gRPC write its errors to w. By default it writes directly to
// standard error, and a call would wait for the reader. It must be called before any
// other part of gRPC. A level in gRPC's own variable wins.
func writeLibraries(w io.Writer) {
	if os.Getenv("GRPC_GO_LOG_SEVERITY_LEVEL") == "" {
		grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, w))
	}
}
