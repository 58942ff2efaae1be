package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"

	"fetchd/cmd/fetchctl/inside"
	"fetchd/conformance"
	"fetchd/conformance/judge"
	"fetchd/conformance/kit"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/dial"
	"fetchd/internal/jsontext"
	"fetchd/internal/version"
)

// conformanceCmd is the command "fetchctl conformance".
type conformanceCmd struct {
	Target string `placeholder:"HOST:PORT" group:"Who is judged:" xor:"who" help:"Judge the server of the contract at this address. Default: the service inside fetchctl."`
	dial.Flags
	Wait time.Duration `placeholder:"DURATION" group:"Who is judged:" help:"Wait this long for the target to answer. Default: do not wait."`

	Client      []string      `placeholder:"[NAME=]CMD" sep:"none" group:"Who is judged:" xor:"who" help:"Judge an HTTP client: a command, split at spaces. The URL replaces {url} or is appended. The client writes the body to standard output or to the file {out}. Repeatable."`
	ClientLimit time.Duration `placeholder:"DURATION" default:"30s" group:"Who is judged:" help:"Stop a client that runs longer. Default: ${default}."`

	OriginAddr string `placeholder:"HOST:PORT" group:"Origin:" help:"Listen on this address and the ports after it, for a target on another machine. Default: 127.0.0.1 with ports that the system chooses."`
	OriginURL  string `name:"origin-url" placeholder:"BASE" group:"Origin:" help:"The origin's address as the target sees it, such as http://origin.internal:9080. The ports after it must lead to the ports after that of --origin-addr. Default: --origin-addr."`
	WriteCA    string `name:"write-ca" placeholder:"FILE" group:"Origin:" help:"Write the origin's certificate authority to FILE, for --egress-ca-file of fetchd. It changes at each start."`

	Only     []string `placeholder:"RULE|NAME" group:"What is run:" help:"Run only what is about this rule or has this name. Repeatable."`
	List     bool     `group:"What is run:" help:"List the scenarios with their rules and exit."`
	Jobs     int      `short:"j" default:"8" placeholder:"N" group:"What is run:" help:"Number of scenarios at once. Default: ${default}."`
	JSON     bool     `name:"json" group:"Report:" help:"Write the report as JSON."`
	Markdown string   `placeholder:"FILE" group:"Report:" help:"Also write the report to FILE as Markdown."`
}

// run judges and returns the exit code.
func (c *conformanceCmd) run(ctx context.Context, a *app) int {
	scenarios, vectors, err := judge.Select(c.Only)
	if err != nil {
		return a.fail(ctx, c.Target, err)
	}
	if c.List {
		return a.listScenarios(ctx, scenarios, func(s *kit.Scenario) []string { return s.Rules })
	}
	var reports []kit.Report
	var blocked error
	if len(c.Client) > 0 {
		reports, err = c.clients(ctx, scenarios)
	} else {
		reports, blocked, err = c.server(ctx, scenarios, vectors)
	}
	if err != nil {
		return a.fail(ctx, c.Target, err)
	}
	if err := cmp.Or(c.report(a, reports), blocked); err != nil {
		return a.fail(ctx, c.Target, err)
	}
	for i := range reports {
		if reports[i].Tally(anyResult).Failed > 0 {
			return cli.ExitFailed
		}
	}
	return cli.ExitOK
}

func anyResult(*kit.Result) bool { return true }

// server judges the target. blocked says why its scenarios could not run.
func (c *conformanceCmd) server(ctx context.Context, scenarios []*kit.Scenario, vectors []conformance.Vector) (reports []kit.Report, blocked, err error) {
	v, err := c.venue(scenarios)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = v.Close() }() // always nil
	svc, err := c.connect(v, scenarios)
	if err != nil {
		return nil, nil, err
	}
	defer svc.Close()
	if err := c.await(ctx, svc); err != nil {
		return nil, nil, err
	}
	r := kit.Report{Subject: "the service inside", Version: "fetchd " + version.Long()}
	if c.Target != "" {
		r.Subject, r.Version = c.Target, ""
	}
	r.Results, blocked, err = judge.Server(ctx, svc, v, scenarios, vectors, c.Jobs)
	return []kit.Report{r}, blocked, err
}

// venue starts the origin.
func (c *conformanceCmd) venue(scenarios []*kit.Scenario) (*judge.Venue, error) {
	v, err := judge.Open(c.OriginAddr, c.OriginURL, scenarios)
	if err != nil || c.WriteCA == "" {
		return v, err
	}
	if err := os.WriteFile(c.WriteCA, v.CAPEM(), 0o644); err != nil {
		_ = v.Close() // always nil
		return nil, cli.OutputError(err)
	}
	return v, nil
}

// connect connects to the target, or starts the service inside.
func (c *conformanceCmd) connect(v *judge.Venue, scenarios []*kit.Scenario) (*inside.Service, error) {
	if c.Target == "" {
		return serveVenue(v, judge.Listeners(scenarios))
	}
	return dialTo("--target", c.Target, c.Flags)
}

// clients judges each command, with its own origin.
func (c *conformanceCmd) clients(ctx context.Context, scenarios []*kit.Scenario) ([]kit.Report, error) {
	var reports []kit.Report
	for _, text := range c.Client {
		cmd, err := kit.ParseCommand(text)
		if err != nil {
			return nil, cli.UsageError("--client", fmt.Sprintf("%q %v", text, err))
		}
		cmd.Limit, cmd.Env = c.ClientLimit, judge.WithoutProxies(os.Environ())
		v, err := c.venue(scenarios)
		if err != nil {
			return nil, err
		}
		r, err := judge.Client(ctx, &cmd, v, scenarios, c.Jobs)
		_ = v.Close() // always nil
		if err != nil {
			return nil, cli.AboutFlag("--client", err)
		}
		reports = append(reports, *r)
	}
	return reports, nil
}

// await waits until the target answers, at most as long as --wait.
func (c *conformanceCmd) await(ctx context.Context, svc *inside.Service) error {
	if c.Wait <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	_, err := svc.Explain(ctx, &pb.ExplainRequest{Response: &pb.HttpResponse{StatusCode: 200}}, grpc.WaitForReady(true))
	return err
}

// report writes the reports to standard output and to --markdown.
func (c *conformanceCmd) report(a *app, reports []kit.Report) error {
	if c.Markdown != "" {
		var page bytes.Buffer
		if err := judge.Markdown(&page, reports); err != nil {
			return err
		}
		if err := os.WriteFile(c.Markdown, page.Bytes(), 0o644); err != nil {
			return cli.OutputError(err)
		}
	}
	if c.JSON {
		data, err := json.MarshalIndent(struct {
			Fetchctl string       `json:"fetchctl"`
			Reports  []kit.Report `json:"reports"`
		}{version.Long(), reports}, "", "  ")
		if err != nil {
			return err
		}
		out := &cli.Printer{W: a.Out}
		out.Printf("%s\n", jsontext.Escape(data))
		return out.End()
	}
	for i := range reports {
		if err := judge.Text(a.Out, a.Painter(a.Out), &reports[i]); err != nil {
			return err
		}
	}
	return nil
}
