// Command origin runs an HTTP origin that misbehaves as the URL of a request says, so that HTTP
// clients can be tested against it. See its GET /, or origin --help.
package main

import (
	"os"

	"fetchd/internal/cli"
)

func main() {
	ctx, stop := cli.Interruptible()
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
