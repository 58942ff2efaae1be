package main

import (
	"context"
	"fmt"
	"time"

	"fetchd/frontier/normal"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// pauseScope is the argument of pause and resume: the whole crawl, or a host.
type pauseScope struct {
	database
	Host string `arg:"" optional:"" help:"A host, or a URL of it. Without it, the whole crawl."`
}

// pauseCmd is "frontier pause".
type pauseCmd struct{ pauseScope }

func (c *pauseCmd) run(ctx context.Context, a *app) int {
	return c.set(ctx, a, store.Store.Pause, func(out *cli.Printer, host string, _, n store.Counts) {
		if host != "" {
			out.Printf("Host %s is paused: none of its URLs is fetched until \"frontier resume %s\".\n", host, host)
			if n.Paused {
				out.Printf("The whole crawl is paused too.\n")
			}
			return
		}
		out.Printf("The crawl is paused: no URL is fetched until \"frontier resume\".\n")
		if n.Fetching > 0 {
			out.Printf("%s in flight, and will end.\n", isAre(n.Fetching, "fetch", "fetches"))
		}
	})
}

// resumeCmd is "frontier resume".
type resumeCmd struct{ pauseScope }

func (c *resumeCmd) run(ctx context.Context, a *app) int {
	return c.set(ctx, a, store.Store.Resume, func(out *cli.Printer, host string, before, n store.Counts) {
		if host != "" {
			out.Printf("Host %s %s.\n", host, resumed(before.HostsPaused > n.HostsPaused))
			if n.Paused {
				out.Printf("But the whole crawl is paused: \"frontier resume\" continues it.\n")
			}
			return
		}
		out.Printf("The crawl %s.\n", resumed(before.Paused))
		if n.HostsPaused > 0 {
			out.Printf("Hosts with a pause of their own: %d.\n", n.HostsPaused)
		}
	})
}

// resumed says what became of a pause.
func resumed(paused bool) string {
	if paused {
		return "is no longer paused"
	}
	return "was not paused"
}

// set pauses or resumes, and prints the result.
func (c *pauseScope) set(ctx context.Context, a *app, change func(store.Store, context.Context, string) error,
	show func(out *cli.Printer, host string, before, n store.Counts)) int {
	host, err := c.Host, error(nil)
	if host != "" {
		host, err = hostKey(c.Host)
	}
	if err != nil {
		return a.end(ctx, err)
	}
	return c.withHost(ctx, a, existing, host, func(s store.Store, note string) error {
		before, err := s.Counts(ctx)
		if err == nil {
			err = change(s, ctx, host)
		}
		if err != nil {
			return err
		}
		n, err := s.Counts(ctx)
		if err != nil {
			return err
		}
		out := &cli.Printer{W: a.Out}
		show(out, host, before, n)
		out.Printf("%s", note)
		return out.End()
	})
}

// maxInFlight is the maximum of --max-in-flight.
const maxInFlight = 10_000

// setCmd is "frontier set".
type setCmd struct {
	database
	Host        string  `arg:"" help:"A host, or a URL of it, known or not."`
	Group       bool    `help:"Set what the hosts of a group of --group-by share. HOST is its name: a registrable domain or an address."`
	Delay       *string `placeholder:"DURATION" help:"Time from the end of a fetch to the start of the next, such as 5s or 500ms; 0s means none, \"default\" that of the crawl. A longer Crawl-delay in robots.txt still applies."`
	MaxInFlight *int    `placeholder:"N" help:"Maximum number of fetches at a time, 1 to 10000. The default is 1."`
}

func (c *setCmd) run(ctx context.Context, a *app) int {
	host, err := hostKey(c.Host)
	if err != nil {
		return a.end(ctx, err)
	}
	params, err := c.params()
	if err != nil {
		return a.end(ctx, err)
	}
	if c.Group {
		if name := normal.Name(host); name != host || normal.Domain(name) != name {
			return a.end(ctx, cli.UsageError("HOST", fmt.Sprintf("%s is not a group: give %s, or an address", host, normal.Domain(name))))
		}
		return c.with(ctx, a, existing, func(s store.Store) error {
			if err := s.SetGroup(ctx, host, params); err != nil {
				return err
			}
			return says(a, "Group", host, params, "")
		})
	}
	return c.withHost(ctx, a, existing, host, func(s store.Store, note string) error {
		if err := s.SetHost(ctx, host, params); err != nil {
			return err
		}
		return says(a, "Host", host, params, note)
	})
}

// says prints what was set.
func says(a *app, what, name string, params store.HostParams, note string) error {
	out := &cli.Printer{W: a.Out}
	if d := params.Delay; d != nil && *d < 0 {
		out.Printf("%s %s: the delay is the default of the crawl.\n", what, name)
	} else if d != nil {
		out.Printf("%s %s: the delay is %v.\n", what, name, *d)
	}
	if n := params.MaxInFlight; n != nil {
		out.Printf("%s %s: at most %d in flight.\n", what, name, *n)
	}
	out.Printf("%s", note)
	return out.End()
}

func (c *setCmd) params() (store.HostParams, error) {
	params := store.HostParams{MaxInFlight: c.MaxInFlight}
	if c.Delay == nil && c.MaxInFlight == nil {
		return params, cli.UsageError("set", "nothing to set: give --delay, --max-in-flight or both")
	}
	if n := c.MaxInFlight; n != nil && (*n < 1 || *n > maxInFlight) {
		return params, cli.UsageError("--max-in-flight", fmt.Sprintf("%d is not from 1 to %d; to stop a host, pause it", *n, maxInFlight))
	}
	if c.Delay == nil {
		return params, nil
	}
	delay := time.Duration(-1)
	if *c.Delay != "default" {
		var err error
		delay, err = time.ParseDuration(*c.Delay)
		if err != nil || delay < 0 {
			return params, cli.UsageError("--delay", fmt.Sprintf("%.40q is not a duration such as 5s, 500ms or 0s, and not \"default\"", *c.Delay))
		}
	}
	params.Delay = &delay
	return params, nil
}
