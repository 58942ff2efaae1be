package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"text/tabwriter"
	"time"

	"fetchd/fetch"
	"fetchd/internal/origin"
	"fetchd/server"
)

// demoCmd is "fetchctl demo".
type demoCmd struct {
	List  bool   `xor:"what" help:"List the scenarios with their rules, and run none."`
	Break string `xor:"what" placeholder:"RULE" help:"Run the scenarios about this rule against an origin that gives it no occasion. The demo must then fail."`
}

// run runs the demo, and returns the exit status.
func (c *demoCmd) run(ctx context.Context, a *app) int {
	if c.List {
		return a.demoList(ctx)
	}
	chosen := scenarios
	if c.Break != "" {
		c.Break = strings.ToUpper(c.Break)
		if chosen = broken(scenarios, c.Break); len(chosen) == 0 {
			return a.fail(ctx, "", &usageError{"--break", "is no rule of a scenario: give one of " + strings.Join(rulesOf(scenarios), ", ")})
		}
	}
	s, err := newStage()
	if err != nil {
		return a.fail(ctx, "", err)
	}
	defer s.close()
	d := &demo{stage: s, out: &printer{w: a.out}, paint: a.painterFor(a.out)}
	d.intro(c.Break)
	for i := range chosen {
		if err := d.play(ctx, &chosen[i]); err != nil {
			return a.fail(ctx, "", err)
		}
	}
	status := d.summary()
	if d.out.err != nil {
		return a.fail(ctx, "", &outputError{d.out.err})
	}
	return status
}

// stage is the origin and the service, both on loopback.
type stage struct {
	origin  *origin.Origin
	service *service
}

// stageListeners are the origin's listeners that the service may reach.
var stageListeners = []string{"http", "http-other", "https", "tls-expired"}

// newStage starts both. The caller closes it.
func newStage() (*stage, error) {
	o, err := origin.Start(origin.Config{})
	if err != nil {
		return nil, fmt.Errorf("start the origin: %w", err)
	}
	ports, err := portsOf(o)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		_ = o.Close() // always nil
		return nil, fmt.Errorf("open a port for the service: %w", err)
	}
	svc, err := serve(server.Config{Fetch: fetch.Config{
		RootCAs:   o.CA(),
		Egress:    fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: ports},
		UserAgent: "fetchd/" + version(),
	}}, l, "passthrough:///"+l.Addr().String(), plaintext)
	if err != nil {
		_ = o.Close() // always nil
		return nil, err
	}
	return &stage{o, svc}, nil
}

func portsOf(o *origin.Origin) ([]uint16, error) {
	var ports []uint16
	for _, name := range stageListeners {
		addr, err := netip.ParseAddrPort(o.Addr(name))
		if err != nil {
			_ = o.Close() // always nil
			return nil, fmt.Errorf("the origin's listener %s: %w", name, err)
		}
		ports = append(ports, addr.Port())
	}
	return ports, nil
}

// close ends both, the service first: it is the one that calls.
func (s *stage) close() {
	s.service.close()
	_ = s.origin.Close() // always nil
}

// demo is one run over the scenarios.
type demo struct {
	*stage
	out   *printer
	paint painter
	begun time.Time
	rows  []row
}

// row is a line of the table at the end.
type row struct {
	s     *scenario
	rec   *record
	wrong []mismatch
}

func (d *demo) intro(rule string) {
	d.begun = time.Now()
	d.out.printf("origin %s, service in this process over TCP\n", d.origin.Addr("http"))
	if rule != "" {
		d.out.printf("rule %s is broken: %s\n", rule, ruleSentences[rule])
	}
}

// play runs one scenario and tells it. An error is that of an interrupted run.
func (d *demo) play(ctx context.Context, s *scenario) error {
	d.out.printf("\n%s  %s\n", d.paint.paint(bold, s.name), d.paint.paint(dim, strings.Join(s.rules(), " ")))
	d.out.printf("  %s\n", s.story)
	if s.changed != "" {
		d.out.printf("  %s\n", d.paint.paint(yellow, "broken: "+s.changed))
	}
	tell := &reporter{out: d.out, paint: d.paint, brief: true, indent: "    "}
	rec := d.perform(ctx, s, tell.event)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	wrong := s.judge(d.origin, rec)
	d.rows = append(d.rows, row{s, rec, wrong})
	if len(wrong) == 0 {
		d.out.printf("  %s  the origin saw %s\n", d.paint.paint(green, "ok"), count(len(rec.requests), "request"))
		return nil
	}
	d.out.printf("  %s\n", d.paint.paint(red, "FAILED"))
	for _, m := range wrong {
		d.out.printf("    %s: expected %s, got %s\n", m.what, m.want, m.got)
	}
	return nil
}

// summary prints the table and the totals, and returns the exit status.
func (d *demo) summary() int {
	failed := 0
	d.out.printf("\n")
	t := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	table := &printer{w: t}
	table.printf("result\tscenario\trules\tattempts\trequests\ttime\n")
	for _, r := range d.rows {
		result := "ok"
		if len(r.wrong) > 0 {
			result = "FAILED"
			failed++
		}
		table.printf("%s\t%s\t%s\t%d\t%d\t%s\n", result, r.s.name, strings.Join(r.s.rules(), " "),
			len(r.rec.finished), len(r.rec.requests), took(r.rec.spent))
	}
	_ = t.Flush() // d.out keeps the error
	d.out.printf("\n%s: %d ok, %d failed, %s\n", count(len(d.rows), "scenario"), len(d.rows)-failed, failed, took(time.Since(d.begun)))
	if failed > 0 {
		return exitNotHeld
	}
	return exitOK
}

// demoList prints the scenarios.
func (a *app) demoList(ctx context.Context) int {
	p := a.painterFor(a.out)
	for i := range scenarios {
		s := &scenarios[i]
		if _, err := fmt.Fprintf(a.out, "%s  %s\n  %s\n", p.paint(bold, s.name), p.paint(dim, strings.Join(s.rules(), " ")), s.story); err != nil {
			return a.fail(ctx, "", &outputError{err})
		}
	}
	return exitOK
}
