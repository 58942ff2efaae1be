//go:build linux

package crawls

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/test/rig"
)

// TestRobotsBombs checks that hosts with a robots.txt that is expensive to parse neither slow
// down a worker nor increase its memory. It runs before the other tests, because it compares throughput.
func TestRobotsBombs(t *testing.T) {
	ctx := rig.Long(t, limit)
	const peak = 256 << 10 // KiB
	alone, _ := bombed(ctx, t, func(*site.Site) []string { return nil })
	for _, row := range []struct {
		name string
		long bool // only in the long form: 90 hosts need more than 60
		urls func(s *site.Site) []string
	}{
		{"60 hosts", true, func(s *site.Site) []string { return bombs(s, 60) }},
		{"90 hosts", false, func(s *site.Site) []string { return bombs(s, 90) }},
		{"one host that redirects to others", false, redirectedBombs},
	} {
		if row.long && !all() {
			continue
		}
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			alone := alone
			pages, memory := bombed(ctx, t, row.urls)
			if pages*10 < alone*9 { // the machine may be busier than it was for the others: compare once more
				t.Logf("%d pages of good hosts, %d without the others: again", pages, alone)
				alone, _ = bombed(ctx, t, func(*site.Site) []string { return nil })
				pages, memory = bombed(ctx, t, row.urls)
			}
			t.Logf("%d pages of good hosts, %d without the others; peak %d KiB", pages, alone, memory)
			if pages*10 < alone*9 {
				t.Errorf("%d pages of good hosts, want 90 %% of %d", pages, alone)
			}
			if memory > peak {
				t.Errorf("peak of %d KiB, want at most %d", memory, peak)
			}
		})
	}
}

func bombs(s *site.Site, hosts int) []string {
	var urls []string
	for n := range hosts {
		for page := range 3 {
			urls = append(urls, s.URL(fmt.Sprintf("bomb%d", n), fmt.Sprintf("/p/%d", page)))
		}
	}
	return urls
}

// redirectedBombs returns URLs of one host, each of which redirects through five new ones.
func redirectedBombs(s *site.Site) []string {
	var urls []string
	for n := range 60 {
		at := s.URL(fmt.Sprintf("bomb%d-5", n), "/p/1")
		for hop := 4; hop >= 1; hop-- {
			at = s.URL(fmt.Sprintf("bomb%d-%d", n, hop), "/go/302/1?to="+url.QueryEscape(at))
		}
		urls = append(urls, s.URL("bomb", fmt.Sprintf("/go/302/%d?to=%s", n, url.QueryEscape(at))))
	}
	return urls
}

// bombed crawls twenty good hosts and more URLs for a while. It returns how many
// pages of the good hosts were fetched, and the worker's peak memory in KiB.
func bombed(ctx context.Context, t *testing.T, more func(*site.Site) []string) (pages, memory int) {
	t.Helper()
	bomb := "User-agent: *\n" + strings.Repeat("allow:%3a"+strings.Repeat("*", 2000)+"\n", 254)
	s := rig.Site(t, site.Config{Robots: func(host string) (int, string) {
		if strings.HasPrefix(host, "bomb") {
			return 200, bomb
		}
		return 404, ""
	}})
	c := &crawl{T: t, ctx: ctx, site: s, dsn: filepath.Join(t.TempDir(), "frontier.db")}
	urls := more(s)
	for host := range 20 {
		for page := range 60 {
			urls = append(urls, s.URL(fmt.Sprintf("good%d", host), fmt.Sprintf("/p/%d", page)))
		}
	}
	c.add(urls)
	address := rig.FreeAddress(t, "127.0.0.1")
	c.service(address)
	w := start(t, "frontier crawl", "frontier", "crawl", "--db", c.dsn, "--delay", "1s", "-q", "--server", address)
	w.after(ctx, rig.Pick("FETCHD_CRAWLS", 20*time.Second, 30*time.Second))
	memory = w.peak()
	for _, v := range s.Visits() {
		if strings.HasPrefix(v.Host, "good") && strings.HasPrefix(v.Path, "/p/") {
			pages++
		}
	}
	w.Signal(syscall.SIGTERM)
	w.exits(ctx, 130)
	return pages, memory
}

// after waits for d while the process runs.
func (p *process) after(ctx context.Context, d time.Duration) {
	p.Helper()
	select {
	case <-time.After(d):
	case <-p.Gone:
		p.Fatalf("%s ended:\n%s", p.name, p.log.String())
	case <-ctx.Done():
		p.Fatal(context.Cause(ctx))
	}
}

// peak returns the peak of the process's resident memory in KiB.
func (p *process) peak() int {
	p.Helper()
	_, peak, err := p.Resident()
	must(p, err)
	return int(peak >> 10)
}
