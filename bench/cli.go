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

// wholePage is the folder of the page that is committed.
const wholePage = "docs"

const description = `Measure what a fetch costs through fetchd and by others.

Every comparison is made of two loads that are put on the same origin in turn, in
so many rounds; the table tells the median of the rounds' ratios, their range, and
the goal. CPU is read from the operating system's clock of each process. All that
runs listens on loopback.

The whole run takes about ten minutes, and writes benchmarks.md and its plots into
the folder --out. What is between the marks "by hand" there stays as it is.

Exit code: 0 when all was measured, whatever goals were missed; 1 if something
could not be measured, or a fetch failed that was not to; 2 for wrong flags.`

// choices are the flags of a run.
type choices struct {
	Rounds  int     `help:"Rounds of each comparison." default:"5"`
	Seconds float64 `help:"How long each load is measured." default:"2"`
	Only    string  `help:"Only the cases whose names match, for which --out is to be empty, or another folder." placeholder:"REGEXP"`
	List    bool    `help:"List the cases, and measure nothing."`
	Out     string  `help:"Folder to write benchmarks.md into. Empty: only the table on standard output." default:"${docs}" placeholder:"DIR"`
	Quick   bool    `help:"One round of short loads: to see that it works, for which --out is to be empty, or another folder."`

	Profile     string `help:"Keep a CPU profile of the service for each load here. It costs some of the CPU that is measured." placeholder:"DIR"`
	NodeModules string `help:"Folder node_modules with what the callers in Node need." env:"BENCH_NODE_MODULES" placeholder:"DIR"`
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

// run is the command. It returns the exit code. Some first arguments make it a part
// of what is measured.
func (p program) run(ctx context.Context) int {
	part := ""
	if len(p.args) > 0 {
		part = p.args[0]
	}
	switch part {
	case "origin":
		return p.part(new(struct{}), func() error { return origin.Serve(ctx, p.stdout) })
	case "relay":
		f := new(relayFlags)
		return p.part(f, func() error { return f.serve(ctx, p.stdout, p.stderr) })
	case "call":
		f := new(callFlags)
		return p.part(f, func() error { return f.run(ctx, p) })
	case "hold":
		o := new(caller.HoldOptions)
		return p.part(o, func() error { return caller.Hold(ctx, *o, p.stderr) })
	}
	c := new(choices)
	if code, done := p.parse(c, p.args); done {
		return code
	}
	if err := c.check(); err != nil {
		return p.fail(err, exitUsage)
	}
	return p.ended(p.measure(ctx, c))
}

// part runs one of them, with flags that are read from the other arguments.
func (p program) part(flags any, run func() error) int {
	if code, done := p.parse(flags, p.args[1:]); done {
		return code
	}
	return p.ended(run())
}

// parse fills flags. It is done where kong has answered by itself (--help) or the
// arguments are wrong.
func (p program) parse(flags any, args []string) (code int, done bool) {
	exited := false
	parser, err := kong.New(flags, kong.Name("bench"), kong.Description(description), kong.Vars{"docs": wholePage}, kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(n int) { exited, code = true, n }))
	if err == nil {
		_, err = parser.Parse(args)
	}
	switch {
	case exited:
		return code, true
	case err != nil:
		return p.fail(fmt.Errorf("%w (see bench --help)", err), exitUsage), true
	}
	return exitOK, false
}

func (p program) ended(err error) int {
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
	case c.Out == wholePage && !c.List && (c.Only != "" || c.Quick):
		return errors.New("--only and --quick would replace the page by a part of it: give --out= with them, or another folder")
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
	if len(out.Rows) == 0 {
		return errors.New("nothing could be measured, so that no page is written")
	}
	out.Machine, out.Command = facts, fmt.Sprintf("go run ./bench --rounds %d --seconds %g", c.Rounds, c.Seconds)
	return write(c.Out, out, pictures(results, out))
}
