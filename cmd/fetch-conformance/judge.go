package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"fetchd/conformance"
	"fetchd/conformance/judge"
	"fetchd/conformance/kit"
	"fetchd/conformance/observations"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/dial"
	"fetchd/internal/jsontext"
	"fetchd/internal/version"
)

// what says what is run, and where the record goes.
type what struct {
	Level  string   `placeholder:"LEVEL" group:"What is run:" help:"Run only this level: core, waiting, redirects, bodies or resumption. Default: all."`
	Only   []string `placeholder:"RULE|NAME" group:"What is run:" help:"Run only what is about this rule or has this name. Repeatable."`
	Name   string   `placeholder:"NAME" group:"Report:" help:"Name of the implementation in the report. Default: that of its program."`
	Record string   `placeholder:"FILE" group:"Report:" help:"Also write the results to this file, as JSON. The same results give the same bytes, so that records can be kept and compared."`
}

// choose returns the scenarios and vectors to run.
func (w *what) choose() (scenarios []*kit.Scenario, vectors []conformance.Vector, err error) {
	if scenarios, vectors, err = judge.Select(w.Only); err != nil || w.Level == "" {
		return scenarios, vectors, err
	}
	return judge.OfLevel(w.Level, scenarios, vectors)
}

// report prints a report, writes the record, and returns an error if something failed. options are the rest of the
// command line, as far as the results depend on it.
func (w *what) report(a *app, way string, r *kit.Report, options ...string) error {
	record, err := judge.NewRecord(way, r)
	if err != nil {
		return err
	}
	record.Reproduce = w.commandLine(way, options)
	if err := judge.Text(a.Out, a.Painter(a.Out), r); err != nil {
		return err
	}
	return conclude(a, record, "level", w.Record)
}

// commandLine returns the command line that gives the same record.
func (w *what) commandLine(way string, options []string) string {
	line := "fetch-conformance " + way
	if w.Level != "" {
		line += " --level " + w.Level
	}
	for _, only := range w.Only {
		line += fmt.Sprintf(" --only %q", only)
	}
	if w.Name != "" {
		line += fmt.Sprintf(" --name %q", w.Name)
	}
	for _, option := range options {
		line += " " + option
	}
	return line
}

// conclude prints a line for each level, writes the record to a file if it is named, and returns an error if something
// failed.
func conclude(a *app, record *judge.Record, heading, file string) error {
	if err := levels(a, record, heading); err != nil {
		return err
	}
	record.Judge = "fetch-conformance " + version.String()
	if file != "" {
		data, err := json.MarshalIndent(record, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, append(jsontext.Escape(data), '\n'), 0o644); err != nil {
			return cli.OutputError(err)
		}
	}
	for _, l := range record.Levels {
		if l.Failed > 0 {
			return cli.PrintedError(cli.ExitFailed, "something failed")
		}
	}
	return nil
}

// levels prints a line for each level.
func levels(a *app, record *judge.Record, heading string) error {
	t := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	rows := &cli.Printer{W: t}
	rows.Printf("%s\theld\tfailed\tnot judged\twhole\n", heading)
	for _, l := range record.Levels {
		whole := "no"
		if l.Whole {
			whole = "yes"
		}
		rows.Printf("%s\t%d\t%d\t%d\t%s\n", l.Level, l.Held, l.Failed, l.Other, whole)
	}
	if err := t.Flush(); err != nil {
		return cli.OutputError(err)
	}
	return rows.End()
}

// name returns the name of the implementation in the report.
func (w *what) name(otherwise string) string {
	if w.Name != "" {
		return w.Name
	}
	return otherwise
}

type decideCmd struct {
	Seed      *uint64       `placeholder:"N" group:"What is run:" help:"Judge observations that are generated from this number, in place of the vectors. The same number gives the same observations."`
	Count     int           `default:"900" placeholder:"N" group:"What is run:" help:"Generate so many. Default: ${default}."`
	Reference string        `placeholder:"HOST:PORT" group:"What is run:" help:"A service of the API, which says what must be decided about generated observations."`
	Limit     time.Duration `placeholder:"DURATION" default:"30s" help:"Stop a program that runs longer. Default: ${default}."`
	Release   string        `placeholder:"VERSION" group:"Report:" help:"Version of the program in the report."`
	what
	Command []string `arg:"" passthrough:"" placeholder:"CMD" help:"The program and its arguments. It reads a line of JSON for each vector, with name and observation, and writes a line with name and verdict for each."`
}

func (c *decideCmd) run(ctx context.Context, a *app) error {
	vectors, err := c.vectors(ctx)
	if err != nil {
		return err
	}
	cmd := kit.NewCommand(c.what.Name, c.Command)
	cmd.Limit, cmd.Env = c.Limit, os.Environ()
	r := &kit.Report{Subject: cmd.Name, Command: strings.Join(cmd.Args, " "), Version: c.Release}
	if r.Results, err = cmd.Decide(ctx, vectors); err != nil {
		return cli.AboutFlag("CMD", err)
	}
	options := []string{r.Command}
	if c.Seed != nil {
		options = []string{fmt.Sprintf("--seed %d --count %d --reference HOST:PORT", *c.Seed, c.Count), r.Command}
	}
	return c.report(a, "decide", r, options...)
}

// vectors returns what the program is asked: the vectors, or observations that are generated.
func (c *decideCmd) vectors(ctx context.Context) ([]conformance.Vector, error) {
	switch {
	case c.Seed == nil && c.Reference == "":
		_, vectors, err := c.choose()
		return vectors, err
	case c.Seed == nil || c.Reference == "":
		return nil, cli.UsageError("--seed", "and --reference belong together: give both or neither")
	case c.Level != "" || len(c.Only) > 0:
		return nil, cli.UsageError("--seed", "is for all levels and rules: leave out --level and --only")
	case c.Count < 1 || c.Count > maxGenerated:
		return nil, cli.UsageError("--count", fmt.Sprintf("is %d: give 1 to %d", c.Count, maxGenerated))
	}
	target, options, err := dial.Flags{}.Target("--reference", c.Reference)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, cli.UsageError("--reference", fmt.Sprint(err))
	}
	defer func() { _ = conn.Close() }()
	vectors, err := observations.Vectors(*c.Seed, c.Count)
	if err != nil {
		return nil, err
	}
	if err := kit.Ask(ctx, pb.NewFetchServiceClient(conn), vectors); err != nil {
		return nil, &cli.Error{Code: cli.ExitService, Err: fmt.Errorf("%s: %w", c.Reference, err)}
	}
	return vectors, nil
}

// maxGenerated is how many observations one run can judge.
const maxGenerated = 100_000

type clientCmd struct {
	Adapter string        `placeholder:"URL" help:"Judge the client behind this HTTP adapter, in place of CMD. docs/conformance.md describes adapters."`
	Limit   time.Duration `placeholder:"DURATION" default:"30s" help:"Stop a client that runs longer. Default: ${default}."`
	Jobs    int           `short:"j" default:"8" placeholder:"N" help:"Number of scenarios at once. Default: ${default}."`
	what
	Command []string `arg:"" optional:"" passthrough:"" placeholder:"CMD" help:"The client and its arguments. {url} is replaced by the URL, {out} by a file for the body, {ca} by a file with the authority of the origin's certificates. Without {url} the URL is appended, and without {out} the body is read from standard output. $$ORIGIN_CA names the file too."`
}

func (c *clientCmd) run(ctx context.Context, a *app) error {
	client, field, err := c.client()
	if err != nil {
		return err
	}
	scenarios, _, err := c.choose()
	if err != nil {
		return err
	}
	v, err := judge.Open("", "", scenarios)
	if err != nil {
		return err
	}
	defer func() { _ = v.Close() }() // always nil
	r, err := judge.Client(ctx, client, v, scenarios, c.Jobs)
	if err != nil {
		return cli.AboutFlag(field, err)
	}
	return c.report(a, "client", r, "--limit "+c.Limit.String(), r.Command)
}

// client returns the client, and the flag or argument that names it.
func (c *clientCmd) client() (client kit.Client, field string, err error) {
	switch {
	case (c.Adapter != "") == (len(c.Command) > 0):
		return nil, "", cli.UsageError("CMD", "give the command of a client, or --adapter")
	case c.Adapter == "":
		cmd := kit.NewCommand(c.what.Name, c.Command)
		cmd.Limit, cmd.Env = c.Limit, judge.WithoutProxies(os.Environ())
		return &cmd, "CMD", nil
	}
	if u, err := url.Parse(c.Adapter); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, "", cli.UsageError("--adapter", "must be the URL of an HTTP server, such as http://127.0.0.1:8000/")
	}
	return &kit.Adapter{Name: c.name("adapter"), URL: c.Adapter, Limit: c.Limit}, "--adapter", nil
}

type serviceCmd struct {
	dial.Flags
	Wait       time.Duration `placeholder:"DURATION" help:"Wait this long for the service to answer. Default: do not wait."`
	Jobs       int           `short:"j" default:"8" placeholder:"N" help:"Number of scenarios at once. Default: ${default}."`
	Release    string        `placeholder:"VERSION" group:"Report:" help:"Version of the service in the report."`
	OriginAddr string        `placeholder:"HOST:PORT" default:"127.0.0.1:9100" group:"Origin:" help:"Listen on this address and the ports after it. Default: ${default}."`
	OriginURL  string        `name:"origin-url" placeholder:"BASE" group:"Origin:" help:"The origin's address as the service sees it, such as http://origin.internal:9100. Default: --origin-addr."`
	WriteCA    string        `name:"write-ca" placeholder:"FILE" group:"Origin:" help:"Write the origin's certificate authority to FILE, for --egress-ca-file of fetchd. It changes at each start."`
	what
	Address string `arg:"" placeholder:"HOST:PORT" help:"Address of the service."`
}

func (c *serviceCmd) run(ctx context.Context, a *app) error {
	scenarios, vectors, err := c.choose()
	if err != nil {
		return err
	}
	v, err := judge.Open(c.OriginAddr, c.OriginURL, scenarios)
	if err != nil {
		return err
	}
	defer func() { _ = v.Close() }() // always nil
	if c.WriteCA != "" {
		if err := os.WriteFile(c.WriteCA, v.CAPEM(), 0o644); err != nil {
			return cli.OutputError(err)
		}
	}
	target, options, err := c.Target("HOST:PORT", c.Address)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return cli.UsageError("HOST:PORT", fmt.Sprint(err))
	}
	defer func() { _ = conn.Close() }()
	r := &kit.Report{Subject: c.name(c.Address), Version: c.Release}
	var blocked error
	svc := pb.NewFetchServiceClient(conn)
	if err = c.await(ctx, svc); err == nil {
		r.Results, blocked, err = judge.Server(ctx, svc, v, scenarios, vectors, c.Jobs)
	}
	if st, ok := status.FromError(err); ok && err != nil {
		return &cli.Error{Code: cli.ExitService, Err: fmt.Errorf("%s: %v: %s", c.Address, st.Code(), st.Message()), Hint: "Start the service, and see that the address is that of its gRPC port."}
	}
	if err != nil {
		return err
	}
	if err := c.report(a, "service", r, "HOST:PORT"); blocked == nil {
		return err
	}
	return blocked
}

// await waits until the service answers, at most as long as --wait.
func (c *serviceCmd) await(ctx context.Context, svc pb.FetchServiceClient) error {
	if c.Wait <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	_, err := svc.Explain(ctx, &pb.ExplainRequest{Response: &pb.HttpResponse{StatusCode: 200}}, grpc.WaitForReady(true))
	return err
}

type listCmd struct {
	Level string   `placeholder:"LEVEL" help:"Only this level: core, waiting, redirects, bodies or resumption. Default: all."`
	Only  []string `placeholder:"RULE|NAME" help:"Only what is about this rule or has this name. Repeatable."`
}

func (c *listCmd) run(_ context.Context, a *app) error {
	scenarios, vectors, err := (&what{Level: c.Level, Only: c.Only}).choose()
	if err != nil {
		return err
	}
	out, p := &cli.Printer{W: a.Out}, a.Painter(a.Out)
	for _, s := range scenarios {
		out.Printf("%s  %s\n  %s\n", p.Paint(cli.Bold, s.Name), p.Paint(cli.Dim, conformance.Level(s.Rules...)+" "+strings.Join(s.Rules, " ")), s.Story)
	}
	out.Printf("\n%s and %s\n", cli.Count(len(scenarios), "scenario"), cli.Count(len(vectors), "vector"))
	return out.End()
}

type diffCmd struct {
	Before string `arg:"" placeholder:"BEFORE" help:"A record of --record."`
	After  string `arg:"" placeholder:"AFTER" help:"Another one."`
}

func (c *diffCmd) run(_ context.Context, a *app) error {
	before, err := readRecord("BEFORE", c.Before)
	if err != nil {
		return err
	}
	after, err := readRecord("AFTER", c.After)
	if err != nil {
		return err
	}
	if before.Way != after.Way {
		return cli.UsageError("AFTER", fmt.Sprintf("is a record of %q, and BEFORE of %q: compare records of one way", after.Way, before.Way))
	}
	out, p := &cli.Printer{W: a.Out}, a.Painter(a.Out)
	if before.Data != after.Data {
		out.Printf("The vectors and scenarios of the records differ.\n")
	}
	worse, changes := 0, judge.Changes(before, after)
	for i := range changes {
		change := &changes[i]
		line := fmt.Sprintf("%s %s: %s, was %s", cli.Escape(change.Kind), cli.Escape(change.Name), orAbsent(change.After), orAbsent(change.Before))
		if change.Regression() {
			worse++
			line = p.Paint(cli.Red, line)
		}
		out.Printf("%s\n", line)
	}
	out.Printf("%s, %d worse\n", cli.Count(len(changes), "change"), worse)
	if err := out.End(); err != nil || worse == 0 {
		return err
	}
	return cli.PrintedError(cli.ExitFailed, "worse than before")
}

func orAbsent(v kit.Verdict) string {
	if v == "" {
		return "absent"
	}
	return cli.Escape(string(v))
}

func readRecord(field, path string) (*judge.Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, cli.UsageError(field, fmt.Sprint(err))
	}
	defer func() { _ = f.Close() }() // it was only read
	r, err := judge.ReadRecord(f)
	if err != nil {
		return nil, cli.UsageError(field, fmt.Sprintf("%s: %v", path, err))
	}
	return r, nil
}
