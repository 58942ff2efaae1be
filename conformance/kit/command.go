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

	"fetchd/conformance/origin"
)

// Command is a program that is an HTTP client. It is called with a URL, writes the body, and
// exits with 0 if the fetch succeeded.
type Command struct {
	// Name is the name in the report.
	Name string
	// Args are the program and its arguments. {url} is replaced by the URL, {out} by a file
	// for the body. Without {url} the URL is the last argument. Without {out} the program
	// writes the body to standard output.
	Args []string
	// Env is the environment of the program, as in exec.Cmd.
	Env []string
	// Limit is how long the program may run. Zero means 30 s.
	Limit time.Duration
}

// defaultLimit is the default of [Command.Limit].
const defaultLimit = 30 * time.Second

// grace is how long a killed program may keep its output open.
const grace = time.Second

// ParseCommand parses "NAME=PROGRAM ARG…" or "PROGRAM ARG…". It splits at spaces and supports
// no quoting. The default name is that of the program.
func ParseCommand(text string) (Command, error) {
	name, rest, named := strings.Cut(text, "=")
	if !named || strings.ContainsAny(name, " /{") {
		name, rest = "", text
	}
	args := strings.Fields(rest)
	if len(args) == 0 {
		return Command{}, errors.New("names no program")
	}
	return NewCommand(name, args), nil
}

// NewCommand returns a command with the default name if name is empty: that of the program. args must not be empty.
func NewCommand(name string, args []string) Command {
	if name == "" {
		name = filepath.Base(args[0])
	}
	return Command{Name: name, Args: args}
}

// Version returns the first line that the program writes if it is called with --version in place
// of the URL.
func (c *Command) Version(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, c.TimeLimit())
	defer cancel()
	args, _ := c.arguments("--version", os.DevNull)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.WaitDelay = c.Env, grace
	out, _ := cmd.Output() // the output counts even if the program fails
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}

// TimeLimit returns how long the program may run.
func (c *Command) TimeLimit() time.Duration {
	if c.Limit > 0 {
		return c.Limit
	}
	return defaultLimit
}

// ClientRecord is the result of a program.
type ClientRecord struct {
	// Exit is the exit status, or -1 if the program exceeded its time limit and was killed.
	Exit int
	// Body is what it wrote, even if it failed.
	Body []byte
	// Requests are the requests that the origin received.
	Requests []origin.Request
}

// Perform runs the program with the scenario's URL in an empty folder, which the caller creates
// and removes. It returns an error if the program cannot be started or ctx ends.
func (c *Command) Perform(ctx context.Context, s *Scenario, o Origin, folder string) (*ClientRecord, error) {
	body, exit, err := c.Run(ctx, s.URL(o), folder)
	if err != nil {
		return nil, err
	}
	return &ClientRecord{Exit: exit, Body: body, Requests: ended(ctx, s, o)}, nil
}

// Run runs the program with a URL, in a folder that the caller creates and removes. It returns the body and the exit
// status, which is -1 if the program exceeded its time limit, and an error if it cannot be started or ctx ends.
func (c *Command) Run(ctx context.Context, url, folder string) (body []byte, exit int, err error) {
	within, cancel := context.WithTimeout(ctx, c.TimeLimit())
	defer cancel()
	out := filepath.Join(folder, "body")
	args, toFile := c.arguments(url, out)
	if strings.ContainsRune(args[0], os.PathSeparator) { // the program runs in another folder
		if args[0], err = filepath.Abs(args[0]); err != nil {
			return nil, 0, err
		}
	}
	cmd := exec.CommandContext(within, args[0], args[1:]...)
	var stdout bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.WaitDelay = folder, c.Env, &stdout, grace
	err = cmd.Run()
	if ctx.Err() != nil {
		return nil, 0, ctx.Err()
	}
	body = stdout.Bytes()
	if toFile {
		body = readOutput(out)
	}
	failed, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return body, 0, nil
	case within.Err() != nil:
		return body, -1, nil
	case ok:
		return body, failed.ExitCode(), nil
	default:
		return nil, 0, fmt.Errorf("run %s: %w", c.Args[0], err)
	}
}

// ended waits until the origin has recorded the end of each request, and returns the requests.
func ended(ctx context.Context, s *Scenario, o Origin) []origin.Request {
	for _, r := range o.Requests(s.Key()) {
		select {
		case <-r.Done:
		case <-ctx.Done():
		}
	}
	return o.Requests(s.Key())
}

// refused reports whether the origin could not run the scenario because the program does not
// support HTTP/2.
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

// JudgeClient compares the result of a program with what the scenario expects of a client that
// only knows the URL. The scenario must have a Client.
func (s *Scenario) JudgeClient(o Origin, rec *ClientRecord) []Mismatch {
	j := new(judgement)
	failed := s.outcome.GetError() != nil
	switch {
	case rec.Exit < 0:
		j.same("end", "an exit status", "still running at the time limit")
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

// Scenarios runs the program with each scenario, jobs at a time, and returns the results in their
// order. folder creates a folder for each run. Scenarios returns an error if the program cannot be
// started or ctx ends.
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

// readOutput returns what a program wrote to its file, or nil if there is no file.
func readOutput(path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return data
}
