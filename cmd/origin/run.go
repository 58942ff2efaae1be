package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/alecthomas/kong"

	"fetchd/conformance/origin"
)

// The exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2 // as the flag package has it
)

const description = `An HTTP origin that commits any fault on request, by URL.

GET /s/KEY/503/reset/200 answers the first request for KEY with 503, resets the
connection of the second, and answers 200 from then on. It prints its
listeners and the whole grammar at the start, and answers GET / with them;
GET /_log?key=KEY shows what it saw.

HTTP and HTTPS listen on the addresses below, the listeners that break before
HTTP begins on ports of 127.0.0.1 that the system chooses. It does what any
client asks of it: do not expose it to a network.

Exit code: 0 after SIGINT or SIGTERM, 1 if it cannot start, 2 for wrong flags.`

// flags is the command line.
type flags struct {
	Addr    string `help:"Address of the listener http." default:"127.0.0.1:9080" placeholder:"HOST:PORT"`
	TLSAddr string `help:"Address of the listener https." name:"tls-addr" default:"127.0.0.1:9443" placeholder:"HOST:PORT"`
	Seed    uint64 `help:"Selects the bytes of the bodies that size=N asks for." default:"0" placeholder:"N"`
	WriteCA string `help:"Write the certificate of the authority to this file, in PEM; clients must trust it. Removed at the end." name:"write-ca" type:"path" placeholder:"FILE"`
	Log     bool   `help:"Write a line for each request to standard error."`
}

// run is the command: it serves until ctx ends and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var f flags
	code, done := parse(&f, args, stdout, stderr)
	if done {
		return code
	}
	if err := serve(ctx, f, stdout, stderr); err != nil {
		_, _ = fmt.Fprintf(stderr, "origin: %v\n", err)
		return exitError
	}
	return exitOK
}

// parse fills f. It is done where kong has answered by itself (--help) or args
// are wrong.
func parse(f *flags, args []string, stdout, stderr io.Writer) (code int, done bool) {
	exited := false
	parser, err := kong.New(f,
		kong.Name("origin"),
		kong.Description(description),
		kong.Writers(stdout, stderr),
		kong.Exit(func(c int) { code, exited = c, true }),
	)
	if err == nil {
		_, err = parser.Parse(args)
	}
	if exited {
		return code, true
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "origin: %v (see origin --help)\n", err)
		return exitUsage, true
	}
	return exitOK, false
}

func serve(ctx context.Context, f flags, stdout, stderr io.Writer) error {
	cfg := origin.Config{Seed: f.Seed, Addr: f.Addr, TLSAddr: f.TLSAddr}
	if f.Log {
		cfg.Logger = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	o, err := origin.Start(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = o.Close() }() // it has no error to tell
	if f.WriteCA != "" {
		if err := os.WriteFile(f.WriteCA, o.CAPEM(), 0o644); err != nil {
			return fmt.Errorf("write the authority: %w", err)
		}
		// The next start makes another one.
		defer func() { _ = os.Remove(f.WriteCA) }()
	}
	if _, err := io.WriteString(stdout, o.Index()); err != nil {
		return fmt.Errorf("print the index: %w", err)
	}
	<-ctx.Done()
	return nil
}
