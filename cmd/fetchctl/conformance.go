package main

import (
	"cmp"
	"context"
	"encoding/json"

	"fetchd/conformance/judge"
	"fetchd/conformance/kit"
	"fetchd/internal/cli"
	"fetchd/internal/jsontext"
	"fetchd/internal/version"
)

// conformanceCmd is the command "fetchctl conformance".
type conformanceCmd struct {
	Only []string `placeholder:"RULE|NAME" group:"What is run:" help:"Run only what is about this rule or has this name. Repeatable."`
	List bool     `group:"What is run:" help:"List the scenarios with their rules and exit."`
	Jobs int      `short:"j" default:"8" placeholder:"N" group:"What is run:" help:"Number of scenarios at once. Default: ${default}."`
	JSON bool     `name:"json" group:"Report:" help:"Write the report as JSON."`
}

// run judges the service inside and returns the exit code.
func (c *conformanceCmd) run(ctx context.Context, a *app) int {
	scenarios, vectors, err := judge.Select(c.Only)
	if err != nil {
		return a.fail(ctx, "", err)
	}
	if c.List {
		return a.listScenarios(ctx, scenarios, func(s *kit.Scenario) []string { return s.Rules })
	}
	v, err := judge.Open("", "", scenarios)
	if err != nil {
		return a.fail(ctx, "", err)
	}
	defer func() { _ = v.Close() }() // always nil
	svc, err := serveVenue(v, judge.Listeners(scenarios))
	if err != nil {
		return a.fail(ctx, "", err)
	}
	defer svc.Close()
	r := kit.Report{Subject: "the service inside", Version: "fetchd " + version.Long()}
	var blocked error
	if r.Results, blocked, err = judge.Server(ctx, svc, v, scenarios, vectors, c.Jobs); err != nil {
		return a.fail(ctx, "", err)
	}
	if err := cmp.Or(c.report(a, &r), blocked); err != nil {
		return a.fail(ctx, "", err)
	}
	if r.Tally(func(*kit.Result) bool { return true }).Failed > 0 {
		return cli.ExitFailed
	}
	return cli.ExitOK
}

// report writes the report to standard output.
func (c *conformanceCmd) report(a *app, r *kit.Report) error {
	if !c.JSON {
		return judge.Text(a.Out, a.Painter(a.Out), r)
	}
	data, err := json.MarshalIndent(struct {
		Fetchctl string      `json:"fetchctl"`
		Report   *kit.Report `json:"report"`
	}{version.Long(), r}, "", "  ")
	if err != nil {
		return err
	}
	out := &cli.Printer{W: a.Out}
	out.Printf("%s\n", jsontext.Escape(data))
	return out.End()
}
