// Command origin runs an HTTP origin that commits any fault on request, by
// URL, so that any HTTP client can be tested against it. See GET / of it, or
// origin --help.
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
