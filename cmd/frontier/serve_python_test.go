//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fetchd/cmd/frontier/site"
	"fetchd/internal/cli"
	"fetchd/test/need"
)

// TestPythonCrawler runs the example in Python on pages that could stop it: markup that html.parser rejects, and
// links that are too long for one call.
func TestPythonCrawler(t *testing.T) {
	python := need.Program(t, "python3", "python3")
	var long strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&long, "<a href=/x/%d%s>", i, strings.Repeat("a", 4000))
	}
	pages := map[string]string{"/x/0": "<a href=/x/1><![x]>", "/x/1": "<a href=/x/2>" + long.String(), "/x/2": ""}
	s := startSite(t, site.Config{Page: func(_, target string) site.Page {
		return site.Page{Type: "text/html", Body: pages[target]}
	}})
	c := &fixture{t, filepath.Join(t.TempDir(), "frontier.db")}
	api := startServe(t, filepath.Dir(c.db), "--delay", "1ms")
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		for api.log.Scan() { // the service waits for the reader of its log
		}
	}()
	crawler := func(args ...string) (code int, stderr string) {
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), python, append([]string{"../../client/examples/crawl.py", "--delay", "0.001", "--threads", "1"}, args...)...)
		cmd.Stderr = &out
		err := cmd.Run()
		exit, _ := errors.AsType[*exec.ExitError](err)
		if err != nil && exit == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), out.String()
	}
	if code, got := crawler("--api", "http://"+api.http, "--max-urls", "3", at(s, "/x/0")); code != 0 || got != "" {
		t.Errorf("exit status %d, %q; want 0", code, got)
	}
	diff(t, "statuses", fmt.Sprint(map[string]int{"fetched": 3}), fmt.Sprint(c.statuses()))
	for _, row := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"a lease that the API rejects", []string{"--api", "http://" + api.http, "--lease", "0"}, 1, "lease_duration is 0s: give 1s to 1h0m0s"},
		{"a seed that the API rejects", []string{"--api", "http://" + api.http + "/no", at(s, "/x/0")}, 1, "there is no"},
		{"an address without a scheme", []string{"--api", api.http}, 2, "--api: " + api.http + " is not a URL: give one such as http://127.0.0.1:8091"},
	} {
		if code, got := crawler(row.args...); code != row.code || !strings.Contains(got, row.want) || strings.Contains(got, "Traceback") {
			t.Errorf("%s: exit status %d, %q; want %d and %q", row.name, code, got, row.code, row.want)
		}
	}
	api.stop()
	<-logged
	if got := <-api.code; got != cli.ExitOK {
		t.Errorf("exit code %d of the service, want %d", got, cli.ExitOK)
	}
}
