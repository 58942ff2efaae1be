package site_test

import (
	"strings"
	"testing"

	"fetchd/cmd/frontier/site"
)

func TestPages(t *testing.T) {
	t.Parallel()
	s := start(t, site.Config{})
	client := newClient(t, s)
	for _, tc := range []struct {
		name, method, path string
		status             int
		kind               string // of the content
		has                string // in the body
	}{
		{"page", "GET", "/p/7", 200, "text/html; charset=utf-8", "Page 7 of h1.demo.test."},
		{"page with a query", "GET", "/p/7?via=r", 200, "text/html; charset=utf-8", "Page 7 of"},
		{"root", "GET", "/", 200, "text/html; charset=utf-8", "Page 0 of"},
		{"posted", "POST", "/p/7", 200, "text/html; charset=utf-8", "Page 7 of"},
		{"slow", "GET", "/slow/1/8", 200, "text/html; charset=utf-8", "Page 8 of"},
		{"slow, no time", "GET", "/slow/0/8", 200, "text/html; charset=utf-8", "Page 8 of"},
		{"robots", "GET", "/robots.txt", 200, "text/plain; charset=utf-8", "User-agent: *\nAllow: /\n"},
		{"page of no number", "GET", "/p/x", 404, "text/plain; charset=utf-8", "no such path"},
		{"page of two numbers", "GET", "/p/7/8", 404, "text/plain; charset=utf-8", "no such path"},
		{"negative page", "GET", "/p/-1", 404, "text/plain; charset=utf-8", "no such path"},
		{"slow without number", "GET", "/slow/1", 404, "text/plain; charset=utf-8", "no such path"},
		{"slow for too long", "GET", "/slow/3600001/1", 404, "text/plain; charset=utf-8", "no such path"},
		{"slow for less than nothing", "GET", "/slow/-1/1", 404, "text/plain; charset=utf-8", "no such path"},
		{"below robots", "GET", "/robots.txt/1", 404, "text/plain; charset=utf-8", "no such path"},
		{"pages of the origin", "GET", "/_log", 404, "text/plain; charset=utf-8", "no such path"},
		{"cross of the origin", "GET", "/cross/k/302/http/200", 404, "text/plain; charset=utf-8", "no such path"},
		{"redirect of another status", "GET", "/go/200/1?to=/p/1", 404, "text/plain; charset=utf-8", "no such path"},
		{"redirect without number", "GET", "/go/302?to=/p/1", 404, "text/plain; charset=utf-8", "no such path"},
		{"redirect to nowhere", "GET", "/go/302/1", 400, "text/plain; charset=utf-8", "parameter to is missing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			g, err := ask(t.Context(), client, tc.method, s.URL("h1", tc.path))
			if err != nil {
				t.Fatalf("%s %s: %v", tc.method, tc.path, err)
			}
			if g.StatusCode != tc.status || g.Header.Get("Content-Type") != tc.kind || !strings.Contains(g.body, tc.has) {
				t.Errorf("%s %s = %d, %q, %q; want %d, %q, with %q in it", tc.method, tc.path,
					g.StatusCode, g.Header.Get("Content-Type"), g.body, tc.status, tc.kind, tc.has)
			}
		})
	}
}

func TestRobots(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("Disallow: /x\n", 50_000)
	rows := []struct {
		host         string
		say          int // status that the function returns
		body         string
		status       int
		want         string // body
		wantLocation string
	}{
		{"plain.demo.test", 200, "Disallow: /\n", 200, "Disallow: /\n", ""},
		{"zero.demo.test", 0, "Allow: /\n", 200, "Allow: /\n", ""},
		{"missing.demo.test", 404, "no\n", 404, "no\n", ""},
		{"broken.demo.test", 503, "", 503, "", ""},
		{"nothing.demo.test", 204, "dropped", 204, "", ""},
		{"moved.demo.test", 301, "/p/1", 301, "moved\n", "/p/1?via=r"},
		{"choices.demo.test", 300, "many\n", 300, "many\n", ""},
		{"large.demo.test", 200, large, 200, large, ""},
		{"low.demo.test", 101, "x", 500, "site: Config.Robots returned status 101; it must be from 200 to 599\n", ""},
		{"high.demo.test", 1000, "x", 500, "site: Config.Robots returned status 1000; it must be from 200 to 599\n", ""},
	}
	s := start(t, site.Config{Robots: func(host string) (int, string) {
		for _, row := range rows {
			if row.host == host {
				return row.say, row.body
			}
		}
		return 418, host
	}})
	client := newClient(t, s)
	for _, tc := range rows {
		t.Run(tc.host, func(t *testing.T) {
			t.Parallel()
			name, _, _ := strings.Cut(tc.host, ".")
			g := get(t, client, s.URL(strings.ToUpper(name), "/robots.txt"))
			if g.StatusCode != tc.status || g.body != tc.want || g.Header.Get("Location") != tc.wantLocation {
				t.Errorf("robots of %s = %d, %.80q, Location %q; want %d, %.80q, %q", tc.host,
					g.StatusCode, g.body, g.Header.Get("Location"), tc.status, tc.want, tc.wantLocation)
			}
		})
	}
}
