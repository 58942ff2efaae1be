package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fetchd/internal/cli"
)

// TestRefused checks flags and environment variables that are not valid. They are rejected before
// anything else: no file is created, and the missing database is not noticed.
func TestRefused(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("a/b,", maxMediaTypes) + "a/b"
	for _, tt := range []struct {
		name string
		args []string
		told string // start of the first line
	}{
		{"none open", []string{"--open", "0"}, "--open: 0 is not from 1 to 100000"},
		{"fewer open", []string{"--open=-1"}, "--open: -1 is not from 1 to 100000"},
		{"too many open", []string{"--open", "100001"}, "--open: 100001 is not from 1 to 100000"},
		{"a word open", []string{"--open", "many"}, "--open: expected a valid 64 bit int"},
		{"no attempt", []string{"--max-attempts", "0"}, "--max-attempts: 0 is not from 1 to 11"},
		{"too many attempts", []string{"--max-attempts", "12"}, "--max-attempts: 12 is not from 1 to 11"},
		{"no body", []string{"--max-body-bytes", "0"}, "--max-body-bytes: 0 is not from 1 to 1099511627776"},
		{"too large a body", []string{"--max-body-bytes", "1099511627777"}, "--max-body-bytes: 1099511627777 is not from 1 to 1099511627776"},
		{"fewer retries", []string{"--max-url-retries=-1"}, "--max-url-retries: -1 is not from 0 to 1000000"},
		{"a negative delay", []string{"--delay=-1s"}, "--delay: -1s is negative: give a duration"},
		{"a delay without a unit", []string{"--delay", "1"}, `--delay: "1" has no unit: did you mean 1s?`},
		{"a negative drain time", []string{"--drain-time=-1s"}, "--drain-time: -1s is negative"},
		{"a negative timeout", []string{"--total-timeout=-1s"}, "--total-timeout: -1s is negative"},
		{"no timeout", []string{"--total-timeout", "0s"}, "--total-timeout: 0s is not allowed: give a duration such as 30s"},
		{"no profile", []string{"--profile", "fast"}, `--profile must be one of "standard","download" but got "fast"`},
		{"recrawl at once", []string{"--recrawl", "10ms"}, `--recrawl: "10ms" is not a duration such as 7d or 12h, of at least 1s, or 0s`},
		{"a negative recrawl", []string{"--recrawl=-1h"}, `--recrawl: "-1h" is not a duration`},
		{"two recrawls", []string{"--recrawl", "7d", "--recrawl", "8d"}, `--recrawl: "8d" is a second time for all URLs`},
		{"recrawl of a host without a time", []string{"--recrawl", "a.test"}, `--recrawl: "a.test" is not a duration such as 7d`},
		{"recrawl of no host", []string{"--recrawl", "=7d"}, `--recrawl: "=7d" has no name: give one such as example.org=7d`},
		{"recrawl of a host that is none", []string{"--recrawl", "a b=7d"}, `--recrawl: "a b" is neither a host such as example.org or *.example.org, nor a pattern, which has a slash`},
		{"recrawl of a host, and no duration", []string{"--recrawl", "a.test=often"}, `--recrawl: "often" is not a duration such as 7d or 12h, of at least 1s, or 0s`},
		{"recrawl of a pattern that is none", []string{"--recrawl", "/(=7d"}, `--recrawl: the pattern "/(" is not valid`},
		{"too many rules", slices.Repeat([]string{"--recrawl", "a.test=1d"}, 101), "--recrawl: there are 101 names: give at most 100"},
		{"no user agent", []string{"--user-agent", " "}, "--user-agent: is empty: give a name and how to reach you"},
		{"a user agent of two lines", []string{"--user-agent", "bot\r\nHost: b"}, `--user-agent: "bot\r\nHost: b" contains a character that is not allowed in a header`},
		{"what is no media type", []string{"--accept", "html"}, `--accept: "html" is not a media type without parameters: give one such as text/html or text/*, or "any"`},
		{"a media type with a parameter", []string{"--accept", "text/html; charset=utf-8"}, `--accept: "text/html; charset=utf-8" is not a media type without parameters`},
		{"no media type", []string{"--accept="}, `--accept: is empty: give a media type such as text/html, or "any"`},
		{"any and another", []string{"--accept", "any,text/html"}, `--accept: "any" accepts all media types: use it alone, or remove it`},
		{"too many media types", []string{"--accept", many}, `--accept: has 65 media types: give at most 64, or "any"`},
		{"an address without a port", []string{"--metrics-addr", "localhost"}, `--metrics-addr: "localhost" is not HOST:PORT: give an address such as 127.0.0.1:9100, or :9100 for all addresses`},
		{"no place for bodies", []string{"--bodies", ""}, "--bodies: is empty: give a directory, or a store of --stores-file, or remove it"},
		{"no header", []string{"--keep-header", ""}, `--keep-header: "" is not the name of a header`},
		{"no name of a header", []string{"--keep-header", "a b"}, `--keep-header: "a b" is not the name of a header`},
		{"too many headers", slices.Repeat([]string{"--keep-header", "A"}, 33), "--keep-header: has 33 names: give at most 32"},
		{"no file of stores", []string{"--bodies", "a", "--stores-file", ""}, "--stores-file: is empty: give a file, or remove it"},
		{"stores for no bodies", []string{"--stores-file", "file"}, "--stores-file: is used by --bodies and --warc only"},
		{"no place for records", []string{"--warc", ""}, "--warc: is empty: give a directory, or a store of --stores-file, or remove it"},
		{"records of another service in a directory", []string{"--warc", "./warc", "--server", "a:1"},
			`--warc: "./warc" is a directory, but the fetchd of --server makes the records: give the name of a store that is configured there, or remove --server`},
		{"records of another service in a store of our own", []string{"--warc", "crawl", "--stores-file", "file", "--server", "a:1"}, "--stores-file: is used by --bodies only, because"},
		{"no file for outcomes", []string{"--outcomes="}, "--outcomes: is empty: give a file, or - for standard output, or remove it"},
		{"a rule without an action", []string{"--on", "forbidden"}, `--on: "forbidden" is not a rule: use CLASS=ACTION, such as forbidden=abort-host`},
		{"a misspelt class", []string{"--on", "forbiddenn=skip"}, `--on: unknown error class "forbiddenn"; did you mean forbidden?`},
		{"another action", []string{"--on", "forbidden=stop"}, `--on: unknown action "stop": use retry, skip, abort-host or abort-crawl`},
		{"a level that is none", []string{"--log-level", "loud"}, "--log-level: "},
		{"an empty server", []string{"--server="}, "--server: an address is empty: give HOST:PORT"},
		{"a server without a port", []string{"--server", "a:1", "--server", "b"}, `--server: is "b", and the port is missing: give HOST:PORT, http`},
		{"a plaintext server with TLS", []string{"--server", "http://a:1", "--tls"}, `--server: is "http://a:1", which is plaintext, but a setting asks for TLS`},
		{"addresses of another service", []string{"--server", "a:1", "--server", "b:1", "--egress-allow-cidr", "10.0.0.0/8"},
			"--egress-allow-cidr: applies to the fetchd inside, but --server is a:1,b:1: use the settings of that fetchd, or remove --server"},
		{"ports of another service", []string{"--server", "a:1", "--egress-allow-port", "81"}, "--egress-allow-port: applies to the fetchd inside"},
		{"an identity of the service inside", []string{"--identity", "bot"}, "--identity: names an auth provider of another fetchd: give its address with --server. The one inside signs with --sign-key"},
		{"no identity", []string{"--identity=", "--server", "a:1"}, "--identity: is empty: give the name of an auth provider"},
		{"a key with another service", []string{"--sign-key", "k", "--sign-agent", "https://a.test", "--server", "a:1"}, "--sign-key: is for the service inside: the one at --server or FETCHD_SERVER has its own keys. Name an auth provider of it with --identity"},
		{"a key without an agent", []string{"--sign-key", "k"}, "--sign-agent: is missing or empty"},
		{"no such key", []string{"--sign-key", "/nowhere", "--sign-agent", "https://a.test"}, "--sign-key: open /nowhere: no such file"},
		{"an agent in plaintext", []string{"--sign-key", "k", "--sign-agent", "http://a.test"}, `--sign-agent: "http://a.test" is not an https origin`},
		{"no mail address", []string{"--from", "nobody"}, `--from: "nobody" is not a mail address in ASCII: give one such as crawler@example.org`},
		{"a mail address with a header", []string{"--from", "a@b.test\r\nX: y"}, "--from: "},
		{"a mail address that is not ASCII", []string{"--from", "ä@b.test"}, "--from: "},
		{"a range that is none", []string{"--egress-allow-cidr", "10.0.0.0"}, "--egress-allow-cidr: "},
		{"a port that is none", []string{"--egress-allow-port", "65536"}, "--egress-allow-port: "},
		{"TLS with the service inside", []string{"--tls"}, "--tls: applies to another fetchd: give its address with --server"},
		{"a token for the service inside", []string{"--token-file", "token"}, "--token-file: applies to another fetchd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			checkRefused(t, nil, tt.told, tt.args...)
		})
	}
}

func TestBadEnvironment(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, value, told string }{
		{"CRAWLER_FOLLOW_REDIRECTS", "maybe", `environment: CRAWLER_FOLLOW_REDIRECTS is "maybe": use true or false`},
		{"CRAWLER_MAX_REDIRECTS", "five", `environment: CRAWLER_MAX_REDIRECTS is "five": use a number from 0 to 20`},
		{"CRAWLER_MAX_REDIRECTS", "-1", `environment: CRAWLER_MAX_REDIRECTS is "-1": use a number from 0 to 20`},
		{"CRAWLER_MAX_REDIRECTS", "21", `environment: CRAWLER_MAX_REDIRECTS is "21": use a number from 0 to 20`},
		{"CRAWLER_MAX_REDIRECTS", "99999999999999999999", "environment: CRAWLER_MAX_REDIRECTS is "},
	} {
		t.Run(fmt.Sprintf("%s=%s", tt.name, tt.value), func(t *testing.T) {
			t.Parallel()
			checkRefused(t, map[string]string{tt.name: tt.value}, tt.told)
		})
	}
}

// checkRefused fails the test unless the flags are rejected before anything starts.
func checkRefused(t *testing.T, env map[string]string, told string, args ...string) {
	t.Helper()
	dir := t.TempDir()
	all := []string{"crawl", "--db", filepath.Join(dir, "no.db")}
	if !strings.Contains(strings.Join(args, " "), "--bodies") && !slices.Contains(args, "--stores-file") {
		all = append(all, "--outcomes", filepath.Join(dir, "outcomes"), "--bodies", filepath.Join(dir, "pages"))
	}
	got := runWith(t.Context(), strings.NewReader(""), env, append(all, args...)...)
	if got.code != cli.ExitUsage || got.out != "" || !strings.HasPrefix(got.err, "frontier: "+told) {
		t.Errorf("frontier crawl %q: exit status %d, %q, %q; want %d, nothing and %q", args, got.code, got.out, got.err, cli.ExitUsage, told)
	}
	if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
		t.Errorf("frontier crawl %q made %v (%v)", args, made, err)
	}
}

// TestAccepted checks flags at their limits. The only error is the missing database.
func TestAccepted(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--open", "100000", "--max-attempts", "11", "--max-body-bytes", "1099511627776", "--max-url-retries", "0"},
		{"--open", "1", "--max-attempts", "1", "--max-body-bytes", "1", "--delay", "0s", "--drain-time", "0s"},
		{"--total-timeout", "1ms"},
		{"--total-timeout", "1h"},
		{"--profile", "download", "--require-valid-charset"},
		{"--recrawl", "7d", "--recrawl", "*.a.test:8080=1w1d", "--recrawl", "a.test=0s", "--recrawl", "/news/.*[?]x=1=1h"},
		{"--recrawl", "a.test=1d"},
		{"--accept", "any"},
		{"--accept", "text/*,application/pdf"},
		{"--metrics-addr", ":9100"},
		{"--server", "a:1", "--tls", "--token-file", "token"},
		{"--server", "https://a.test", "--server", "dns:///a:1", "--tls-ca-file", "file"},
		{"--server", "http://a.test:1"},
		{"--on", "forbidden=abort-host", "--on", "dns_not_found=retry"},
		{"--warc", "warc"},
		{"--warc", "crawl", "--server", "a:1"},
		{"--identity", "bot", "--server", "a:1", "--from", "Bots <bot@a.test>"},
	} {
		got := runWith(t.Context(), strings.NewReader(""), nil, append([]string{"crawl", "--db", filepath.Join(t.TempDir(), "no.db")}, args...)...)
		if got.code != cli.ExitDatabase || !strings.HasPrefix(got.err, "frontier: no database at ") {
			t.Errorf("frontier crawl %q: exit status %d, %q, want %d and no database", args, got.code, got.err, cli.ExitDatabase)
		}
	}
}

// TestLimitsAreTheWorkers checks that the worker accepts everything that check accepts.
func TestLimitsAreTheWorkers(t *testing.T) {
	t.Parallel()
	c := newCrawl(t)
	for _, args := range [][]string{
		{"--total-timeout", "1ms", "--open", "1", "--max-attempts", "1", "--max-body-bytes", "1", "--max-url-retries", "0"},
		{"--total-timeout", "1h", "--open", "100000", "--max-attempts", "11", "--max-body-bytes", "1099511627776", "--max-url-retries", "1000000"},
	} {
		if got := c.run(args); got.code != cli.ExitOK || !strings.Contains("\n"+got.err, "\n0 completed, ") { // after a warning about the limit of open files
			t.Errorf("frontier crawl %q: exit status %d, %q, want 0 and nothing done", args, got.code, got.err)
		}
	}
}
