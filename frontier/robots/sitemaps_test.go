package robots_test

import (
	"fmt"
	"strings"
	"testing"

	"fetchd/frontier/robots"
)

func TestSitemaps(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for n := range robots.MaxSitemaps + 10 {
		fmt.Fprintf(&many, "Sitemap: /%d\n", n)
	}
	for _, row := range []struct {
		name, file, want string // separated by spaces
		n                int    // of sitemaps, instead of want
	}{
		{"one", "Sitemap: http://a.test/map.xml", "http://a.test/map.xml", 0},
		{"among groups", "User-agent: x\nDisallow: /\nsitemap:/1\nUser-agent: *\n\nSITEMAP : /2\r\nAllow: /", "/1 /2", 0},
		{"a byte order mark", "\ufeffSitemap: /1", "/1", 0},
		{"equal ones", "Sitemap: /1\nSitemap: /1", "/1", 0},
		{"without a colon", "Sitemap /1", "/1", 0},
		{"a comment after it", "Sitemap: /1 # x", "/1", 0},
		{"a comment line", "# Sitemap: /1", "", 0},
		{"no value", "Sitemap:\nSitemap: ", "", 0},
		{"another name", "Site-map: /1\nSitemaps: /2", "", 0},
		{"too long", "Sitemap: /" + strings.Repeat("x", 9000) + "\nSitemap: /1", "/1", 0},
		{"too many", many.String(), "", robots.MaxSitemaps},
		{"after the limit of a file", strings.Repeat("#", robots.MaxBytes) + "\nSitemap: /1", "", 0},
		{"no text", "\x00\xff", "", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := robots.Sitemaps([]byte(row.file))
			if text := strings.Join(got, " "); row.n == 0 && text != row.want || row.n > 0 && len(got) != row.n {
				t.Errorf("%d sitemaps, %.200q", len(got), text)
			}
		})
	}
}
