package crawl

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/frontier"
	"fetchd/frontier/links"
	"fetchd/frontier/rulebook"
	"fetchd/frontier/scope"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
	"fetchd/test/must"
)

const page = "http://a.test/page"

func newStore(t *testing.T) store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "frontier.db"), store.Config{Delay: time.Hour})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = s.Close() }) // nothing is left to lose
	return s
}

func diff(t *testing.T, what, want, got string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// TestUpdate checks what a run after the other makes of the plan, and what it says about that.
func TestUpdate(t *testing.T) {
	t.Parallel()
	const old = "; runs that have started keep the old value\n"
	const hint = "--max-urls: left out 2 links\nPages that were fetched before are not searched again. To find the links that were left out, " +
		"run \"frontier retry --fetched-before 0s\", then \"frontier crawl%s\".\n"
	s, three, four := newStore(t), 3, 4
	must.Succeed(t, (leftOut{urls: 2, ofHosts: 1}).add(t.Context(), s))
	for _, row := range []struct {
		name  string
		flags Plan
		given []string
		note  string
		plan  string
	}{
		{"URLs that were added", Plan{MaxBytes: 7}, []string{"max-bytes"}, "", `{"seeds":null,"scope":"host","max_bytes":7}`},
		{"the first run", Plan{Seeds: []string{page}, MaxDepth: &three}, []string{"max-depth", "quiet"}, "",
			`{"seeds":["http://a.test/page"],"scope":"host","max_depth":3,"max_bytes":7}`},
		{"without flags", Plan{MaxURLs: 5}, []string{"quiet"}, "", `{"seeds":["http://a.test/page"],"scope":"host","max_depth":3,"max_bytes":7}`},
		{"the same flag", Plan{MaxDepth: &three}, []string{"max-depth"}, "", `{"seeds":["http://a.test/page"],"scope":"host","max_depth":3,"max_bytes":7}`},
		{"a known URL and another", Plan{Seeds: []string{"http://b.test/", page}}, nil, "", `{"seeds":["http://a.test/page","http://b.test/"],"scope":"host","max_depth":3,"max_bytes":7}`},
		{"another budget", Plan{MaxBytes: 5}, []string{"max-bytes"}, "--max-bytes of this crawl was 7 and is now 5" + old,
			`{"seeds":["http://a.test/page","http://b.test/"],"scope":"host","max_depth":3,"max_bytes":5}`},
		{"another budget of URLs", Plan{MaxURLs: 9}, []string{"max-urls"}, "--max-urls of this crawl was not set and is now 9" + old + fmt.Sprintf(hint, ""),
			`{"seeds":["http://a.test/page","http://b.test/"],"scope":"host","max_depth":3,"max_urls":9,"max_bytes":5}`},
		{"another depth and scope", Plan{Exclude: []string{"/x"}, MaxDepth: &four}, []string{"exclude", "max-depth"},
			`--exclude of this crawl was not set and is now ["/x"]` + old + "--max-depth of this crawl was 3 and is now 4" + old + fmt.Sprintf(hint, " --full"),
			`{"seeds":["http://a.test/page","http://b.test/"],"scope":"host","exclude":["/x"],"max_depth":4,"max_urls":9,"max_bytes":5}`},
	} {
		p, note, err := Update(t.Context(), s, &row.flags, row.given)
		if err != nil || p == nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		diff(t, row.name, row.note, note)
		text, err := s.Setting(t.Context(), setting)
		must.Succeed(t, err)
		diff(t, row.name, row.plan, text)
	}
	if _, _, err := Update(t.Context(), newStore(t), &Plan{Scope: scope.All}, []string{"quiet", "scope"}); cli.CodeOf(err) != cli.ExitUsage || !strings.HasPrefix(fmt.Sprint(err), "--scope: is about links") {
		t.Errorf("a scope of URLs that were added: %v, want a usage error", err)
	}
	many := make([]string, maxSeeds)
	for i := range many {
		many[i] = fmt.Sprintf("http://a.test/%d", i)
	}
	if _, _, err := Update(t.Context(), s, &Plan{Seeds: many}, nil); cli.CodeOf(err) != cli.ExitUsage {
		t.Errorf("with %d URLs more: %v, want a usage error", maxSeeds, err)
	}
}

func TestConfigure(t *testing.T) {
	t.Parallel()
	one := 1
	for _, row := range []struct {
		name  string
		plan  Plan
		fault string
		depth int
		out   string // a URL out of the scope
	}{
		{"no limit", Plan{Seeds: []string{page}, Scope: scope.Host}, "", -1, "http://b.test/"},
		{"a depth and a pattern", Plan{Seeds: []string{page}, Scope: scope.All, Exclude: []string{"/x"}, MaxDepth: &one}, "", 1, "http://b.test/x"},
		{"no seeds", Plan{Scope: scope.Host}, "", 0, ""},
		{"a scope that is none", Plan{Scope: "site"}, "--scope: unknown scope", 0, ""},
		{"a pattern that is none", Plan{Scope: scope.Host, Include: []string{"("}}, "--include: ", 0, ""},
		{"another pattern that is none", Plan{Scope: scope.Host, Exclude: []string{"("}}, "--exclude: ", 0, ""},
	} {
		var config frontier.Config
		if err := row.plan.Configure(&config); (err == nil) != (row.fault == "") || err != nil && !strings.HasPrefix(fmt.Sprint(err), row.fault) {
			t.Errorf("%s: %v, want %q", row.name, err, row.fault)
		}
		if d := config.Discovery; (d == nil) != (len(row.plan.Seeds) == 0) {
			t.Errorf("%s: %+v", row.name, d)
		} else if d != nil && (d.MaxDepth != row.depth || d.Scope.Allows(row.out) || !d.Scope.Allows(page)) {
			t.Errorf("%s: %+v, want depth %d, and %s out of its scope", row.name, d, row.depth, row.out)
		}
	}
}

// TestStart checks that the first run has robots.txt files that were read before read again, because they
// may name sitemaps.
func TestStart(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		plan    Plan
		refresh bool
	}{
		{"the first run", Plan{Seeds: []string{page}}, true},
		{"a later run", Plan{Seeds: []string{page}, started: true}, false},
	} {
		s := newStore(t)
		must.Succeed(t, s.SaveRobots(t.Context(), store.Robots{Origin: "http://a.test", Status: 404}))
		must.Succeed(t, errors.Join(Put(t.Context(), s, []string{page}), row.plan.Start(t.Context(), s)))
		state, err := rulebook.Ask(t.Context(), s, "bot", page)
		if err != nil || state.Refresh != row.refresh {
			t.Errorf("%s: robots.txt is to be read again: %v, %v, want %v", row.name, state.Refresh, err, row.refresh)
		}
		var got []string
		for u, err := range s.URLs(t.Context()) {
			must.Succeed(t, err)
			got = append(got, u.Kind.String()+" "+u.URL)
		}
		if want := []string{"page " + page}; !slices.Equal(got, want) {
			t.Errorf("%s: URLs %q, want %q", row.name, got, want)
		}
	}
}

// TestEnd checks what the runs of a crawl leave behind, and that a retry clears it.
func TestEnd(t *testing.T) {
	t.Parallel()
	s, failed := newStore(t), errors.New("the database is away")
	used := fmt.Errorf("%w: 5 bytes", frontier.ErrBudget)
	start := fmt.Sprintf("The run has ended: %v. The URLs that are left stay pending: \"frontier crawl\" continues", used)
	for _, row := range []struct {
		name  string
		plan  Plan
		found frontier.Found
		err   error
		line  string
		want  error
		left  string // after the run
	}{
		{"nothing is left", Plan{}, frontier.Found{Links: 3}, nil, "", nil, ""},
		{"a failure", Plan{}, frontier.Found{Over: 1}, failed, "", failed, "--max-urls: left out 1 link\n"},
		{"bytes", Plan{MaxBytes: 5}, frontier.Found{Over: 2, OverHost: 1, OverBudget: 1}, used, start + " with a larger --max-bytes than 5.\n", nil,
			"--max-urls: left out 3 links\n--max-urls-per-host: left out 1 link\n--max-bytes-per-host: left out 1 URL\n"},
		{"time", Plan{MaxTime: time.Minute}, frontier.Found{}, used, start + " for as long again, or for longer with a larger --max-time than 1m0s.\n", nil,
			"--max-urls: left out 3 links\n--max-urls-per-host: left out 1 link\n--max-bytes-per-host: left out 1 URL\n"},
		{"one of both", Plan{MaxTime: time.Minute, MaxBytes: 5}, frontier.Found{}, used, start + " for as long again, and with a larger --max-bytes than 5 if that is used up.\n", nil,
			"--max-urls: left out 3 links\n--max-urls-per-host: left out 1 link\n--max-bytes-per-host: left out 1 URL\n"},
	} {
		must.Succeed(t, row.plan.Start(t.Context(), s))
		line, err := row.plan.End(t.Context(), s, row.found, row.err)
		if !errors.Is(err, row.want) || row.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", row.name, err, row.want)
		}
		diff(t, row.name, row.line, line)
		text, err := Budgets(t.Context(), s)
		must.Succeed(t, err)
		diff(t, row.name, row.left+row.line, text)
	}
	must.Succeed(t, (&Plan{}).Start(t.Context(), s))
	for _, row := range []struct {
		names []string
		want  string
	}{{[]string{OverURLs, OverHostURLs}, "--max-bytes-per-host: left out 1 URL\n"}, {[]string{OverHosts}, ""}} {
		must.Succeed(t, ClearLeftOut(t.Context(), s, row.names...))
		text, err := Budgets(t.Context(), s)
		must.Succeed(t, err)
		diff(t, fmt.Sprint(row.names), row.want, text)
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		found frontier.Found
		want  string
	}{
		{"nothing", frontier.Found{}, "0 links found, 0 added; 7 bytes of bodies\n"},
		{"some", frontier.Found{Links: 1, Added: 1, OutOfScope: 2, TooDeep: 3}, "1 link found, 1 added, 2 out of scope, 3 too deep; 7 bytes of bodies\n"},
		{"all", frontier.Found{Links: 9, OutOfScope: 1, NoFollow: 2, TooLong: 3, TooDeep: 4, Over: 5, OverHost: 1, OverBudget: 2,
			Cut: map[string]int64{links.CutLinks: 1, links.CutLinkBytes: 2, links.CutWork: 3, links.CutBytes: 4, links.CutToken: 5}},
			"9 links found, 0 added, 1 out of scope, 2 not to be followed, 3 not valid in a sitemap, or too long, 4 too deep; 7 bytes of bodies\n" +
				"--max-urls: left out 5 links\n--max-urls-per-host: left out 1 link\n--max-bytes-per-host: left out 2 URLs\n" +
				"10,000 links of a page: left out links of 1 page\n1 MiB of links: left out links of 2 pages\n128 Mi of work for a page: left out links of 3 pages\n" +
				"16 MiB of a page: left out links of 4 pages\n2 MiB of a tag or text: left out links of 5 pages\n"},
	} {
		diff(t, row.name, row.want, Summary(row.found, 7))
	}
}
