package main

import (
	"os"

	"fetchd/internal/cli"
	"fetchd/internal/dial"
)

func main() {
	ctx, stop := cli.Interruptible()
	std := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	cli.WarnVariables(os.Stderr, "fetchctl", dial.Strays(os.Environ()))
	code := run(ctx, os.Args[1:], os.Getenv, std)
	stop()
	os.Exit(code)
}
