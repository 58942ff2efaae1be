package main

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"fetchd/frontier"
	"fetchd/frontier/store"
)

// leftOut counts the links that the budgets of URLs have left out, and the URLs that those of hosts have.
type leftOut struct{ urls, hostURLs, ofHosts int64 }

// Names of the settings with the sums over all runs. A link counts each time that it is left out.
const (
	overURLs     = "crawl_over_urls"
	overHostURLs = "crawl_over_host_urls"
	overHosts    = "crawl_over_hosts"
)

// addLeftOut adds the counts of a run to those of the crawl.
func addLeftOut(ctx context.Context, s store.Store, f frontier.Found) error {
	var errs []error
	for name, n := range map[string]int64{overURLs: f.Over, overHostURLs: f.OverHost, overHosts: f.OverBudget} {
		if n > 0 {
			errs = append(errs, s.AddToSetting(ctx, name, n))
		}
	}
	return errors.Join(errs...)
}

// readLeftOut returns the counts of the crawl.
func readLeftOut(ctx context.Context, s store.Store) (leftOut, error) {
	var l leftOut
	for name, to := range map[string]*int64{overURLs: &l.urls, overHostURLs: &l.hostURLs, overHosts: &l.ofHosts} {
		text, err := s.Setting(ctx, name)
		if err != nil {
			return leftOut{}, err
		}
		if text == "" {
			continue
		}
		if *to, err = strconv.ParseInt(text, 10, 64); err != nil {
			return leftOut{}, err
		}
	}
	return l, nil
}

// clearLeftOut clears counts, because pages or hosts are tried again, and what is still left out counts
// again.
func clearLeftOut(ctx context.Context, s store.Store, names ...string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, s.SetSetting(ctx, name, "0"))
	}
	return errors.Join(errs...)
}

// text says in lines what was left out.
func (l leftOut) text() string {
	var b strings.Builder
	writeLimits(&b, []limit{
		{"--max-urls", l.urls, "link"},
		{"--max-urls-per-host", l.hostURLs, "link"},
		{"--max-bytes-per-host or --max-time-per-host", l.ofHosts, "URL"},
	})
	return b.String()
}
