package main

import (
	"strings"
	"testing"

	"fetchd/internal/cli"
)

func TestPrune(t *testing.T) {
	t.Parallel()
	c := busy(t)
	for _, row := range []struct {
		name string
		args []string
		want string
	}{
		{"too new", []string{"--urls", "fetched", "--before", "1h"}, "Deleted 0 URLs.\n"},
		{"another host", []string{"--urls", "fetched", "--host", "none.test"}, "Deleted 0 URLs.\n"},
		{"an unknown host", []string{"--urls", "fetched", "--host", "exampel.com"}, "Deleted 0 URLs.\nThe frontier has no URL of exampel.com.\n"},
		{"count fetched", []string{"--urls", "fetched", "--dry-run"}, "Would delete 1 URL.\n"},
		{"fetched", []string{"--urls", "fetched", "--host", "http://fetched.test/x"}, "Deleted 1 URL.\n"},
		{"fetched again", []string{"--urls", "fetched"}, "Deleted 0 URLs.\n"},
		{"old outcomes", []string{"--outcomes-before", "1h"}, "Deleted 0 outcomes.\n"},
	} {
		diff(t, row.name, row.want, c.must(append([]string{"prune"}, row.args...)...))
	}
	before := strings.Count(c.must("export", "--what", "fetches"), "\n")
	if before < 2 {
		t.Fatalf("%d outcomes are too few", before)
	}
	if got := c.must("prune", "--outcomes-before", "0s", "--hosts"); strings.HasPrefix(got, "Deleted 0 outcomes") || !strings.HasSuffix(got, " outcomes, 0 hosts, 0 robots.txt, 0 workers.\n") {
		t.Errorf("all outcomes: %q", got)
	}
	if left := strings.Count(c.must("export", "--what", "fetches"), "\n"); left != 1 {
		t.Errorf("%d outcomes are left, want the last one", left)
	}
	if got := c.cli("why", "http://fetched.test/"); got.code != cli.ExitNothing {
		t.Errorf("the deleted URL is still known: %+v", got)
	}
}

func TestPruneUsage(t *testing.T) {
	t.Parallel()
	c := newCrawl(t)
	for _, row := range []struct {
		name string
		args []string
		want string
	}{
		{"nothing", nil, "nothing to delete: give --outcomes-before, --urls or --hosts"},
		{"what is being fetched", []string{"--urls", "dead,fetching"}, `--urls: "fetching" is not a state of URLs to delete`},
		{"an unknown state", []string{"--urls", "done"}, `--urls: "done" is not a state`},
		{"--before without URLs", []string{"--before", "1h", "--hosts"}, "--before: it is about URLs"},
		{"--host without URLs", []string{"--host", "a.test", "--hosts"}, "--host: it is about URLs"},
		{"a negative age", []string{"--urls", "dead", "--before=-1h"}, "--before: -1h0m0s is negative"},
		{"a negative age of outcomes", []string{"--outcomes-before=-1h"}, "--outcomes-before: -1h0m0s is negative"},
		{"no host", []string{"--urls", "dead", "--host", "a b"}, "HOST: "},
	} {
		got := c.cli(append([]string{"prune"}, row.args...)...)
		if got.code != cli.ExitUsage || !strings.Contains(got.err, row.want) || got.out != "" {
			t.Errorf("%s: %+v, want %q", row.name, got, row.want)
		}
	}
}
