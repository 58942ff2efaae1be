package scope_test

import (
	"strings"
	"testing"

	"fetchd/frontier/scope"
	"fetchd/test/must"
)

func TestAllows(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		by      scope.By
		seeds   string // separated by spaces, as all others
		include string
		exclude string
		yes, no string
	}{
		{"host", scope.Host, "http://a.test/x", "", "", "http://a.test/ https://a.test/y?z", "http://b.a.test/ http://a.test:8080/ http://a.test.evil.test/ http://evil.test/a.test"},
		{"host is the default", "", "http://a.test/x", "", "", "https://a.test/", "http://b.test/"},
		{"host with a port", scope.Host, "http://a.test:8080/", "", "", "http://a.test:8080/x", "http://a.test/x https://a.test/"},
		{"two hosts", scope.Host, "http://a.test/ http://b.test/", "", "", "http://a.test/1 http://b.test/1", "http://c.test/"},
		{"domain", scope.Domain, "http://www.example.co.uk/", "", "", "http://example.co.uk/ https://a.b.example.co.uk:8443/x", "http://other.co.uk/ http://co.uk/ http://badexample.co.uk/"},
		{"domain of a hosting service", scope.Domain, "http://me.github.io/", "", "", "http://me.github.io/x http://a.me.github.io/", "http://you.github.io/"},
		{"domain of an address", scope.Domain, "http://192.0.2.1:80/", "", "", "http://192.0.2.1/x http://192.0.2.1:8080/", "http://192.0.2.2/ http://2.1/"},
		{"domain of an IPv6 address", scope.Domain, "http://[2001:db8::1]/", "", "", "http://[2001:db8::1]/x", "http://[2001:db8::2]/"},
		{"domain of one label", scope.Domain, "http://localhost/", "", "", "http://localhost:8080/x", "http://other/"},
		{"prefix", scope.Prefix, "https://a.test/docs/index.html?x=/y/", "", "", "http://a.test/docs/ https://a.test/docs/a/b?c", "http://a.test/ http://a.test/docs http://a.test/docsy/x http://b.test/docs/ http://a.test:8080/docs/x"},
		{"prefix of a root", scope.Prefix, "http://a.test/", "", "", "http://a.test/x", "http://a.test.b.test/"},
		{"all", scope.All, "http://a.test/", "", "", "http://b.test/ https://c.test:1/", ""},
		{"include", scope.Host, "http://a.test/", `/p/\d+$ ^http://a\.test/q`, "", "http://a.test/p/12 http://a.test/q?x", "http://a.test/p/x http://a.test/ http://b.test/p/1"},
		{"exclude", scope.Host, "http://a.test/", "", `\?.*sort=`, "http://a.test/?page=1", "http://a.test/?a&sort=x"},
		{"exclude wins", scope.All, "http://a.test/", `/p/`, `/p/2`, "http://a.test/p/1", "http://a.test/p/2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, err := scope.New(scope.Config{By: row.by, Places: scope.Places(row.by, strings.Fields(row.seeds)), Include: strings.Fields(row.include), Exclude: strings.Fields(row.exclude)})
			must.Succeed(t, err)
			for _, u := range strings.Fields(row.yes) {
				if !s.Allows(u) {
					t.Errorf("%s is not allowed", u)
				}
			}
			for _, u := range strings.Fields(row.no) {
				if s.Allows(u) {
					t.Errorf("%s is allowed", u)
				}
			}
		})
	}
}

func TestAllowsSitemap(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		by          scope.By
		exclude     []string
		url         string
		want, pages bool // pages: Allows
	}{
		{scope.Host, nil, "https://a.test/sitemap.xml", true, true},
		{scope.Host, []string{"xml"}, "https://a.test/sitemap.xml", true, false},
		{scope.Host, nil, "https://cdn.a.test/sitemap.xml", false, false},
		{scope.Domain, nil, "https://cdn.a.test/sitemap.xml", true, true},
		{scope.Prefix, nil, "https://a.test/sitemap.xml", true, false},
		{scope.Prefix, nil, "https://a.tes/docs/sitemap.xml", false, false},
		{scope.All, nil, "https://b.test/sitemap.xml", true, true},
	} {
		s, err := scope.New(scope.Config{By: row.by, Places: scope.Places(row.by, []string{"http://a.test/docs/"}), Exclude: row.exclude})
		must.Succeed(t, err)
		if got, page := s.AllowsSitemap(row.url), s.Allows(row.url); got != row.want || page != row.pages {
			t.Errorf("%s %s: sitemap %t, page %t", row.by, row.url, got, page)
		}
	}
}

func TestNewErrors(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, want string
		config     scope.Config
	}{
		{"scope", "unknown scope", scope.Config{By: "site"}},
		{"a bad pattern", "is not valid", scope.Config{Include: []string{"("}}},
		{"a pattern that RE2 does not have", "is not valid", scope.Config{Exclude: []string{"(?=x)"}}},
		{"a long pattern", "1025 bytes", scope.Config{Exclude: []string{strings.Repeat("x", scope.MaxPatternBytes+1)}}},
		{"many patterns", "101 patterns", scope.Config{Include: make([]string, scope.MaxPatterns+1)}},
	} {
		if _, err := scope.New(row.config); err == nil || !strings.Contains(err.Error(), row.want) { //nolint:forbidigo // the text is what a user reads
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}

func TestNarrow(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		config scope.Config
		want   bool
	}{
		{scope.Config{}, false},
		{scope.Config{By: scope.All}, false},
		{scope.Config{By: scope.Prefix}, true},
		{scope.Config{Include: []string{"x"}}, true},
		{scope.Config{Exclude: []string{"x"}}, true},
	} {
		s, err := scope.New(row.config)
		if err != nil || s.Narrow() != row.want {
			t.Errorf("%+v: Narrow = %t, %v", row.config, s.Narrow(), err)
		}
	}
}
