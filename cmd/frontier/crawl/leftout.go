package crawl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"fetchd/frontier"
	"fetchd/frontier/links"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// leftOut counts the links that the budgets of URLs have left out, and the URLs that those of hosts have.
type leftOut struct{ urls, hostURLs, ofHosts int64 }

// Names of the settings with the sums over all runs. A link counts each time that it is left out.
const (
	OverURLs     = "crawl_over_urls"
	OverHostURLs = "crawl_over_host_urls"
	OverHosts    = "crawl_over_hosts"
)

// settings returns each count by the name of its setting.
func (l *leftOut) settings() map[string]*int64 {
	return map[string]*int64{OverURLs: &l.urls, OverHostURLs: &l.hostURLs, OverHosts: &l.ofHosts}
}

// leftOutOf returns what one run has left out.
func leftOutOf(f *frontier.Found) leftOut { return leftOut{f.Over, f.OverHost, f.OverBudget} }

// add adds the counts of a run to those of the crawl.
func (l leftOut) add(ctx context.Context, s store.Store) error {
	var errs []error
	for name, n := range l.settings() {
		if *n > 0 {
			errs = append(errs, s.AddToSetting(ctx, name, *n))
		}
	}
	return errors.Join(errs...)
}

// readLeftOut returns the counts of the crawl.
func readLeftOut(ctx context.Context, s store.Store) (l leftOut, err error) {
	for name, to := range l.settings() {
		text, err := s.Setting(ctx, name)
		if err == nil && text != "" {
			*to, err = strconv.ParseInt(text, 10, 64)
		}
		if err != nil {
			return leftOut{}, err
		}
	}
	return l, nil
}

// ClearLeftOut clears counts, because pages or hosts are tried again, and what is still left out counts
// again.
func ClearLeftOut(ctx context.Context, s store.Store, names ...string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, s.SetSetting(ctx, name, "0"))
	}
	return errors.Join(errs...)
}

// String says in lines what was left out.
func (l leftOut) String() string {
	return limitLines([]limit{
		{"--max-urls", l.urls, "link"},
		{"--max-urls-per-host", l.hostURLs, "link"},
		{"--max-bytes-per-host", l.ofHosts, "URL"},
	})
}

// Summary describes what discovery has found in a run, in lines for its end. bytes is the length of all bodies.
func Summary(f frontier.Found, bytes int64) string {
	text := fmt.Sprintf("%s found, %d added", cli.Count(f.Links, "link"), f.Added)
	for _, more := range []struct {
		n    int64
		name string
	}{{f.Requisites, "requisites added"}, {f.Excluded, "requisites excluded"}, {f.OutOfScope, "out of scope"}, {f.NoFollow, "not to be followed"}, {f.TooLong, "not valid in a sitemap, or too long"}, {f.TooDeep, "too deep"},
		{f.Traps.Repeated + f.Traps.Segments, "refused as traps"}} {
		if more.n > 0 {
			text += fmt.Sprintf(", %d %s", more.n, more.name)
		}
	}
	return fmt.Sprintf("%s; %d bytes of bodies\n%v%s", text, bytes, leftOutOf(&f), limitLines([]limit{
		{"pages like the page that links to them, or like many others", f.Traps.Parent + f.Traps.Host, "page"},
		{"10,000 links of a page", f.Cut[links.CutLinks], "page"},
		{"1 MiB of links", f.Cut[links.CutLinkBytes], "page"},
		{"128 Mi of work for a page", f.Cut[links.CutWork], "page"},
		{"16 MiB of a page", f.Cut[links.CutBytes], "page"},
		{"4 MiB of a style sheet", f.Cut[links.CutSheet], "page"},
		{"2 MiB of a tag or text", f.Cut[links.CutToken], "page"},
		{"1,000 requisites and 50 other hosts of a page, and 5 hops from it", f.OverRequisites, "requisite"},
		{"--max-requisite-hosts", f.OverRequisiteHosts, "requisite"},
	}))
}

// limit is a limit that left out links or URLs, or links of pages.
type limit struct {
	name string
	n    int64
	unit string
}

func limitLines(limits []limit) string {
	var b strings.Builder
	for _, l := range limits {
		switch {
		case l.n == 0:
		case l.unit == "page":
			fmt.Fprintf(&b, "%s: left out links of %s\n", l.name, cli.Count(l.n, l.unit))
		default:
			fmt.Fprintf(&b, "%s: left out %s\n", l.name, cli.Count(l.n, l.unit))
		}
	}
	return b.String()
}
