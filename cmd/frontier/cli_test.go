package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/frontier/store"
	"fetchd/internal/cli"
	"fetchd/internal/typo"
	"fetchd/internal/version"
	"fetchd/test/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, "frontier", main) }

// result is the result of a run.
type result struct {
	code     int
	out, err string
}

// runWith runs the program with standard input and an environment.
func runWith(ctx context.Context, stdin io.Reader, env map[string]string, args ...string) result {
	var out, err bytes.Buffer
	code := run(ctx, args, func(name string) string { return env[name] }, cli.Streams{In: stdin, Out: &out, Err: &err})
	return result{code, out.String(), err.String()}
}

// fixture is a frontier in its own file, with the helpers of a test.
type fixture struct {
	t  *testing.T
	db string
}

// in returns c for a subtest.
func (c *fixture) in(t *testing.T) *fixture { return &fixture{t, c.db} }

// newCrawl creates the database of a crawl.
func newCrawl(t *testing.T, urls ...string) *fixture {
	t.Helper()
	c := &fixture{t, filepath.Join(t.TempDir(), "frontier.db")}
	c.store(func(s store.Store) error {
		_, err := s.Put(t.Context(), store.Entries(urls...), store.Limits{})
		return err
	})
	return c
}

// cli runs the program on the crawl's database.
func (c *fixture) cli(args ...string) result {
	c.t.Helper()
	return runWith(c.t.Context(), strings.NewReader(""), map[string]string{"FRONTIER_DB": c.db}, args...)
}

// must returns the output of a run that must succeed and print nothing on standard error.
func (c *fixture) must(args ...string) string {
	c.t.Helper()
	got := c.cli(args...)
	if got.code != cli.ExitOK || got.err != "" {
		c.t.Fatalf("frontier %q: exit status %d, %q, want 0 and nothing", args, got.code, got.err)
	}
	return got.out
}

// store opens the database as another program would.
func (c *fixture) store(f func(store.Store) error) {
	c.t.Helper()
	s, err := store.Open(c.t.Context(), c.db, store.Config{Delay: time.Hour})
	if err != nil {
		c.t.Fatalf("store.Open(%s): %v", c.db, err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			c.t.Errorf("close the store: %v", err)
		}
	}()
	if err := f(s); err != nil {
		c.t.Fatal(err)
	}
}

// fetch claims the only ready URL and records its outcome.
func (c *fixture) fetch(f store.Fetch) {
	c.t.Helper()
	c.store(func(s store.Store) error {
		claims, err := s.Claim(c.t.Context(), store.ClaimParams{})
		if err != nil || len(claims) != 1 {
			return fmt.Errorf("Claim = %v, %w", claims, err)
		}
		f.ID, f.Token = claims[0].ID, claims[0].Token
		each, err := s.RecordFetch(c.t.Context(), []store.Fetch{f})
		if err != nil {
			return err
		}
		return each[0]
	})
}

func failedIn(class string, status store.Status) store.Fetch {
	return store.Fetch{
		FetchedParams: store.FetchedParams{HTTPStatus: 503, Attempts: 3, Duration: 1500 * time.Millisecond, Wait: time.Second, Bytes: 7},
		Status:        status, LastError: class + ": it broke", ErrorClass: class, RetryIn: 48 * time.Hour,
	}
}

func diff(t *testing.T, what, want, got string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	c := newCrawl(t)
	for _, tt := range []struct {
		name string
		args []string
		told string
	}{
		{"no command", nil, "expected one of"},
		{"unknown command", []string{"stat"}, `did you mean one of "status"`},
		{"unknown flag", []string{"status", "--no"}, `Run "frontier status --help" for the flags.`},
		{"add nothing", []string{"add"}, "add: nothing to add: give URLs, -i FILE or --sitemap FILE"},
		{"add a list that is not there", []string{"add", "-i", "/no/list"}, "--input: stat /no/list: no such file or directory"},
		{"add a sitemap that is not there", []string{"add", "--sitemap", "/no/map"}, "--sitemap: stat /no/map: no such file"},
		{"add a folder", []string{"add", "-i", "/"}, "--input: / is a directory"},
		{"standard input twice", []string{"add", "-i", "-", "--sitemap", "-"}, "standard input can be read only once"},
		{"why nothing", []string{"why"}, `expected "<url>"`},
		{"why without a scheme", []string{"why", "example.org"}, `URL: "example.org" has no scheme: did you mean https://example.org?`},
		{"why of another scheme", []string{"why", "ftp://example.org/"}, `URL: "ftp://example.org/" is not usable: URL has the wrong scheme: it is neither http nor https: give a complete URL, such as https://example.org/`},
		{"why of a password", []string{"why", "ftp://u:secret@example.org/"}, "URL: it is not usable: URL has the wrong scheme"},
		{"crawl a word", []string{"crawl", "example"}, `URL: "example" is not usable: URL has the wrong scheme: it has none: give`},
		{"crawl two words", []string{"crawl", page, "one", "two"}, "frontier: 2 URLs are not usable\n  URL: \"one\" is not usable: URL has the wrong scheme: it has none: give a complete URL, such as https://example.org/\n  URL: \"two\" is"},
		{"crawl a sitemap", []string{"crawl", "--sitemap", "https://example.org/map.xml"}, `--sitemap: there is no such flag: "frontier add --sitemap URL" adds one`},
		{"crawl as wget does", []string{"crawl", "-rl3", "-np", page}, `-r: there is no such flag: leave it out: it is the default: links are followed, within --max-depth; -l: there is no such flag: --max-depth N`},
		{"crawl with wget's flag of two letters", []string{"crawl", "-np", page}, `-np: there is no such flag: --scope prefix`},
		{"crawl with a flag that left", []string{"crawl", "--max-redirects=3", page}, `--max-redirects: there is no such flag: set CRAWLER_MAX_REDIRECTS`},
		{"crawl with a rate", []string{"crawl", "--limit-rate", "1M", page}, `--limit-rate: there is no such flag: --delay between`},
		{"crawl without robots.txt", []string{"crawl", "-e", "robots=off", page}, `-e: there is no such flag: --ignore-robots for robots=off`},
		{"crawl with a time without a unit", []string{"crawl", "--total-timeout", "2", page}, `--total-timeout: "2" has no unit: did you mean 2s?`},
		{"run", []string{"run", "--endless"}, `run: there is no such command: "frontier crawl" without a URL fetches what is in the database`},
		{"retry an unknown class", []string{"retry", "--class", "nothing_like_it"}, `unknown error class "nothing_like_it": the classes are attempt_timeout, auth_required,`},
		{"retry a misspelt class", []string{"retry", "--class", "HTTP-Sever-Error"}, `unknown error class "HTTP-Sever-Error"; did you mean http_server_error?`},
		{"retry the contract's name", []string{"retry", "--class", "ERROR_CLASS_FORBIDDEN"}, `did you mean forbidden?`},
		{"retry an empty class", []string{"retry", "--class", ""}, `unknown error class ""`},
		{"retry no class", []string{"retry", "--class", "unspecified"}, `unknown error class "unspecified"`},
		{"retry a class and what was fetched", []string{"retry", "--class", "forbidden", "--fetched-before", "1h"}, "--fetched-before: fetched URLs have no error class: remove --class"},
		{"crawl with a negative limit", []string{"crawl", "--max-depth=-1", page}, "--max-depth: is negative: give 0 or more"},
		{"retry what was fetched in the future", []string{"retry", "--fetched-before=-1h"}, "--fetched-before: -1h0m0s is negative: give a duration such as 168h, or 0s for all"},
		{"retry an age without a unit", []string{"retry", "--fetched-before", "7"}, `--fetched-before: "7" has no unit: did you mean 7s?`},
		{"export something else", []string{"export", "--what", "hosts"}, `--what must be one of "urls","fetches"`},
		{"pause a path", []string{"pause", "example.org/a"}, `HOST: "example.org/a" is not a host: give one such as example.org`},
		{"pause a bad host", []string{"pause", "exa mple.org"}, "HOST: URL has a bad host: it has a character that is not allowed in a host name"},
		{"resume another scheme", []string{"resume", "ftp://example.org/"}, "HOST: URL has the wrong scheme"},
		{"set nothing", []string{"set", "example.org"}, "set: nothing to set: give --delay, --max-in-flight or both"},
		{"set no host", []string{"set", "--delay", "1s"}, `expected "<host>"`},
		{"set an empty host", []string{"set", "", "--delay", "1s"}, `HOST: "" is not a host`},
		{"set a number as delay", []string{"set", "example.org", "--delay", "5"}, `--delay: "5" is not a duration such as 5s, 500ms or 0s, and not "default"`},
		{"set a negative delay", []string{"set", "example.org", "--delay=-1s"}, `--delay: "-1s" is not a duration`},
		{"set none in flight", []string{"set", "example.org", "--max-in-flight", "0"}, "--max-in-flight: 0 is not from 1 to 10000; to stop a host, pause it"},
		{"set too many in flight", []string{"set", "example.org", "--max-in-flight", "10001"}, "--max-in-flight: 10001 is not from 1 to 10000"},
		{"set a word in flight", []string{"set", "example.org", "--max-in-flight", "two"}, "--max-in-flight: expected a valid 64 bit int"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := c.in(t)
			got := c.cli(tt.args...)
			if got.code != cli.ExitUsage || got.out != "" || !strings.HasPrefix(got.err, "frontier: ") || !strings.Contains(got.err, tt.told) {
				t.Errorf("frontier %q: exit status %d, %q, %q; want %d, nothing and %q", tt.args, got.code, got.out, got.err, cli.ExitUsage, tt.told)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"", "add", "crawl", "status", "why", "retry", "export", "pause", "resume", "set"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			got := runWith(t.Context(), strings.NewReader(""), nil, append(strings.Fields(command), "--help")...)
			if got.code != cli.ExitOK || got.err != "" {
				t.Fatalf("exit status %d, %q, want 0 and nothing", got.code, got.err)
			}
			for _, want := range []string{"Usage: frontier", "Exit codes:", "130", "\nExamples:\n  frontier " + command} {
				if !strings.Contains(got.out, want) && !(command == "" && want == "--db") {
					t.Errorf("help lacks %q:\n%s", want, got.out)
				}
			}
			if accept := "Default: text/html,application/xhtml+xml."; command == "crawl" && !strings.Contains(strings.Join(strings.Fields(got.out), " "), accept) {
				t.Errorf("help lacks %q:\n%s", accept, got.out)
			}
			if command != "" && !strings.Contains(got.out, "--db=DSN") {
				t.Errorf("help lacks --db:\n%s", got.out)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	got := runWith(t.Context(), strings.NewReader(""), nil, "--version")
	if got.code != cli.ExitOK || got.out != "frontier "+version.Long()+"\n" || got.err != "" {
		t.Errorf("--version: exit status %d, %q, %q", got.code, got.out, got.err)
	}
}

// TestStrays checks that variables of other programs are not reported.
func TestStrays(t *testing.T) {
	t.Parallel()
	got := strays([]string{"FRONTIER_DB=a", "FRONTIER_SERVICE_HOST=10.0.0.1", "FETCHD_SERVER=b", "FETCHD_MAX_FETCHES=3", "CRAWLER_MAX_REDIRECTS=2", "CRAWLER_NAME=x",
		"FRONTIER_DATABASE=hush", "FETCHD_SERVR=hush", "CRAWLER_MAX_REDIRECT=hush"})
	want := []typo.Variable{{Name: "FETCHD_SERVR", Nearest: "FETCHD_SERVER"}, {Name: "FRONTIER_DATABASE"}, {Name: "CRAWLER_MAX_REDIRECT", Nearest: "CRAWLER_MAX_REDIRECTS"}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestSafe(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"plain", "a plain text", "a plain text"},
		{"line ends", "a\n\tb\r\n", "a b"},
		{"controls", "a\x1b[2Jb\x9b\u202e", `a\x1b[2Jb\x9b\u202e`},
		{"a database's password", "no postgres://u:p/w@d@host/db", "no postgres://xxxxx@host/db"},
		{"a URL's password", "no https://u:pw@host/a@b", "no https://xxxxx@host/a@b"},
		{"an @ in a path", "https://host/icon@2x.png", "https://host/icon@2x.png"},
		{"a keyword", "host=h password=pw dbname=d", "host=h password=xxxxx dbname=d"},
		{"a quoted keyword", "password = 'p w' dbname=d", "password =xxxxx dbname=d"},
		{"a parameter", "postgres://h/d?sslpassword=pw&x=y", "postgres://h/d?sslpassword=xxxxx&x=y"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := safe(tt.text); got != tt.want {
				t.Errorf("safe(%q) = %q, want %q", tt.text, got, tt.want)
			}
		})
	}
}

// TestReaderOfHelpThatGoes has a reader of help and completions that goes away early, like head.
func TestReaderOfHelpThatGoes(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--help"}, {"crawl", "--help"}, {"completion", "bash"}, {"--version"}} {
		r, w := io.Pipe()
		_ = r.Close()
		var stderr strings.Builder
		if code := run(t.Context(), args, func(string) string { return "" }, cli.Streams{Out: w, Err: &stderr}); code != cli.ExitOK || stderr.String() != "" {
			t.Errorf("frontier %q: exit code %d, %q; want 0 and no error", args, code, stderr.String())
		}
	}
}
