// Package rig has the helpers that the long tests of this folder share. It decides whether
// they run, builds the programs that ship and runs them as processes, starts origins, and
// compares measurements with their limits.
package rig

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"fetchd/cmd/frontier/site"
	"fetchd/conformance/origin"
	"fetchd/test/must"
	"fetchd/test/need"
	"fetchd/test/wait"
)

// Long skips the test unless FETCHD_LONG is 1. The context that it returns limits the
// test's time.
func Long(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	need.Long(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// Pick returns long if a variable such as FETCHD_STORES is all, which asks for the long form of a test, and
// otherwise the value for the gate.
func Pick[T any](variable string, gate, long T) T {
	if os.Getenv(variable) == "all" {
		return long
	}
	return gate
}

// Until calls done every few milliseconds until it returns true. It fails the test if ctx
// ends first.
func Until(ctx context.Context, t testing.TB, what string, done func() bool) {
	t.Helper()
	if err := wait.Until(ctx, 5*time.Millisecond, done); err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

// Origin starts an origin and closes it when the test ends.
func Origin(t testing.TB) *origin.Origin {
	t.Helper()
	o, err := origin.Start(origin.Config{Seed: 1})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = o.Close() })
	return o
}

// Site starts a site and closes it when the test ends.
func Site(t testing.TB, cfg site.Config) *site.Site {
	t.Helper()
	s, err := site.Start(cfg)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Dial connects to an address until the test ends, in plaintext unless the options say otherwise.
func Dial(t testing.TB, address string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy()}, opts...)
	conn, err := grpc.NewClient("passthrough:///"+address, opts...)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Reach returns the flags with which a fetchd reaches listeners of an origin, and trusts its authority.
func Reach(t testing.TB, listeners []string, o *origin.Origin) []string {
	t.Helper()
	args := []string{"--egress-allow-cidr", "127.0.0.0/8", "--egress-ca-file", file(t, "ca.pem", o.CAPEM())}
	for _, name := range listeners {
		_, port, err := net.SplitHostPort(o.Addr(name))
		must.Succeed(t, err)
		args = append(args, "--egress-allow-port", port)
	}
	return args
}

func file(t testing.TB, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must.Succeed(t, os.WriteFile(path, text, 0o600))
	return path
}

// FreeAddress returns an address of host on which nothing listens. Its port is below
// those that the system gives to connections and to listeners on port 0, so that none
// of them takes it before the test does.
func FreeAddress(t testing.TB, host string) string {
	t.Helper()
	const first, last = 10000, 32767
	var err error
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(first+rand.IntN(last-first+1)))); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatalf("cannot listen on %s: %v", host, err)
	return ""
}

// folder has the programs that [Main] has built.
var folder string

// Main builds the named programs, such as fetchd, as they ship, and runs the tests of a
// package. It builds nothing if the long tests are skipped, or if TEST_PROGRAMS names a folder that
// has the programs.
func Main(m *testing.M, programs ...string) {
	if folder = os.Getenv("TEST_PROGRAMS"); folder != "" || os.Getenv("FETCHD_LONG") != "1" {
		os.Exit(m.Run()) //nolint:forbidigo // TestMain calls it
	}
	code := 1
	if err := build(programs); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(folder)
	os.Exit(code) //nolint:forbidigo // TestMain calls it
}

func build(programs []string) (err error) {
	if folder, err = os.MkdirTemp("", "fetchd-test"); err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", folder)
	for _, name := range programs {
		cmd.Args = append(cmd.Args, "fetchd/cmd/"+name)
	}
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// Program returns the path of a program that [Main] has built.
func Program(name string) string { return filepath.Join(folder, name) }

// Times are measured durations.
type Times []time.Duration

// Percentile returns the smallest of the times that at least p percent of them do not exceed.
func (ts Times) Percentile(p float64) time.Duration {
	if len(ts) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(ts))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// AtLeast fails the test if a measurement is too small.
func AtLeast[T cmp.Ordered](t testing.TB, what string, got, want T) {
	t.Helper()
	if got < want {
		t.Errorf("%s: %v, want at least %v", what, got, want)
	}
}
