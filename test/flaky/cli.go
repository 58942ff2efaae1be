package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/alecthomas/kong"
)

const description = `Fetch flaky URLs with fetchd and with other clients, and compare the results.

The URLs are those of the origin in conformance/origin, which misbehaves as each URL says. A seed decides the order and
the sizes of the bodies, so every client and every run gets the same list. Each client is a script in
test/flaky/clients, and makes at most four attempts, has 32 requests in flight, and a time limit of 5 s.

The packages of the other clients are installed into a temporary folder, from PyPI and npm, in the versions that
test/flaky/clients pins. What cannot be installed is left out, and named. Everything else runs on loopback.

Exit code: 0 if fetchd was right about every URL, 1 if it was not or something failed, 2 for wrong flags.`

// choices are the flags.
type choices struct {
	URLs   int    `help:"Number of URLs, 50 or more." name:"urls" default:"500" placeholder:"N"`
	Seed   uint64 `help:"Decides the order of the URLs and the sizes of the bodies." default:"1" placeholder:"N"`
	Runs   int    `help:"Number of runs. The table shows the median of the CPU times." default:"1" placeholder:"N"`
	Only   string `help:"Run only the clients whose names match." placeholder:"REGEXP"`
	Python string `help:"Use this Python, with the packages that it has, instead of those from PyPI." placeholder:"PATH"`
	JSON   string `help:"Write all results to this file." name:"json" placeholder:"FILE"`
}

// program holds the arguments, environment and streams of a run.
type program struct {
	args           []string
	environ        []string
	stdout, stderr io.Writer
}

// run runs the command and returns the exit code.
func (p program) run(ctx context.Context) int {
	var c choices
	exited, code := false, 0
	parser, err := kong.New(&c, kong.Name("flaky"), kong.Description(description), kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(n int) { exited, code = true, n }))
	if err != nil {
		return p.fail(err, 2)
	}
	_, err = parser.Parse(p.args)
	if exited { // --help
		return code
	}
	if err == nil && (c.URLs < 50 || c.Runs < 1) {
		err = errors.New("give 50 or more --urls, and 1 or more --runs")
	}
	only, failure := regexp.Compile(c.Only)
	if err = errors.Join(err, failure); err != nil {
		return p.fail(fmt.Errorf("%w (see flaky --help)", err), 2)
	}
	if err := p.compare(ctx, &c, only); err != nil {
		return p.fail(err, 1)
	}
	return 0
}

func (p program) fail(err error, code int) int {
	_, _ = fmt.Fprintf(p.stderr, "flaky: %v\n", err)
	return code
}

// compare runs the clients and writes the table.
func (p program) compare(ctx context.Context, c *choices, only *regexp.Regexp) error {
	s, err := newShop(ctx, p, c)
	if s != nil {
		defer func() { _ = os.RemoveAll(s.work) }() // the system cleans up what is left
	}
	if err != nil {
		return err
	}
	out := page{URLs: c.URLs, Seed: c.Seed}
	for _, k := range kinds {
		out.Mix = append(out.Mix, share{k.name, k.share(c.URLs), k.why})
	}
	for _, client := range clients {
		if !only.MatchString(client.Name) {
			continue
		}
		if err := s.prepare(ctx, client); err != nil {
			out.LeftOut = append(out.LeftOut, fmt.Sprintf("%s: %v", client.Name, err))
			continue
		}
		row := &row{client: *client}
		for n := range c.Runs {
			result, err := s.once(ctx, client, newMix(c.URLs, c.Seed))
			if err != nil {
				return fmt.Errorf("%s: %w", client.Name, err)
			}
			row.Runs = append(row.Runs, result)
			_, _ = fmt.Fprintf(p.stderr, "%s, run %d of %d: %v\n", client.Name, n+1, c.Runs, result)
		}
		out.Rows = append(out.Rows, row)
	}
	if _, err := io.WriteString(p.stdout, out.markdown()); err != nil {
		return err
	}
	if c.JSON != "" {
		text, err := json.MarshalIndent(out, "", "  ")
		if err == nil {
			err = os.WriteFile(c.JSON, append(text, '\n'), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return out.judge()
}
