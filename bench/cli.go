package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/alecthomas/kong"

	"fetchd/bench/caller"
	"fetchd/bench/origin"
)

// The exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2 // as the flag package has it
)

const description = `Measure what a fetch costs through fetchd and by others.

Every comparison is made of two loads that are put on the same origin in turn, in
so many rounds; the table tells the median of the rounds' ratios, their range, and
the goal. CPU is read from the operating system's clock of each process. All that
runs listens on loopback.

The whole run takes about ten minutes, and writes benchmarks.md and its plots into
the folder --out. What is between the marks "by hand" there stays as it is.

Exit code: 0 when all was measured, whatever goals were missed; 1 if something
could not be measured, or a fetch failed that was not to; 2 for wrong flags.`

// commandLine is what the program takes.
type commandLine struct {
	Run    choices            `cmd:"" default:"withargs" help:"Measure. It is what happens without a command."`
	Origin struct{}           `cmd:"" hidden:"" help:"Serve what is fetched."`
	Relay  relayFlags         `cmd:"" hidden:"" help:"Serve the bare relay."`
	Call   callFlags          `cmd:"" hidden:"" help:"Put a load on something."`
	Hold   caller.HoldOptions `cmd:"" hidden:"" help:"Hold fetches open."`
}

// choices are the flags of a run.
type choices struct {
	Rounds  int     `help:"Rounds of each comparison." default:"5"`
	Seconds float64 `help:"How long each load is measured." default:"2"`
	Only    string  `help:"Only the cases whose names match. It needs --out ''." placeholder:"REGEXP"`
	List    bool    `help:"List the cases, and measure nothing."`
	Out     string  `help:"Folder to write benchmarks.md into. Empty: only the table on standard output." default:"docs" placeholder:"DIR"`
	Quick   bool    `help:"One round of short loads: to see that it works. It needs --out ''."`

	NodeModules string `help:"Folder node_modules with what the callers in Node need." env:"BENCH_NODE_MODULES" placeholder:"DIR"`
	Bazel       string `help:"Program that serves and calls bazel-remote, as bench/bazel does." placeholder:"FILE"`
	only        *regexp.Regexp
}

type callFlags struct {
	Kind    string  `required:""`
	Target  string  `required:""`
	GRPC    string  `name:"grpc"`
	Open    int     `default:"64"`
	Warmup  float64 `default:"1"`
	Seconds float64 `default:"5"`
}

// program is what a run has from outside.
type program struct {
	args           []string
	environ        []string
	stdout, stderr io.Writer
}

// run is the command. It returns the exit code.
func (p program) run(ctx context.Context) int {
	var c commandLine
	exited, code := false, exitOK
	parser, err := kong.New(&c, kong.Name("bench"), kong.Description(description), kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(n int) { exited, code = true, n }))
	if err != nil {
		return p.fail(err, exitUsage)
	}
	parsed, err := parser.Parse(p.args)
	switch {
	case exited:
		return code
	case err != nil:
		return p.fail(fmt.Errorf("%w (see bench --help)", err), exitUsage)
	}
	switch parsed.Command() {
	case "origin":
		err = origin.Serve(ctx, p.stdout)
	case "relay":
		err = c.Relay.serve(ctx, p.stdout)
	case "call":
		err = c.Call.run(ctx, p)
	case "hold":
		err = caller.Hold(ctx, c.Hold, p.stderr)
	default:
		if err := c.Run.check(); err != nil {
			return p.fail(err, exitUsage)
		}
		err = p.measure(ctx, &c.Run)
	}
	if err != nil {
		return p.fail(err, exitError)
	}
	return exitOK
}

func (p program) fail(err error, code int) int {
	_, _ = fmt.Fprintf(p.stderr, "bench: %v\n", err)
	return code
}

// check refuses what makes no sense, before anything is measured.
func (c *choices) check() error {
	var err error
	c.only, err = regexp.Compile(c.Only)
	switch {
	case err != nil:
		return fmt.Errorf("--only: %w", err)
	case c.Rounds < 1:
		return fmt.Errorf("--rounds=%d: give 1 or more", c.Rounds)
	case c.Seconds <= 0:
		return fmt.Errorf("--seconds=%g: give more than 0", c.Seconds)
	case c.Out != "" && !c.List && (c.Only != "" || c.Quick):
		return errors.New("--only and --quick would replace the page by a part of it: give --out '' with them")
	}
	return nil
}

func (f *callFlags) run(ctx context.Context, p program) error {
	result, err := caller.Run(ctx, caller.Options{Kind: f.Kind, Target: f.Target, GRPC: f.GRPC, Open: f.Open,
		Warmup: inSeconds(f.Warmup), Span: inSeconds(f.Seconds)}, p.stderr)
	if err != nil {
		return err
	}
	return json.NewEncoder(p.stdout).Encode(result)
}

func inSeconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// measure is a run.
func (p program) measure(ctx context.Context, c *choices) error {
	todo := selected(plan(), c.only)
	if c.List {
		_, err := io.WriteString(p.stdout, list(todo))
		return err
	}
	if len(todo) == 0 {
		return fmt.Errorf("--only=%s matches no case: see bench --list", c.Only)
	}
	_, _ = fmt.Fprintln(p.stderr, "building fetchd")
	w, release, err := build(ctx, c, p.environ)
	if err != nil {
		return err
	}
	defer release()
	b := &bench{workshop: w, rounds: c.Rounds, warmup: 500 * time.Millisecond, span: inSeconds(c.Seconds), progress: p.stderr, began: time.Now()}
	if c.Quick {
		b.rounds, b.warmup, b.span = 1, 200*time.Millisecond, 500*time.Millisecond
	}
	facts, err := machine(ctx, w)
	if err != nil {
		return err
	}
	results, err := b.all(ctx, todo)
	if err != nil {
		return err
	}
	out := page(results, b.leftOut)
	if err := out.WriteTable(p.stdout); err != nil || c.Out == "" {
		return err
	}
	out.Machine, out.Command = facts, fmt.Sprintf("go run ./bench --rounds %d --seconds %g", c.Rounds, c.Seconds)
	return write(c.Out, out, pictures(results, out))
}
