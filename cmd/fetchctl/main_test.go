package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"fetchd/conformance/origin"
	"fetchd/internal/version"
	"fetchd/test/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, "fetchctl", main) }

var fetchctl clitest.Runner = run

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup:               setUpScript,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"await": await,
			"saw":   saw,
			"body":  body,
			"none":  none,
			"same":  sameAsCurl,

			"terminal": onTerminal,
		},
	})
}

type originKey struct{}

// setUpScript gives a script an origin of its own: $HTTP and the like are its
// URLs. stores.yaml has a store in a directory, one for records, and one that is down.
func setUpScript(env *testscript.Env) error {
	o, err := origin.Start(origin.Config{})
	if err != nil {
		return err
	}
	env.Defer(func() { _ = o.Close() })
	env.Values[originKey{}] = o
	env.Setenv("HTTP", o.URL("http", ""))
	env.Setenv("HTTPS", o.URL("https", ""))
	env.Setenv("EXPIRED", o.URL("tls-expired", ""))
	env.Setenv("REFUSED", o.Addr("refused"))
	env.Setenv("VERSION", version.Long())
	env.Setenv("GORACE", "atexit_sleep_ms=0") // else a program with the race detector sleeps a second at its end
	env.Setenv("PLAIN", o.Addr("http"))
	proxy, stop := startProxy(o.Addr("http"))
	env.Defer(stop)
	echo, stopEcho := startEcho()
	env.Defer(stopEcho)
	env.Setenv("ECHO", echo)
	env.Setenv("PLAINPROXY", proxy)
	env.Setenv("PROXY", "http://"+proxy)
	ca := env.WorkDir + "/ca.pem"
	env.Setenv("SSL_CERT_FILE", ca)
	if err := os.WriteFile(ca, o.CAPEM(), 0o600); err != nil {
		return err
	}
	return os.WriteFile(env.WorkDir+"/stores.yaml", fmt.Appendf(nil, `stores:
  local: {url: "file://%[1]s/bodies"}
  crawl: {url: "warc+file://%[1]s/records", redact: [X-Secret]}
  down: {url: "s3://bucket?endpoint=http://%[2]s&region=eu-central-1&use_path_style=true", access-key-id: a, secret-access-key: b}
`, env.WorkDir, o.Addr("refused")), 0o600)
}

func originOf(ts *testscript.TestScript) *origin.Origin {
	o, ok := ts.Value(originKey{}).(*origin.Origin)
	if !ok {
		ts.Fatalf("no origin")
	}
	return o
}

// exits runs a program and compares its exit status: exits CODE PROGRAM ARGS….
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS")
	}
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		ended, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		code = ended.ExitCode()
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit status %d, want %s", code, args[0])
	}
}

// await waits for a request to the origin: await KEY.
func await(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := originOf(ts).Await(ctx, args[0], 1); err != nil {
		ts.Fatalf("%v", err)
	}
}

// saw compares how many requests the origin saw, and the last one's method and
// a header: saw KEY N [METHOD [NAME=VALUE]].
func saw(ts *testscript.TestScript, _ bool, args []string) {
	requests := originOf(ts).Requests(args[0])
	if fmt.Sprint(len(requests)) != args[1] {
		ts.Fatalf("the origin saw %d requests for %s, want %s", len(requests), args[0], args[1])
	}
	if len(args) > 2 && requests[len(requests)-1].Method != args[2] {
		ts.Fatalf("method %s, want %s", requests[len(requests)-1].Method, args[2])
	}
	if len(args) > 3 {
		name, want, _ := strings.Cut(args[3], "=")
		if got := requests[len(requests)-1].Header.Get(name); got != want {
			ts.Fatalf("%s is %q, want %q", name, got, want)
		}
	}
}

// body writes the origin's body of N bytes to a file: body N FILE.
func body(ts *testscript.TestScript, _ bool, args []string) {
	var n int64
	if _, err := fmt.Sscan(args[0], &n); err != nil {
		ts.Fatalf("%v", err)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), originOf(ts).Body(n), 0o600))
}

// none fails where a folder holds anything: none DIR.
func none(ts *testscript.TestScript, _ bool, args []string) {
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	for _, e := range entries {
		ts.Fatalf("%s holds %s", args[0], e.Name())
	}
}
