package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"fetchd/cmd/frontier/show"
	"fetchd/frontier/store"
)

// busy returns a crawl with a URL in each status.
func busy(t *testing.T) *fixture {
	t.Helper()
	c := newCrawl(t, "http://fetched.test/")
	c.fetch(store.Fetch{Status: store.Fetched, FetchedParams: store.FetchedParams{HTTPStatus: 200, Attempts: 1}})
	for _, f := range []store.Fetch{
		failedIn("http_server_error", store.Failed), failedIn("http_server_error", store.Dead), failedIn("dns_not_found", store.Dead), failedIn("", store.Dead),
	} {
		url := fmt.Sprintf("http://%s.%s.test/", f.ErrorClass, f.Status)
		if f.ErrorClass == "" {
			url = "http://none.test/"
		}
		c.must("add", url)
		c.fetch(f)
	}
	c.must("add", "http://fetching.test/")
	c.store(func(s store.Store) error {
		_, err := s.Claim(t.Context(), store.ClaimParams{})
		return err
	})
	c.must("add", "http://pending.test/1", "http://pending.test/2")
	c.store(func(s store.Store) error { return s.Block(t.Context(), "pending.test", time.Hour) })
	c.must("pause", "dns_not_found.dead.test")
	return c
}

const busyTable = `URLs
  pending             2  Pending
  fetching            1  InProgress
  fetched             1  Completed
  failed              1  to be tried again later
  dead                3  Failed: not to be tried again
  total               8
Hosts
  due                 1  a claim looks at them now
  waiting             2  for their delay, or for a block to end
  in flight           1
  blocked             1  after a 429 or 503
  paused              1
  total               7
`

func TestStatus(t *testing.T) {
	t.Parallel()
	c := busy(t)
	text := c.must("status")
	for _, line := range strings.Split(busyTable, "\n") {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] != "due" && fields[0] != "waiting" && !strings.Contains(text, line+"\n") {
			t.Errorf("status lacks %q:\n%s", line, text)
		}
	}
	var got show.Status
	must(t, json.Unmarshal([]byte(c.must("status", "--json")), &got))
	if got, want := fmt.Sprintf("%+v %v", got.URLs, got.Classes), "{Pending:2 Fetching:1 Fetched:1 Failed:1 Dead:3 Total:8 Scheduled:0} map[]"; got != want {
		t.Errorf("status --json: URLs and classes %s, want %s", got, want)
	}
	if h := got.Hosts; h.Total != 7 || h.InFlight != 1 || h.Blocked != 1 || h.Paused != 1 || got.Paused {
		t.Errorf("status --json: hosts %+v, paused %v, want 7, 1 in flight, 1 blocked, 1 paused", h, got.Paused)
	}
}

func TestStatusScheduled(t *testing.T) {
	t.Parallel()
	c := newCrawl(t, "http://a.test/")
	c.fetch(store.Fetch{Status: store.Fetched, FetchedParams: store.FetchedParams{HTTPStatus: 200, RecrawlIn: time.Hour}})
	c.must("add", "http://b.test/")
	c.fetch(store.Fetch{Status: store.Fetched, FetchedParams: store.FetchedParams{HTTPStatus: 200}})
	c.must("add", "http://c.test/")
	if got, want := c.must("status"), "\n  fetched             2  Completed; 1 will be fetched again\n"; !strings.Contains(got, want) {
		t.Errorf("status lacks %q:\n%s", want, got)
	}
	if got, want := c.must("status", "--json"), `"scheduled":1`; !strings.Contains(got, want) {
		t.Errorf("status --json lacks %q: %s", want, got)
	}
}

func TestStatusPaused(t *testing.T) {
	t.Parallel()
	c := newCrawl(t)
	c.must("pause")
	if got, want := c.must("status"), "The crawl is paused: \"frontier resume\" continues it.\n"; !strings.HasSuffix(got, want) {
		t.Errorf("status of a paused crawl lacks %q:\n%s", want, got)
	}
	diff(t, "JSON", `{"urls":{"pending":0,"fetching":0,"fetched":0,"failed":0,"dead":0,"total":0,"scheduled":0},`+
		`"waiting":{"backing_off":0,"crawl_paused":0,"host_blocked":0,"host_delay":0,"host_in_flight":0,"host_paused":0,"its_turn":0,"robots_unreachable":0},"hosts":{"total":0,"due":0,"waiting":0,"in_flight":0,"blocked":0,"paused":0},"origins":{"deferred":0,"first":[]},"workers":[],"paused":true,"traps":{"repeated":0,"segments":0,"session_ids":0,"same_as_parent":0,"same_on_host":0,"patterns":[]}}`+"\n", c.must("status", "--json"))
}

func TestStatusClasses(t *testing.T) {
	t.Parallel()
	c := busy(t)
	_, got, _ := strings.Cut(c.must("status", "--classes"), "Error")
	diff(t, "classes", ` classes                 failed        dead
  (none)                           0           1
  dns_not_found                    0           1
  http_server_error                1           1
`, got)
	if got, want := c.must("status", "--classes", "--json"), `"classes":{"":{"failed":0,"dead":1},"dns_not_found":{"failed":0,"dead":1},"http_server_error":{"failed":1,"dead":1}}}`; !strings.HasSuffix(got, want+"\n") {
		t.Errorf("status --classes --json = %q, want %q at its end", got, want)
	}
}
