package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	must(t, z.Close())
	return b.String()
}

// add runs "frontier add" in a bubble, where no time passes while it works.
func (c *fixture) add(stdin string, args ...string) (got result) {
	c.t.Helper()
	synctest.Test(c.t, func(t *testing.T) {
		got = runWith(t.Context(), strings.NewReader(stdin), nil, append([]string{"add", "--db", c.db}, args...)...)
	})
	return got
}

// urls returns the URLs of the crawl in the order in which they were added.
func (c *fixture) urls() string {
	c.t.Helper()
	var all []string
	for line := range strings.Lines(c.must("export")) {
		var row struct{ URL string }
		must(c.t, json.Unmarshal([]byte(line), &row))
		all = append(all, row.URL)
	}
	return strings.Join(all, " ")
}

func TestAddList(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, list string
		urls       string
		sum        string
		bad        string
	}{
		{"nothing", "", "", "0 added, 0 known, 0 bad", ""},
		{"lines", "http://a.test/1\nhttp://a.test/2\n", "http://a.test/1 http://a.test/2", "2 added, 0 known, 0 bad", ""},
		{"no end of the last line", "http://a.test/1\nhttp://a.test/2", "http://a.test/1 http://a.test/2", "2 added, 0 known, 0 bad", ""},
		{"CRLF and a byte order mark", "\ufeffhttp://a.test/1\r\nhttp://a.test/2\r\n", "http://a.test/1 http://a.test/2", "2 added, 0 known, 0 bad", ""},
		{"empty lines and comments", "\n# http://a.test/0\n  \n\t#x\n http://a.test/1 \n", "http://a.test/1", "1 added, 0 known, 0 bad", ""},
		{"a mark inside is no mark", "http://a.test/1\n\ufeff# no comment\n", "http://a.test/1", "1 added, 0 known, 1 bad",
			"stdin:2: URL has the wrong scheme: it has none\n"},
		{"the same twice", "http://a.test/#x\nHTTP://A.TEST:80\n", "http://a.test/", "1 added, 1 known, 0 bad", ""},
		{"no URLs among URLs", "http://a.test/1\nftp://a.test/\nhttp://a.test/2\nhttp://u:secret@[::1/\n", "http://a.test/1 http://a.test/2", "2 added, 0 known, 2 bad",
			"stdin:2: URL has the wrong scheme: it is neither http nor https\nstdin:4: URL has a bad host: it is not an IPv6 address\n"},
		{"a line as long as can be", "http://a.test/1\n#" + strings.Repeat("x", (64<<10)-2) + "\nhttp://a.test/2\n", "http://a.test/1 http://a.test/2", "2 added, 0 known, 0 bad", ""},
		{"a line that is longer", "#" + strings.Repeat("x", (64<<10)-1) + "\nhttp://a.test/2\n", "http://a.test/2", "1 added, 0 known, 1 bad",
			"stdin:1: the line is longer than 64 KiB\n"},
		{"a long line, then no URL", strings.Repeat("x", (64<<10)) + "\nhttp://a.test/1\nno\nhttp://a.test/2\n", "http://a.test/1 http://a.test/2", "2 added, 0 known, 2 bad",
			"stdin:1: the line is longer than 64 KiB\nstdin:3: URL has the wrong scheme: it has none\n"},
		{"a last line that is much longer", "http://a.test/1\n" + strings.Repeat("x", 5*(64<<10)), "http://a.test/1", "1 added, 0 known, 1 bad",
			"stdin:2: the line is longer than 64 KiB\n"},
		{"a URL that is too long", "http://a.test/" + strings.Repeat("x", 8<<10) + "\n", "", "0 added, 0 known, 1 bad",
			"stdin:1: URL is too long: 8206 bytes, the limit is 8192\n"},
		{"a host that is too long", "http://a.test/1\nhttp://" + strings.Repeat("a.", 126) + "ab/\nhttp://a.test/2\n", "http://a.test/1 http://a.test/2", "2 added, 0 known, 1 bad",
			"stdin:2: URL has a bad host: it has 254 bytes, the limit is 253\n"},
		{"compressed", zipped(t, "\ufeffhttp://a.test/1\nno\n"), "http://a.test/1", "1 added, 0 known, 1 bad", "stdin:2: URL has the wrong scheme: it has none\n"},
		{"compressed and cut off", zipped(t, "http://a.test/1\n")[:30], "http://a.test/1", "1 added, 0 known, 1 bad",
			"stdin:2: unexpected EOF; the rest was not read\n"},
		{"two bytes of gzip", "\x1f\x8b", "", "0 added, 0 known, 1 bad", "stdin:1: unexpected EOF; the rest was not read\n"},
		{"bytes that are no text", "\x00\x1b[2J\xff\nhttp://a.test/1\n", "http://a.test/1", "1 added, 0 known, 1 bad", "stdin:1: URL has the wrong scheme: it has none\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCrawl(t)
			got := c.add(tt.list, "-i", "-")
			code := cli.ExitOK
			if tt.bad != "" {
				code = cli.ExitBadInput
			}
			if got.code != code {
				t.Errorf("exit status %d, want %d", got.code, code)
			}
			diff(t, "output", tt.sum+"\n", got.out)
			diff(t, "errors", tt.bad, got.err)
			diff(t, "URLs", tt.urls, c.urls())
		})
	}
}

// Arguments come first, then lists, then sitemaps. Reports name each of them.
func TestAddSources(t *testing.T) {
	t.Parallel()
	c := newCrawl(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"one\x1b[2J": "http://a.test/list1\nbad\n",
		"two":        "\nhttp://a.test/list2\n",
		"map":        "http://a.test/map\nbad\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	got := c.add("http://a.test/stdin\n", "http://a.test/1", "bad", "http://a.test/2,3", "--sitemap", dir+"/map",
		"-i", dir+"/one\x1b[2J", "-i", "-", "-i", dir+"/two")
	if want := "6 added, 0 known, 3 bad\n"; got.code != cli.ExitBadInput || got.out != want {
		t.Errorf("exit status %d, %q; want %d, %q", got.code, got.out, cli.ExitBadInput, want)
	}
	diff(t, "errors", "argument:2: URL has the wrong scheme: it has none\n"+
		dir+`/one\x1b[2J:2: URL has the wrong scheme: it has none`+"\n"+
		dir+"/map:2: URL has the wrong scheme: it has none\n", got.err)
	diff(t, "URLs", `http://a.test/1 http://a.test/2,3 http://a.test/list1 http://a.test/stdin http://a.test/list2 http://a.test/map`, c.urls())
}

// Bad lines keep their numbers in later batches, and a hundred of them are reported.
func TestAddManyLines(t *testing.T) {
	t.Parallel()
	const lines = 3001 // more than three batches
	var list strings.Builder
	bad := 0
	for n := 1; n <= lines; n++ {
		if n%20 == 0 {
			list.WriteString("bad\n")
			bad++
			continue
		}
		fmt.Fprintf(&list, "http://a.test/%d\n", n)
	}
	for _, tt := range []struct {
		flag string
		told int
		end  string
	}{
		{"--verbose=false", 100, "50 bad lines more; --verbose reports them all\n"},
		{"--verbose", bad, ""},
	} {
		t.Run(tt.flag, func(t *testing.T) {
			t.Parallel()
			c := newCrawl(t)
			got := c.add(list.String(), "-i", "-", tt.flag)
			var want strings.Builder
			for n := range tt.told {
				fmt.Fprintf(&want, "stdin:%d: URL has the wrong scheme: it has none\n", 20*(n+1))
			}
			diff(t, "errors", want.String()+tt.end, got.err)
			diff(t, "output", fmt.Sprintf("%d added, 0 known, %d bad\n", lines-bad, bad), got.out)
		})
	}
}

func TestAddReadFails(t *testing.T) {
	t.Parallel()
	c := newCrawl(t)
	in := io.MultiReader(strings.NewReader("http://a.test/1\nhttp://a.test/2\n"), iotest.ErrReader(errors.New("the disk is gone")))
	got := runWith(t.Context(), in, nil, "add", "-i", "-", "--db", c.db)
	want := "stdin:3: the disk is gone; the rest was not read\n"
	if got.code != cli.ExitBadInput || got.err != want || got.out != "2 added, 0 known, 1 bad\n" {
		t.Errorf("exit status %d, %q, %q; want %d, %q and 2 added", got.code, got.err, got.out, cli.ExitBadInput, want)
	}
}

func TestAddCannotTell(t *testing.T) {
	t.Parallel()
	c := newCrawl(t)
	var err bytes.Buffer
	code := run(t.Context(), []string{"add", "http://a.test/", "--db", c.db}, func(string) string { return "" },
		cli.Streams{In: strings.NewReader(""), Out: failingWriter{}, Err: &err})
	if want := "frontier: write: the disk is full\n"; code != cli.ExitOutput || err.String() != want {
		t.Errorf("exit status %d, %q; want %d, %q", code, err.String(), cli.ExitOutput, want)
	}
	diff(t, "URLs", "http://a.test/", c.urls())
}

type failingWriter struct{}

// Write implements io.Writer.
func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

// Slow input is added within a second with progress, and an interrupt reports the last line that
// was added.
func TestAddInterrupted(t *testing.T) {
	t.Parallel()
	c := newCrawl(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		in, stdin := io.Pipe()
		go func() {
			_, _ = io.WriteString(stdin, "# a comment\nhttp://a.test/1\nbad\nhttp://a.test/2\n") // the pipe has a reader
			time.Sleep(15 * time.Second)                                                         //nolint:forbidigo // time in a bubble
			cancel()
		}()
		got := runWith(ctx, in, nil, "add", "-i", "-", "--db", c.db)
		stdin.Close()
		if got.code != cli.ExitInterrupted || got.out != "" {
			t.Errorf("exit status %d, %q; want %d and nothing", got.code, got.out, cli.ExitInterrupted)
		}
		diff(t, "errors", `stdin:3: URL has the wrong scheme: it has none
3 URLs read, 0/s
frontier: interrupted: the last line added was stdin:4 (2 added, 0 known, 1 bad)
  What was added stays. Run the same command again to continue: URLs that exist already do not change.
`, got.err)
	})
	diff(t, "URLs", "http://a.test/1 http://a.test/2", c.urls())
}

func TestAddInterruptedAtOnce(t *testing.T) {
	t.Parallel()
	c := newCrawl(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		in, stdin := io.Pipe()
		got := runWith(ctx, in, nil, "add", "-i", "-", "--db", c.db)
		stdin.Close()
		if want := "frontier: interrupted: nothing was added\n"; got.code != cli.ExitInterrupted || !strings.HasPrefix(got.err, want) {
			t.Errorf("exit status %d, %q; want %d, %q", got.code, got.err, cli.ExitInterrupted, want)
		}
	})
}

// If the database fails midway, the error contains the last line that was added.
func TestAddDatabaseFails(t *testing.T) {
	t.Parallel()
	c := newCrawl(t)
	c.exec(`CREATE TRIGGER full BEFORE INSERT ON urls WHEN (SELECT count(*) FROM urls) >= 1500 BEGIN SELECT RAISE(ABORT, 'it is full'); END`)
	var list strings.Builder
	for n := range 2000 { // two batches
		fmt.Fprintf(&list, "http://a.test/%d\n", n)
	}
	got := c.add(list.String(), "-i", "-")
	if want := "frontier: the last line added was stdin:1000 (1000 added, 0 known, 0 bad): put URLs: "; got.code != cli.ExitDatabase || !strings.HasPrefix(got.err, want) {
		t.Errorf("exit status %d, %q; want %d, %q", got.code, got.err, cli.ExitDatabase, want)
	}
}

// TestAddKinds checks what add stores besides URLs.
func TestAddKinds(t *testing.T) {
	t.Parallel()
	c := newCrawl(t)
	const list = "http://a.test/yes/1\nhttp://a.test/no/1\nhttp://a.test/yes/old\n"
	got := c.add(list, "-i", "-", "--sitemap", "https://a.test/map.xml", "--priority", "7", "--include", "/yes/", "--exclude", "old$")
	diff(t, "output", "2 added, 0 known, 0 bad, 2 left out\n", got.out)
	c.store(func(s store.Store) error {
		claims := map[string]store.Claim{}
		for len(claims) < 2 {
			found, err := s.Claim(t.Context(), store.ClaimParams{Limit: 10})
			if err != nil || len(found) == 0 {
				t.Fatalf("Claim = %v, %v after %v", found, err, claims)
			}
			for _, f := range found {
				claims[f.URL] = f
			}
			if _, err := s.RecordFetch(t.Context(), []store.Fetch{{ID: found[0].ID, FetchedParams: store.FetchedParams{Token: found[0].Token}, Status: store.Fetched}}); err != nil {
				return err
			}
		}
		for u, want := range map[string]store.Kind{"http://a.test/yes/1": store.Page, "https://a.test/map.xml": store.Sitemap} {
			if got := claims[u]; got.Kind != want || got.Priority != 7 {
				t.Errorf("%s: kind %d, priority %d", u, got.Kind, got.Priority)
			}
		}
		return nil
	})
	for _, row := range []struct{ flag, value string }{{"--priority", "101"}, {"--priority", "-101"}, {"--include", "("}, {"--exclude", "["}} {
		if got := c.add("", "http://a.test/", row.flag, row.value); got.code != cli.ExitUsage || !strings.Contains(got.err, row.flag) {
			t.Errorf("%s %s: %+v", row.flag, row.value, got)
		}
	}
}

func TestAddScope(t *testing.T) {
	t.Parallel()
	const list = "http://a.test/d/1\nhttp://a.test/2\nhttp://www.a.test/3\nhttp://b.test/4\n"
	for _, row := range []struct{ name, args, urls string }{
		{"host", "--scope host http://a.test/d/", "http://a.test/d/ http://a.test/d/1 http://a.test/2"},
		{"domain", "--scope domain http://a.test/d/", "http://a.test/d/ http://a.test/d/1 http://a.test/2 http://www.a.test/3"},
		{"prefix", "--scope prefix http://a.test/d/", "http://a.test/d/ http://a.test/d/1"},
		{"host of a sitemap", "--scope host --sitemap https://b.test/map.xml", "http://b.test/4 https://b.test/map.xml"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := newCrawl(t)
			c.add(list, append(strings.Fields(row.args), "-i", "-")...)
			diff(t, "URLs", row.urls, c.urls())
		})
	}
	c := newCrawl(t)
	for _, row := range []struct{ args, want string }{
		{"--scope host", "--scope: host is relative to URLs: give one"},
		{"--scope host a.test", "--scope: host is relative to URLs: give one"},
		{"--scope site http://a.test/", "--scope: unknown scope"},
	} {
		if got := c.add(list, append(strings.Fields(row.args), "-i", "-")...); got.code != cli.ExitUsage || !strings.Contains(got.err, row.want) {
			t.Errorf("%s: %+v, want %q", row.args, got, row.want)
		}
	}
}

// TestAddSitemapRules checks that a worker adds only what the flags of add allow from a sitemap, and
// from one that it lists.
func TestAddSitemapRules(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, args, want string }{
		{"none", "", "/x/index /x/map http://127.0.0.1:1/ /x/1 /x/2 /x/3"},
		{"host", "--scope host", "/x/index /x/map /x/1 /x/2 /x/3"},
		{"exclude", "--exclude 2$", "/x/index /x/map http://127.0.0.1:1/ /x/1 /x/3"},
		{"limit", "--scope host --max-urls 4", "/x/index /x/map /x/1 /x/2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var s *site.Site
			s = startSite(t, site.Config{Page: func(_, target string) site.Page {
				switch target {
				case "/x/index":
					return site.Page{Type: "application/xml", Body: "<sitemapindex><sitemap><loc>/x/map</loc></sitemap></sitemapindex>"}
				case "/x/map":
					return site.Page{Type: "text/plain", Body: "http://127.0.0.1:1/\n" + at(s, "/x/1") + "\n" + at(s, "/x/2") + "\n" + at(s, "/x/3") + "\n"}
				}
				return site.Page{Type: "text/html", Body: "x"}
			}})
			c := newCrawl(t)
			if got := c.cli(append([]string{"add", "--sitemap", at(s, "/x/index")}, strings.Fields(row.args)...)...); got.code != cli.ExitOK {
				t.Fatalf("%+v", got)
			}
			c.run(inside(s.Port()), "-q")
			diff(t, "URLs", row.want, strings.ReplaceAll(c.urls(), at(s, ""), ""))
		})
	}
	long := strings.Repeat("x", 1<<10)
	got := newCrawl(t).cli("add", "--sitemap", "http://a.test/map", "--exclude", long, "--exclude", long, "--exclude", long, "--exclude", long)
	if got.code != cli.ExitUsage || !strings.Contains(got.err, "--sitemap: the patterns and the hosts of --scope have ") {
		t.Errorf("rules that are too long: %+v", got)
	}
}

func TestAddLimits(t *testing.T) {
	t.Parallel()
	c := newCrawl(t)
	for _, row := range []struct{ args, want string }{
		{"--max-urls-per-host 2 http://a.test/1 http://a.test/2 http://a.test/3 http://b.test/1", "3 added, 0 known, 0 bad, 1 over a limit\n"},
		{"--max-urls 4 http://a.test/1 http://c.test/1 http://c.test/2", "1 added, 1 known, 0 bad, 1 over a limit\n"},
	} {
		diff(t, row.args, row.want, c.must(append([]string{"add"}, strings.Fields(row.args)...)...))
	}
	if got := c.cli("add", "--max-urls=-1", "http://a.test/"); got.code != cli.ExitUsage || !strings.Contains(got.err, "--max-urls: is -1: use 1 or more") {
		t.Errorf("a negative limit: %+v", got)
	}
}
