package kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fetchd/conformance/origin" //nolint:depguard // its log is what is judged
)

// Command is an HTTP client that is a program: called with a URL, it writes the
// body and exits with 0 if all went well.
type Command struct {
	// Name in the report.
	Name string
	// Args are the program and its arguments. {url} stands for the URL, {out} for a
	// file that the body is written to. Without {url} the URL is the last argument,
	// without {out} the body is standard output.
	Args []string
	// Env is the environment of the program, as in exec.Cmd.
	Env []string
	// Limit is how long it may run. Zero means 30 s.
	Limit time.Duration
}

// defaultLimit is Command's.
const defaultLimit = 30 * time.Second

// grace is how long a program that was ended may hold its output open.
const grace = time.Second

// ParseCommand reads "NAME=PROGRAM ARG…" or "PROGRAM ARG…", split at spaces
// without any quoting. Without a name it is the program's. An error says what is
// missing.
func ParseCommand(text string) (Command, error) {
	name, rest, named := strings.Cut(text, "=")
	if !named || strings.ContainsAny(name, " /{") {
		name, rest = "", text
	}
	args := strings.Fields(rest)
	if len(args) == 0 {
		return Command{}, errors.New("names no program")
	}
	if name == "" {
		name = filepath.Base(args[0])
	}
	return Command{Name: name, Args: args}, nil
}

// Version is the first line that the program writes when it is called with
// --version in place of the URL; empty if it writes none.
func (c *Command) Version(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, c.limit())
	defer cancel()
	args, _ := c.arguments("--version", os.DevNull)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.WaitDelay = c.Env, grace
	out, _ := cmd.Output() // what it wrote is the answer
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}

func (c *Command) limit() time.Duration {
	if c.Limit > 0 {
		return c.Limit
	}
	return defaultLimit
}

// ClientRecord is what came of a program.
type ClientRecord struct {
	// Exit is its exit status, -1 where it was ended for lack of time.
	Exit int
	// Body is what it wrote, also where it failed.
	Body []byte
	// Requests are those that the origin saw.
	Requests []origin.Request
}

// Perform gives the program the scenario's URL in a folder of its own, which the
// caller makes and removes. An error says that it could not be started, or that
// ctx ended.
func (c *Command) Perform(ctx context.Context, s *Scenario, o Origin, folder string) (*ClientRecord, error) {
	within, cancel := context.WithTimeout(ctx, c.limit())
	defer cancel()
	out := filepath.Join(folder, "body")
	args, toFile := c.arguments(s.URL(o), out)
	cmd := exec.CommandContext(within, args[0], args[1:]...)
	var stdout bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.WaitDelay = folder, c.Env, &stdout, grace
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	rec := &ClientRecord{Body: stdout.Bytes(), Requests: ended(ctx, s, o)}
	if toFile {
		rec.Body = readOutput(out)
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
	case within.Err() != nil:
		rec.Exit = -1
	case ok:
		rec.Exit = exit.ExitCode()
	default:
		return nil, fmt.Errorf("run %s: %w", c.Args[0], err)
	}
	return rec, nil
}

// ended are the requests when each has its end, which comes soon after the program's.
func ended(ctx context.Context, s *Scenario, o Origin) []origin.Request {
	for _, r := range o.Requests(s.Key()) {
		select {
		case <-r.Done:
		case <-ctx.Done():
		}
	}
	return o.Requests(s.Key())
}

// refused reports whether the origin could not do what the scenario asks, because the
// program does not speak HTTP/2.
func (r *ClientRecord) refused() bool {
	return slices.ContainsFunc(r.Requests, func(r origin.Request) bool { return r.End == origin.EndRefused })
}

func (c *Command) arguments(url, out string) (args []string, toFile bool) {
	named := false
	for _, arg := range c.Args {
		named = named || strings.Contains(arg, "{url}")
		toFile = toFile || strings.Contains(arg, "{out}")
		args = append(args, strings.NewReplacer("{url}", url, "{out}", out).Replace(arg))
	}
	if !named {
		args = append(args, url)
	}
	return args, toFile
}

// JudgeClient holds what came of a program against what must hold of a client that
// is only given the URL. It is for scenarios with a Client.
func (s *Scenario) JudgeClient(o Origin, rec *ClientRecord) []Mismatch {
	j := new(judgement)
	failed := s.outcome.GetError() != nil
	switch {
	case rec.Exit < 0:
		j.same("end", "an exit status", "still under way when it was ended")
	case failed && rec.Exit == 0:
		j.same("exit status", "a failure", "0")
	case !failed && rec.Exit != 0:
		j.same("exit status", 0, rec.Exit)
	}
	least, most := s.Want.Requests, s.Want.Requests
	if r := s.Client.Requests; len(r) == 2 {
		least, most = r[0], r[1]
	}
	if n := len(rec.Requests); n < least || n > most {
		j.same("requests", rangeText(least, most), n)
	}
	for i, gap := range gapsOf(rec.Requests) {
		if i < len(s.gaps) && gap < s.gaps[i] {
			j.same(fmt.Sprintf("gap %d", i+1), fmt.Sprintf("at least %s", s.gaps[i]), gap.Round(time.Millisecond))
		}
	}
	if want := o.Body(s.Want.Body); !failed && rec.Exit == 0 && !bytes.Equal(want, rec.Body) {
		j.same("body", bodyText(want), bodyText(rec.Body))
	}
	if !s.Client.SeenAny {
		for i := range min(len(rec.Requests), len(s.Want.Seen)) {
			j.sight(fmt.Sprintf(" of request %d", i+1), &s.Want.Seen[i], &rec.Requests[i])
		}
	}
	return j.wrong
}

func rangeText(least, most int) string {
	if least == most {
		return fmt.Sprint(least)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

// Scenarios runs the program over the scenarios, jobs at a time; the results are in
// their order. folder makes a folder for each run. The error is the end of ctx, or
// says that the program could not be started.
func (c *Command) Scenarios(ctx context.Context, scenarios []*Scenario, o Origin, jobs int, folder func() (string, error)) ([]Result, error) {
	results := make([]Result, len(scenarios))
	err := each(ctx, jobs, len(scenarios), func(ctx context.Context, i int) error {
		s := scenarios[i]
		results[i] = Result{Name: s.Name, Rules: slices.Clone(s.Rules), Verdict: NotApplicable}
		if s.Client == nil {
			return nil
		}
		dir, err := folder()
		if err != nil {
			return err
		}
		rec, err := c.Perform(ctx, s, o, dir)
		if err != nil {
			return err
		}
		if rec.refused() {
			return nil
		}
		results[i].Exit = &rec.Exit
		results[i].judged(s.JudgeClient(o, rec), rec.Requests)
		return nil
	})
	return results, err
}

// readOutput is what a program wrote into its file; nothing if there is none.
func readOutput(path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return data
}
