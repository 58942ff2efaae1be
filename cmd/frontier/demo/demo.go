// Package demo is the demo of frontier: it crawls a site of many hosts on loopback, and checks the result.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/cmd/frontier/worker"
	"fetchd/fetch"
	"fetchd/frontier"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
	"fetchd/server"
)

const (
	hosts = 300
	delay = 100 * time.Millisecond
)

// Run crawls the site with the pace of c, and checks the result. It writes the check to w.
func Run(ctx context.Context, c *worker.Config, w io.Writer) error {
	d := &demo{out: &cli.Printer{W: w}, want: make(map[string]int)}
	if err := d.run(ctx, c); err != nil {
		return err
	}
	return d.out.End()
}

// demo is one run of the demo.
type demo struct {
	out  *cli.Printer
	site *site.Site
	urls []string
	want map[string]int // number of URLs by status or error class
}

func (d *demo) run(ctx context.Context, c *worker.Config) (err error) {
	dir, err := os.MkdirTemp("", "frontier-demo-")
	if err != nil {
		return cli.OutputError(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if d.site, err = site.Start(site.Config{Robots: robotsOf}); err != nil {
		return err
	}
	defer func() { _ = d.site.Close() }() // nothing is left to lose
	c.Policy = frontier.DefaultPolicy()
	c.Policy.MaxURLRetries, c.Policy.RetryDelay = 1, time.Second
	c.Accept = nil
	s, err := store.Open(ctx, filepath.Join(dir, "frontier.db"), store.Config{Delay: delay})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	d.plan()
	if _, err := s.Put(ctx, store.Entries(d.urls...), store.Limits{}); err != nil {
		return err
	}
	d.out.Printf("%d URLs of %d hosts on %s, %v between the fetches of a host\n", len(d.urls), hosts, d.site.Addr(), delay)
	services, stop, err := worker.Inside(server.Config{Fetch: fetch.Config{
		Resolver: d.site.Resolver(),
		Egress:   fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: []uint16{uint16(d.site.Port())}}, //nolint:gosec // a port
	}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer stop()
	if _, err := c.Work(ctx, s, services); err != nil {
		return err
	}
	return d.check(ctx, s)
}

// robotsOf forbids one page of every seventh host.
func robotsOf(host string) (int, string) {
	var n int
	if _, err := fmt.Sscanf(host, "site-%d.", &n); err == nil && n%7 == 0 {
		return 200, "User-agent: *\nDisallow: /p/3\n"
	}
	return 404, ""
}

// plan chooses the URLs and how each must end.
func (d *demo) plan() {
	add := func(end, host, path string) {
		d.urls = append(d.urls, d.site.URL(host, path))
		d.want[end]++
	}
	fetched := string(store.Fetched)
	for n := range hosts {
		host := fmt.Sprintf("site-%d", n)
		add(fetched, host, "/p/1")
		add(fetched, host, "/p/2")
		if n%7 == 0 {
			add(frontier.ClassRobotsDisallowed, host, "/p/3")
		}
		add(fetched, host, "/go/302/4?to=%2Fp%2F5")
		// Two hosts redirect to the same page of a third host.
		final := d.site.URL(fmt.Sprintf("site-%d", (n/2+151)%hosts), "/p/6")
		add(fetched, host, "/go/301/6?to="+url.QueryEscape(final))
		if n%3 == 0 {
			add(fetched, host, fmt.Sprintf("/s/demo-%d/503/200", n))
		}
		if n%10 == 0 {
			add("http_client_error", host, "/nothing")
		}
		if n%50 == 0 {
			add("dns_not_found", fmt.Sprintf("gone-%d", n), "/p/1")
		}
	}
}

// check compares the result of the crawl with the plan and with the journal of the site.
func (d *demo) check(ctx context.Context, s store.Store) error {
	got := make(map[string]int)
	rows := make(map[string]bool)
	for u, err := range s.URLs(ctx) {
		if err != nil {
			return err
		}
		rows[u.URL] = true
		end := u.ErrorClass
		end = cmp.Or(end, string(u.Status))
		got[end]++
	}
	failed := false
	verdict := func(ok bool, format string, args ...any) {
		mark := "ok  "
		if !ok {
			mark, failed = "FAIL", true
		}
		d.out.Printf("%s  %s\n", mark, fmt.Sprintf(format, args...))
	}
	for _, end := range []string{string(store.Fetched), frontier.ClassRobotsDisallowed, "http_client_error", "dns_not_found"} {
		verdict(got[end] == d.want[end], "%-20s %5d of %d", end, got[end], d.want[end])
	}
	owned := 0
	for n := range hosts / 2 {
		if rows[d.site.URL(fmt.Sprintf("site-%d", (n+151)%hosts), "/p/6?via=r")] {
			owned++
		}
	}
	verdict(owned == hosts/2, "%d of %d pages that two URLs redirect to are stored once", owned, hosts/2)
	visits := d.site.Visits()
	early := site.Early(visits, delay, startsTurn)
	verdict(len(early) == 0, "%d requests at the origin, %d of them too early for their host", len(visits), len(early))
	for i, v := range early {
		if i < 3 {
			d.out.Printf("      %s\n", v)
		}
	}
	if failed {
		return cli.PrintedError(cli.ExitFailed, "the demo failed")
	}
	return nil
}

// startsTurn reports whether a request starts a host's turn. A retry within a fetch does not, and
// neither does a redirect within an origin.
func startsTurn(v site.Visit) bool {
	return !v.Again && !strings.HasPrefix(v.Path, "/p/5")
}
