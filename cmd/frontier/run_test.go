package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier"
	"fetchd/frontier/why"
	"fetchd/internal/cli"
	"fetchd/test/wait"
)

// TestAddAndRun follows the steps of a new user.
func TestAddAndRun(t *testing.T) {
	t.Parallel()
	s := startSite(t, site.Config{})
	c := &fixture{t, filepath.Join(t.TempDir(), "frontier.db")}
	got := c.run(inside(s.Port()))
	if want := fmt.Sprintf("no database at %s: create it with \"frontier add\"", c.db); got.code != cli.ExitDatabase || !strings.Contains(got.err, want) {
		t.Fatalf("run before add: exit status %d, %q, want %d and %q", got.code, got.err, cli.ExitDatabase, want)
	}
	c.must("add", at(s, "/p/1"), at(s, "/p/2"), at(s, "/nothing"))
	got = c.run(inside(s.Port()))
	if want := "\n2 completed, 1 failed, 0 retries in "; got.code != cli.ExitOK || got.out != "" || !strings.Contains(got.err, want) {
		t.Fatalf("run: exit status %d, %q, %q, want 0, nothing and %q", got.code, got.out, got.err, want)
	}
	if got, want := c.statuses(), map[string]int{"fetched": 2, "dead http_client_error": 1}; !maps.Equal(got, want) {
		t.Errorf("URLs = %v, want %v", got, want)
	}
	if got := c.must("why", at(s, "/p/1")); !strings.Contains(got, "robots.txt     allowed by line 2, Allow: / (read ") {
		t.Errorf("why does not tell what the worker read of robots.txt:\n%s", got)
	}
	before := s.Count()
	if got := c.run(inside(s.Port()), "--quiet"); got.code != cli.ExitOK || !strings.HasPrefix(got.err, "0 completed, 0 failed, 0 retries in ") || s.Count() != before {
		t.Errorf("a run with nothing to do: exit status %d, %q, %d requests", got.code, got.err, s.Count()-before)
	}
}

func TestAddressGuard(t *testing.T) {
	t.Parallel()
	s := startSite(t, site.Config{})
	c := newCrawl(t, at(s, "/p/1"))
	port := strconv.Itoa(s.Port())
	for _, flags := range [][]string{nil, {"--ignore-robots"}, {"--egress-allow-port", port}, {"--egress-allow-cidr", "127.0.0.0/8"}} {
		got := c.run([]string{"--delay", "1ms", "--quiet"}, flags...)
		if got.code != cli.ExitNothing || s.Count() != 0 {
			t.Errorf("%q: exit status %d, %d requests, want %d and none: %s", flags, got.code, s.Count(), cli.ExitNothing, got.err)
		}
		if want := "target_blocked: 1 failed: " + why.Remedy("target_blocked") + "\n0 completed, 1 failed, 0 retries in "; !strings.HasPrefix(got.err, want) {
			t.Errorf("%q: %q, want %q", flags, got.err, want)
		}
		if got, want := c.statuses(), map[string]int{"dead target_blocked": 1}; !maps.Equal(got, want) {
			t.Errorf("%q: URLs = %v, want %v", flags, got, want)
		}
		c.must("retry")
	}
	if got := c.run(inside(s.Port())); got.code != cli.ExitOK || !maps.Equal(c.statuses(), map[string]int{"fetched": 1}) {
		t.Errorf("with both flags: exit status %d, URLs = %v, want 0 and one fetched: %s", got.code, c.statuses(), got.err)
	}
}

func TestOutcomesAndBodies(t *testing.T) {
	t.Parallel()
	s := startSite(t, site.Config{})
	dir := t.TempDir()
	bodies, outcomes := filepath.Join(dir, "pages"), filepath.Join(dir, "outcomes.jsonl")
	c := newCrawl(t, at(s, "/p/1"), at(s, "/nothing"))
	if err := os.WriteFile(outcomes, []byte(`{"cut`), 0o600); err != nil { // by an earlier run
		t.Fatal(err)
	}
	if got := c.run(inside(s.Port()), "--outcomes", outcomes, "--bodies", bodies, "--keep-header", "etag", "--keep-header", "Server"); got.code != cli.ExitOK || got.out != "" {
		t.Fatalf("exit status %d, %q, %q", got.code, got.out, got.err)
	}
	lines := linesOf(t, outcomes)
	if len(lines) != 3 || lines[0] != `{"cut` {
		t.Fatalf("outcomes = %q, want the line that was there and two more", lines)
	}
	records := decode(t, lines[1:])
	p, missing := records[at(s, "/p/1")], records[at(s, "/nothing")]
	if p.Status != "fetched" || p.HTTPStatus != 200 || p.Attempts != 1 || p.Time.IsZero() {
		t.Errorf("outcome of a page = %+v", p)
	}
	checkContent(t, p)
	if missing.Status != "dead" || missing.HTTPStatus != 404 || missing.ErrorClass != "http_client_error" || missing.BodySHA256 != "" {
		t.Errorf("outcome of what is not there = %+v", missing)
	}
	checkBodies(t, bodies, p)

	c.must("retry", "--fetched-before", "0s")
	got := c.run(inside(s.Port()), "--outcomes", "-")
	again := decode(t, strings.Split(strings.TrimSuffix(got.out, "\n"), "\n"))
	if r := again[at(s, "/p/1")]; got.code != cli.ExitOK || len(again) != 1 || r.HTTPStatus != 304 || r.Status != "fetched" {
		t.Errorf("fetched again: exit status %d, %+v, want one page, fetched with 304", got.code, again)
	}
}

// checkContent checks that the outcome of a page has its content type, and of the kept headers those
// that were sent.
func checkContent(t *testing.T, p frontier.Record) {
	t.Helper()
	if p.ContentType != "text/html" || p.Charset != "utf-8" || !strings.HasPrefix(string(p.Headers), `{"Etag":["`) || strings.Contains(string(p.Headers), "Server") {
		t.Errorf("content of a page = %q, %q, %s", p.ContentType, p.Charset, p.Headers)
	}
}

// checkBodies checks that the body of a page and the empty body are stored under their digests.
func checkBodies(t *testing.T, dir string, p frontier.Record) {
	t.Helper()
	empty := sha256.Sum256(nil)
	want := map[string]bool{bodyName(hex.EncodeToString(empty[:])): true, bodyName(p.BodySHA256): true}
	if got := files(t, dir); !maps.Equal(got, want) {
		t.Errorf("bodies = %v, want %v", got, want)
	}
	body, err := os.ReadFile(filepath.Join(dir, bodyName(p.BodySHA256)))
	if sum := sha256.Sum256(body); err != nil || hex.EncodeToString(sum[:]) != p.BodySHA256 || int64(len(body)) != p.Bytes {
		t.Errorf("the body has %d bytes and the digest %x, want %d and %s (%v)", len(body), sum, p.Bytes, p.BodySHA256, err)
	}
}

func linesOf(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// decode returns the outcomes of lines, by URL.
func decode(t *testing.T, lines []string) map[string]frontier.Record {
	t.Helper()
	records := make(map[string]frontier.Record)
	for _, line := range lines {
		var r frontier.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		records[r.URL] = r
	}
	return records
}

// bodyName returns the name of a body as documented.
func bodyName(digest string) string { return fmt.Sprintf("sha256/%.2s/%s", digest, digest) }

// files returns the names below a directory.
func files(t *testing.T, dir string) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names[name] = true
		}
		return err
	})
	must(t, err)
	return names
}

// TestResultsThatCannotBeWritten checks that nothing is fetched if a place cannot take the results.
func TestResultsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	s := startSite(t, site.Config{})
	c := newCrawl(t, at(s, "/p/1"))
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for flag, told := range map[string]string{"--bodies": "--bodies: store bodies: ", "--warc": "--warc: store warc: ", "--outcomes": "write: open "} {
		got := c.run(inside(s.Port()), flag, file+map[string]string{"--outcomes": "/outcomes"}[flag])
		if got.code != cli.ExitOutput || !strings.Contains(got.err, told) || strings.Contains(got.err, "completed") || s.Count() != 0 {
			t.Errorf("%s: exit status %d, %q, %d requests; want %d, %q and none", flag, got.code, got.err, s.Count(), cli.ExitOutput, told)
		}
	}
}

// TestReaderThatGoes has a reader of the outcomes that goes away early, like head.
func TestReaderThatGoes(t *testing.T) {
	t.Parallel()
	s := startSite(t, site.Config{})
	var pages []string // more than are recorded together
	for n := range 100 {
		pages = append(pages, at(s, fmt.Sprintf("/p/%d", n)))
	}
	c := newCrawl(t, pages...)
	r, w := io.Pipe()
	_ = r.Close()
	var err strings.Builder
	code := run(t.Context(), append([]string{"crawl", "--outcomes", "-", "--db", c.db}, inside(s.Port())...), func(string) string { return "" },
		cli.Streams{In: strings.NewReader(""), Out: w, Err: &err})
	if code != cli.ExitOK || !strings.Contains(err.String(), " completed, 0 failed") {
		t.Errorf("exit status %d, %q, want 0 and the sum", code, err.String())
	}
	if got := c.statuses(); got["pending"] == 0 || got["fetched"] == 0 || got["fetching"] != 0 {
		t.Errorf("URLs = %v, want some fetched and some pending", got)
	}
}

func TestMetricsOfRun(t *testing.T) {
	t.Parallel()
	s := startSite(t, site.Config{})
	c := newCrawl(t, at(s, "/p/1"))
	b := c.start(append(inside(s.Port()), "--endless", "--metrics-addr", "127.0.0.1:0", "--outcomes", "-")...)
	address := strings.TrimPrefix(b.err.until(t, "serving metrics at "), "serving metrics at ")
	b.out.until(t, "{")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	must(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, want := range []string{`frontier_outcomes_total{error_class="",status="fetched"} 1`, "\nfrontier_urls{", "\ngo_goroutines "} {
		if err := wait.Poll(ctx, 10*time.Millisecond, func() (bool, error) { // URLs are counted next to the first fetch
			response, err := client.Do(request)
			if err != nil {
				return false, err
			}
			text, err := io.ReadAll(response.Body)
			return strings.Contains(string(text), want), errors.Join(err, response.Body.Close())
		}); err != nil {
			t.Errorf("%s has no %q: %v", address, want, err)
		}
	}
	c.must("add", at(s, "/p/2"))
	b.out.until(t, "{") // an endless run fetches later URLs too
	b.end(cli.ExitInterrupted)
}

// TestInterrupted stops a run in the middle of a fetch.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		flags []string
		late  bool // the origin answers only after the run's end
		want  map[string]int
		sum   string
	}{
		{"the fetch ends in time", nil, false, map[string]int{"fetched": 1, "pending": 1}, "1 completed, 0 failed, 0 retries in "},
		{"the fetch does not", []string{"--drain-time", "0s"}, true, map[string]int{"pending": 2}, "0 completed, 0 failed, 0 retries in "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			started, release := make(chan struct{}, 10), make(chan struct{})
			origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				started <- struct{}{}
				select {
				case <-release:
				case <-r.Context().Done():
				}
				w.Header().Set("Content-Type", "text/html")
				_, _ = io.WriteString(w, "a page")
			}))
			defer origin.Close()
			u, err := url.Parse(origin.URL)
			must(t, err)
			port, err := strconv.Atoi(u.Port())
			must(t, err)
			c := newCrawl(t, origin.URL+"/1", origin.URL+"/2")
			b := c.start(append(append(inside(port), "--ignore-robots"), tt.flags...)...)
			<-started
			b.stop()
			if !tt.late {
				b.err.until(t, "stopping: ")
				close(release)
			}
			b.err.until(t, tt.sum)
			diff(t, "last line", "frontier: interrupted", b.err.until(t, "frontier: "))
			b.end(cli.ExitInterrupted)
			if got := c.statuses(); !maps.Equal(got, tt.want) {
				t.Errorf("URLs = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestAbortCrawl(t *testing.T) {
	t.Parallel()
	s := startSite(t, site.Config{})
	c := newCrawl(t, at(s, "/nothing"))
	got := c.run(inside(s.Port()), "--on", "http_client_error=abort-crawl", "--endless")
	for _, want := range []string{"\nfrontier: an outcome aborted the crawl: " + at(s, "/nothing") + ": http_client_error: ", `"frontier resume" continues it.`, "0 completed, 1 failed,"} {
		if got.code != cli.ExitAborted || !strings.Contains(got.err, want) {
			t.Errorf("exit status %d, %q, want %d and %q", got.code, got.err, cli.ExitAborted, want)
		}
	}
	if got := c.must("status"); !strings.Contains(got, "The crawl is paused") {
		t.Errorf("the crawl is not paused:\n%s", got)
	}
}

// TestRedirectSettings checks the environment variables for redirects.
func TestRedirectSettings(t *testing.T) {
	t.Parallel()
	s := startSite(t, site.Config{})
	moved := "/go/302/1?to=" + url.QueryEscape("/p/7")
	for _, tt := range []struct {
		name          string
		follow, limit string
		want          map[string]int
		pages         int // requests for the target
	}{
		{"the default", "", "", map[string]int{"fetched": 1}, 1},
		{"none by the environment", "false", "", map[string]int{"fetched": 1}, 0},
		{"too many by the environment", "", "0", map[string]int{"failed too_many_redirects": 1}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCrawl(t, at(s, moved))
			before := len(visitsOf(s, "/p/7"))
			b := c.startWith(map[string]string{"CRAWLER_FOLLOW_REDIRECTS": tt.follow, "CRAWLER_MAX_REDIRECTS": tt.limit},
				append(inside(s.Port()), "--outcomes", "-", "--endless")...)
			b.out.until(t, "{")
			b.end(cli.ExitInterrupted)
			if got := c.statuses(); !maps.Equal(got, tt.want) {
				t.Errorf("URLs = %v, want %v", got, tt.want)
			}
			if got := len(visitsOf(s, "/p/7")) - before; got != tt.pages {
				t.Errorf("%d requests for the redirect's target, want %d", got, tt.pages)
			}
		})
	}
}

func visitsOf(s *site.Site, path string) []site.Visit {
	var visits []site.Visit
	for _, v := range s.Visits() {
		if p, _, _ := strings.Cut(v.Path, "?"); p == path {
			visits = append(visits, v)
		}
	}
	return visits
}
