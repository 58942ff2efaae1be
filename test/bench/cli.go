package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"fetchd/test/bench/caller"
	"fetchd/test/bench/origin"
)

// The exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// wholePage is the folder of the committed page.
const wholePage = "docs"

const description = `Measure what a fetch costs through fetchd and by other means.

Every comparison runs two loads on the same origin, one after the other, for several
rounds. The table shows the median of the rounds' ratios, their range, and the goal.
CPU time is read from the operating system's clock of each process. Everything runs on
loopback.

The whole run takes about ten minutes, and writes benchmarks.md and its plots into the
folder --out. It keeps the text between the marks "by hand".

Exit code: 0 if everything was measured, even if a goal was missed; 1 if something
could not be measured, a fetch failed unexpectedly, or a ratio exceeds the one that
--recorded names by more than 15 %; 2 for wrong flags.`

// parts are the commands that bench runs as separate processes.
type parts struct {
	Origin struct{}       `cmd:""`
	Relay  relayFlags     `cmd:""`
	Call   caller.Options `cmd:""`
}

// choices are the flags of a run.
type choices struct {
	Rounds  int     `help:"Rounds of each comparison." default:"5"`
	Seconds float64 `help:"Measured time of each load." default:"2"`
	Only    string  `help:"Measure only the cases whose names match. It needs an empty --out, or another folder." placeholder:"REGEXP"`
	List    bool    `help:"List the cases and measure nothing."`
	Out     string  `help:"Folder for benchmarks.md. Empty: only the table on standard output." default:"${docs}" placeholder:"DIR"`
	Quick   bool    `help:"One round of short loads, to see that it works. It needs an empty --out, or another folder."`

	Recorded    string `help:"File of ratios, such as test/bench/ratios.txt. Fail if a measured ratio exceeds its recorded one by more than 15 %." placeholder:"FILE"`
	Record      string `help:"Write the measured ratios to this file." placeholder:"FILE"`
	NodeModules string `help:"Folder with the node_modules of the callers in Node, as .ci/bench-install prints it." env:"BENCH_NODE_MODULES" placeholder:"DIR"`
	only        *regexp.Regexp
	recorded    ratios
}

// program holds the arguments, environment and streams of a run.
type program struct {
	args           []string
	environ        []string
	stdout, stderr io.Writer
}

// run runs the command and returns the exit code.
func (p program) run(ctx context.Context) int {
	c, part := new(choices), new(parts)
	var grammar any = c
	if len(p.args) > 0 && slices.Contains([]string{"origin", "relay", "call"}, p.args[0]) {
		grammar = part
	}
	exited, code := false, exitOK
	parser, err := kong.New(grammar, kong.Name("bench"), kong.Description(description), kong.Vars{"docs": wholePage}, kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(n int) { exited, code = true, n }))
	if err != nil {
		return p.fail(err, exitUsage)
	}
	parsed, err := parser.Parse(p.args)
	switch {
	case exited: // --help
		return code
	case err != nil:
		return p.fail(fmt.Errorf("%w (see bench --help)", err), exitUsage)
	}
	switch parsed.Command() {
	case "origin":
		err = origin.Serve(ctx, p.stdout)
	case "relay":
		err = part.Relay.serve(ctx, p.stdout)
	case "call":
		var result caller.Result
		if result, err = caller.Run(ctx, part.Call, p.stderr); err == nil {
			err = json.NewEncoder(p.stdout).Encode(result)
		}
	default:
		if err := c.check(); err != nil {
			return p.fail(err, exitUsage)
		}
		err = p.measure(ctx, c)
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

// check validates the flags before anything is measured.
func (c *choices) check() error {
	var err error
	c.only, err = regexp.Compile(c.Only)
	if err == nil && c.Recorded != "" {
		if c.recorded, err = readRatios(c.Recorded); err != nil {
			return fmt.Errorf("--recorded: %w", err)
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("--only: %w", err)
	case c.Rounds < 1:
		return fmt.Errorf("--rounds=%d: give 1 or more", c.Rounds)
	case c.Seconds <= 0:
		return fmt.Errorf("--seconds=%g: give more than 0", c.Seconds)
	case c.Out == wholePage && !c.List && (c.Only != "" || c.Quick):
		return errors.New("--only and --quick would replace the page by a part of it: add --out= or another folder")
	}
	return nil
}

// measure makes a run.
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
	w, err := build(ctx, c, p.environ)
	if w != nil {
		defer func() { _ = os.RemoveAll(w.work) }() // the system cleans up what is left
	}
	if err != nil {
		return err
	}
	b := &bench{workshop: w, rounds: c.Rounds, span: time.Duration(c.Seconds * float64(time.Second)), progress: p.stderr, began: time.Now()}
	b.warmup = min(500*time.Millisecond, b.span)
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
	out := newPage(results, b.leftOut)
	if _, err := io.WriteString(p.stdout, out.Summary()); err != nil {
		return err
	}
	if err := c.judge(ratiosOf(results)); err != nil || c.Out == "" {
		return err
	}
	if len(out.Goals) == 0 {
		return errors.New("nothing could be measured, so no page is written")
	}
	out.Machine, out.Command = facts, fmt.Sprintf("go run ./test/bench --rounds %d --seconds %g", c.Rounds, c.Seconds)
	return write(c.Out, out)
}

// judge records the ratios, and compares them with those that were recorded before.
func (c *choices) judge(now ratios) error {
	if c.Record != "" {
		if err := now.record(c.Record); err != nil {
			return err
		}
	}
	if c.Recorded == "" {
		return nil
	}
	return now.compare(c.recorded)
}
