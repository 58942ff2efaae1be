//go:build linux

package crawls

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/normal"
	"fetchd/frontier/store"
	"fetchd/test/rig"
)

// TestGroups crawls hosts that share a domain or an address, by two workers of which one is killed. No fetch may be early for its group.
// By address, the first fetch of a name does not count. In the long form there are 20,000 URLs on 500 names at 20 addresses.
func TestGroups(t *testing.T) {
	urls := rig.Pick("FETCHD_CRAWLS", 1_000, 20_000)
	for _, row := range []struct {
		kind, by string
	}{
		{"sqlite", store.ByDomain},
		{"postgres", store.ByDomain},
		{"sqlite", store.ByAddress},
		{"postgres", store.ByAddress},
	} {
		t.Run(row.kind+"_"+row.by, func(t *testing.T) {
			ctx := long(t)
			const names, groups = 500, 20
			c := newCrawlOf(ctx, t, databases[row.kind](t), 1, site.Config{Suffix: "test", Addresses: groups})
			host := func(n int) string { return fmt.Sprintf("h%d.g%d", n%names, n%names%groups) }
			var all []string
			for n := range urls {
				at := c.site.URL(host(n), fmt.Sprintf("/p/%d", n))
				if n%50 == 0 { // into another host, of the same group or of another
					at = c.site.URL(host(n), fmt.Sprintf("/go/302/%d?to=%s", n, url.QueryEscape(c.site.URL(host(n+groups*(1+n/50%2)+n/100%2), fmt.Sprintf("/p/%d", n)))))
				}
				all = append(all, at)
			}
			c.add(all)
			group := func(v site.Visit) string {
				if row.by == store.ByDomain {
					return normal.Domain(v.Host)
				}
				return c.site.Address(v.Host).String()
			}
			victim := c.worker("--group-by", row.by)
			c.requests(urls / 4)
			if row.by == store.ByAddress { // a first fetch whose worker is killed does not say where the host is
				rig.Until(ctx, t, "all addresses are known", func() bool { return c.count(`SELECT count(*) FROM hosts WHERE address = ''`) == 0 })
			}
			victim.kill()
			c.worker("--group-by", row.by)
			c.finished(c.worker("--group-by", row.by), c.workers[1])
			if n := c.count(`SELECT count(*) FROM urls WHERE status <> 'fetched'`); n != 0 {
				t.Errorf("%d URLs are not fetched", n)
			}
			early, busy := earlyIn(c.site.Visits(), row.by == store.ByAddress, group)
			for _, v := range early {
				t.Error(v)
			}
			t.Logf("%d requests to %d groups in %v, %d early", c.site.Count(), len(busy), time.Since(c.started).Round(time.Second), len(early))
		})
	}
}

// earlyIn returns the visits that are early for their groups, and the groups. With known, the first visit of each host does not count.
func earlyIn(visits []site.Visit, known bool, group func(site.Visit) string) (early []site.Violation, groups map[string]bool) {
	seen, groups := make(map[string]bool), make(map[string]bool)
	var counted []site.Visit
	for _, v := range visits {
		if known && !seen[v.Host] {
			seen[v.Host] = true
			continue
		}
		v.Host = group(v)
		groups[v.Host] = true
		counted = append(counted, v)
	}
	return site.Early(counted, delay, nil), groups
}
