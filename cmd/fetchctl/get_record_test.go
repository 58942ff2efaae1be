package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"fetchd/cmd/fetchctl/har/hartest"
	"fetchd/conformance/origin"
	"fetchd/internal/cli"
	"fetchd/test/rig"
)

// archived is what the tests read of an archive.
type archived struct {
	Log struct {
		Pages   []struct{ ID, Comment string }
		Entries []struct {
			Request  struct{ URL string }
			Response struct {
				Status      int
				RedirectURL string
				Headers     []struct{ Name string }
				Content     struct {
					Size int64
					Text string
				}
				BodySize int64
			}
			Timings struct{ SSL, Connect float64 }
			Attempt int `json:"_attempt"`
			Hop     int `json:"_hop"`
			Error   *struct{ Class, Rule string }
		}
		Outcome *struct {
			Kind      string
			Exchanges int
		} `json:"_outcome"`
	}
}

// readArchive reads an archive that must hold against the specification.
func readArchive(t *testing.T, name string) archived {
	t.Helper()
	data, err := os.ReadFile(name)
	must(t, err)
	if err := hartest.Check(data); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	var a archived
	must(t, json.Unmarshal(data, &a))
	return a
}

// An archive has an entry for each request that the origin saw, in its order.
func TestArchive(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, listener, path string
		args                 []string
		code                 int
		entries, pages       int
		unseen               int // entries whose request no origin could log
	}{
		{"plain", "http", "/s/KEY/200:size=2000", nil, cli.ExitOK, 1, 1, 0},
		{"redirects and a retry", "http", "/r/KEY/302/2/503/200:size=2000", nil, cli.ExitOK, 6, 2, 0},
		{"a body over the hold-back", "http", "/s/KEY/503/200:size=700000", nil, cli.ExitOK, 2, 2, 0},
		{"failed", "http", "/s/KEY/404", nil, cli.ExitPermanent, 1, 1, 0},
		{"too many redirects", "http", "/r/KEY/301/3/200", []string{"--max-redirects", "2"}, cli.ExitPermanent, 3, 1, 0},
		{"refused", "refused", "/s/KEY/200", []string{"-r", "1"}, cli.ExitTransient, 2, 2, 2},
		{"a certificate past its date", "tls-expired", "/s/KEY/200", nil, cli.ExitPermanent, 1, 1, 1},
		{"a silent origin", "http", "/s/KEY/silent", []string{"--timeout", "1s"}, cli.ExitTransient, 1, 1, 0},
		{"a cut body", "http", "/s/KEY/200:size=3000000,cut=1500000,etag=%22a%22,range/200:size=3000000,etag=%22a%22,range", nil, cli.ExitOK, 2, 2, 0},
		{"a redirect not followed", "http", "/r/KEY/302/1/200", []string{"--no-follow"}, cli.ExitOK, 1, 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			o, key := rig.Origin(t), strings.NewReplacer("/", "-", " ", "-").Replace(row.name)
			file := filepath.Join(t.TempDir(), "fetch.har")
			args := append([]string{"get", "--har", file, "-o", os.DevNull, o.URL(row.listener, strings.ReplaceAll(row.path, "KEY", key))}, row.args...)
			got := fetchctl(t, args...)
			if got.code != row.code {
				t.Fatalf("exit status %d, want %d\n%s", got.code, row.code, got.err)
			}
			a := readArchive(t, file)
			if len(a.Log.Entries) != row.entries || len(a.Log.Pages) != row.pages || a.Log.Outcome == nil {
				t.Fatalf("%d entries, %d pages, outcome %v; want %d and %d", len(a.Log.Entries), len(a.Log.Pages), a.Log.Outcome, row.entries, row.pages)
			}
			compareLog(t, o.Requests(key), a, row.unseen)
		})
	}
}

// compareLog holds the entries against what the origin saw.
func compareLog(t *testing.T, seen []origin.Request, a archived, unseen int) {
	t.Helper()
	if len(seen) != len(a.Log.Entries)-unseen {
		t.Fatalf("the origin saw %d requests, the archive has %d entries", len(seen), len(a.Log.Entries))
	}
	for i, r := range seen {
		if e := a.Log.Entries[i]; !strings.HasSuffix(e.Request.URL, r.Path) {
			t.Errorf("entry %d is of %s, the origin saw %s", i, e.Request.URL, r.Path)
		}
	}
	for i, e := range a.Log.Entries {
		if e.Response.RedirectURL != "" && len(e.Response.Headers) == 0 {
			t.Errorf("entry %d is a redirect without headers", i)
		}
		if e.Timings.SSL > e.Timings.Connect {
			t.Errorf("entry %d: ssl %v, connect %v", i, e.Timings.SSL, e.Timings.Connect)
		}
	}
}

// A run that is interrupted leaves the archive of what there was, and no body.
func TestArchiveInterrupted(t *testing.T) {
	t.Parallel()
	o, dir := rig.Origin(t), t.TempDir()
	file := filepath.Join(dir, "fetch.har")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errOut, ended := &listened{of: "→", heard: make(chan struct{})}, make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"get", "-v", "--trace", "--har", file, "-o", filepath.Join(dir, "body"), o.URL("http", "/r/cut-off/302/1/silent")},
			func(string) string { return "" }, cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: errOut})
	}()
	if _, err := o.Await(t.Context(), "cut-off", 2); err != nil {
		t.Fatal(err)
	}
	select { // the origin may see the second request before the caller hears of the redirect
	case <-errOut.heard:
	case code := <-ended:
		t.Fatalf("exit status %d, and no redirect was told\n%s", code, errOut)
	}
	cancel()
	code := <-ended
	if err := errOut.String(); code != cli.ExitInterrupted || !strings.Contains(err, "no outcome") || !strings.Contains(err, "  2 GET --- /s/cut-off/silent") {
		t.Errorf("exit status %d, want %d and a trace of two hops\n%s", code, cli.ExitInterrupted, err)
	}
	a := readArchive(t, file)
	if len(a.Log.Entries) != 2 || a.Log.Outcome != nil || a.Log.Entries[1].Response.Status != 0 {
		t.Errorf("archive %+v", a)
	}
	must(t, os.Remove(file))
	empty(t, dir)
}

// listened is what a run tells. Once that has the text in it, heard is closed.
type listened struct {
	strings.Builder
	of    string
	heard chan struct{}
	once  sync.Once
}

func (l *listened) Write(p []byte) (int, error) {
	n, err := l.Builder.Write(p)
	if strings.Contains(l.String(), l.of) {
		l.once.Do(func() { close(l.heard) })
	}
	return n, err
}

// Where the service does not take the fetch there is no archive.
func TestNoArchive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	got := fetchctl(t, "get", "--har", filepath.Join(dir, "fetch.har"), "ftp://origin.test/")
	if got.code != cli.ExitUsage {
		t.Errorf("exit status %d, want %d\n%s", got.code, cli.ExitUsage, got.err)
	}
	empty(t, dir)
}

func TestIsUTF8(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		env  map[string]string
		want bool
	}{
		{"none", nil, false},
		{"LANG", map[string]string{"LANG": "de_DE.UTF-8"}, true},
		{"LANG without dash", map[string]string{"LANG": "C.utf8"}, true},
		{"LANG of another", map[string]string{"LANG": "de_DE.ISO-8859-1"}, false},
		{"LC_ALL first", map[string]string{"LC_ALL": "C", "LC_CTYPE": "C.UTF-8", "LANG": "C.UTF-8"}, false},
		{"LC_CTYPE before LANG", map[string]string{"LC_CTYPE": "C.UTF-8", "LANG": "C"}, true},
	} {
		a := &app{cli.Program{Env: func(name string) string { return row.env[name] }}}
		if got := a.isUTF8(); got != row.want {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}
