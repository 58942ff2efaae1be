// Package demo runs the rules against an origin that misbehaves. It is what "fetchctl demo" does.
package demo

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"fetchd/cmd/fetchctl/service"
	"fetchd/cmd/fetchctl/show"
	"fetchd/conformance/judge"
	"fetchd/conformance/kit"
	"fetchd/fetch"
	"fetchd/internal/cli"
	"fetchd/internal/rules"
	"fetchd/internal/version"
	"fetchd/server"
)

// Command is the command "fetchctl demo".
type Command struct {
	Break string `placeholder:"RULE" help:"Run the scenarios about this rule against an origin that gives the rule no occasion to apply. The demo must then fail."`
}

// Run runs the demo and returns the exit code.
func (c *Command) Run(ctx context.Context, p *cli.Program) int {
	all, err := demoScenarios()
	if err != nil {
		return service.Fail(ctx, p, "", err)
	}
	chosen := all
	if c.Break != "" {
		c.Break = strings.ToUpper(c.Break)
		if chosen = kit.Broken(all, c.Break); len(chosen) == 0 {
			return service.Fail(ctx, p, "", cli.UsageError("--break", "is not a rule of a scenario: give one of "+strings.Join(breakRules(all), ", ")))
		}
	}
	v, err := judge.Open("", "", chosen)
	if err != nil {
		return service.Fail(ctx, p, "", err)
	}
	defer func() { _ = v.Close() }() // always nil
	svc, err := serveVenue(v, judge.Listeners(chosen))
	if err != nil {
		return service.Fail(ctx, p, "", err)
	}
	defer svc.Close() // before the origin, because it calls it
	d := &demo{origin: v, service: svc, out: &cli.Printer{W: p.Out}, paint: p.Painter(p.Out)}
	d.intro(c.Break)
	for i := range chosen {
		if err := d.play(ctx, chosen[i]); err != nil {
			return service.Fail(ctx, p, "", err)
		}
	}
	status := d.summary()
	if d.out.Err != nil {
		return service.Fail(ctx, p, "", cli.OutputError(d.out.Err))
	}
	return status
}

// demoScenarios returns the scenarios of the demo, in the order of docs/spec.md.
func demoScenarios() ([]*kit.Scenario, error) {
	all, err := kit.Load()
	return slices.DeleteFunc(all, func(s *kit.Scenario) bool { return !s.Demo }), err
}

// breakRules returns the rules that --break accepts.
func breakRules(all []*kit.Scenario) []string {
	var rules []string
	for _, s := range all {
		rules = append(rules, s.BreakRules()...)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// demo is one run of the scenarios, with the origin and the service on loopback.
type demo struct {
	origin  *judge.Venue
	service *service.Service
	out     *cli.Printer
	paint   cli.Painter
	begun   time.Time
	rows    []row
}

// row is a line of the final table.
type row struct {
	s     *kit.Scenario
	rec   *kit.Record
	wrong []kit.Mismatch
}

func (d *demo) intro(rule string) {
	d.begun = time.Now()
	d.out.Printf("origin %s, service in this process over TCP\n", d.origin.Addr("http"))
	if rule != "" {
		d.out.Printf("rule %s is broken: %s\n", rule, rules.Sentence(rule))
	}
}

// play runs one scenario and prints it. It returns an error only if ctx ends.
func (d *demo) play(ctx context.Context, s *kit.Scenario) error {
	d.out.Printf("\n%s  %s\n", d.paint.Paint(cli.Bold, s.Name), d.paint.Paint(cli.Dim, strings.Join(s.BreakRules(), " ")))
	d.out.Printf("  %s\n", s.Story)
	if s.Changed != "" {
		d.out.Printf("  %s\n", d.paint.Paint(cli.Yellow, "broken: "+s.Changed))
	}
	tell := &show.Reporter{Out: d.out, Paint: d.paint, Brief: true, Indent: "    "}
	rec := s.Perform(ctx, d.service, d.origin, tell.Event)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	wrong := s.Judge(d.origin, rec)
	d.rows = append(d.rows, row{s, rec, wrong})
	if len(wrong) == 0 {
		d.out.Printf("  %s  the origin saw %s\n", d.paint.Paint(cli.Green, "ok"), cli.Count(len(rec.Requests), "request"))
		return nil
	}
	d.out.Printf("  %s\n", d.paint.Paint(cli.Red, "FAILED"))
	for _, m := range wrong {
		d.out.Printf("    %s: expected %s, got %s\n", m.What, m.Want, m.Got)
	}
	return nil
}

// summary prints the table and the totals, and returns the exit code.
func (d *demo) summary() int {
	failed := 0
	d.out.Printf("\n")
	t := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	table := &cli.Printer{W: t}
	table.Printf("result\tscenario\trules\tattempts\trequests\ttime\n")
	for _, r := range d.rows {
		result := "ok"
		if len(r.wrong) > 0 {
			result = "FAILED"
			failed++
		}
		table.Printf("%s\t%s\t%s\t%d\t%d\t%s\n", result, r.s.Name, strings.Join(r.s.BreakRules(), " "),
			len(r.rec.Finished), len(r.rec.Requests), show.Took(r.rec.Spent))
	}
	_ = t.Flush() // d.out keeps the error
	d.out.Printf("\nWhat a rule means: fetchctl explain --rule H6\n")
	d.out.Printf("\n%s: %d ok, %d failed, %s\n", cli.Count(len(d.rows), "scenario"), len(d.rows)-failed, failed, show.Took(time.Since(d.begun)))
	if failed > 0 {
		return cli.ExitFailed
	}
	return cli.ExitOK
}

// serveVenue runs a service on loopback. Its egress policy allows the listeners of the venue
// and nothing else.
func serveVenue(v *judge.Venue, names []string) (*service.Service, error) {
	ports, err := v.Ports(names)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a port for the service: %w", err)
	}
	return service.Start(server.Config{Fetch: fetch.Config{
		RootCAs:   v.CA(),
		Egress:    fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: ports},
		UserAgent: "fetchd/" + version.String(),
	}}, l)
}
