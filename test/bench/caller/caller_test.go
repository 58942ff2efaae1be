package caller_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fetchd/server"
	"fetchd/server/fetchdtest"
	"fetchd/test/bench/caller"
	"fetchd/test/bench/origin"
	"fetchd/test/must"
	"fetchd/test/need"
)

// start runs an origin and a fetchd that allows only loopback until the test ends. It returns
// the address of fetchd.
func start(t *testing.T) (*origin.Origin, string) {
	t.Helper()
	o, err := origin.Start()
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	at, err := netip.ParseAddrPort(o.Addr("http"))
	must.Succeed(t, err)
	folder := t.TempDir()
	stores := filepath.Join(folder, "stores.yaml")
	must.Succeed(t, os.WriteFile(stores, caller.Stores(folder), 0o600))
	return o, fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, StoresFile: stores, Configure: func(c *server.Config) {
		c.Fetch.Egress.AllowPorts = []uint16{at.Port()}
	}}).Addr
}

// runUntil runs a load for longer each time until the result is enough: on a busy machine the first
// fetch may end after a short run. It returns the last result and its log.
func runUntil(t *testing.T, o caller.Options, enough func(caller.Result) bool) (got caller.Result, log string) {
	t.Helper()
	for {
		var out bytes.Buffer
		got, err := caller.Run(t.Context(), o, &out)
		must.Succeed(t, err)
		if o.Seconds *= 4; enough(got) || o.Seconds > 20 {
			return got, out.String()
		}
	}
}

// TestKinds runs each load for a moment, and checks that it counts fetches and none fails.
func TestKinds(t *testing.T) {
	onLinux(t)
	o, addr := start(t)
	for _, kind := range caller.Kinds() {
		for _, path := range []string{"/b/1024", "/b/100000"} {
			if path != "/b/1024" && !strings.HasSuffix(kind, "-stream") {
				continue // chunks matter only for a streamed body
			}
			t.Run(kind+" of "+path, func(t *testing.T) {
				got, log := runUntil(t, caller.Options{Kind: kind, Target: o.URL("http", path), GRPC: addr, Open: 20, Warmup: 0.05, Seconds: 0.2},
					func(r caller.Result) bool { return r.Fetches > 0 })
				if log != "measuring\nmeasured\n" {
					t.Errorf("the log is %q, want measuring and measured", log)
				}
				if got.Fetches == 0 || got.Failed != 0 || got.Bytes == 0 || got.Whole < got.Fetches {
					t.Errorf("kind %s: %+v, want fetches, bytes, and no failure", kind, got)
				}
				if got.Seconds < 0.2 || got.CPUSeconds <= 0 || got.MaxRSS <= 0 || got.Allocs == 0 || got.AllocBytes == 0 {
					t.Errorf("%+v, want at least 0.2 s, CPU time, memory and allocations", got)
				}
				if got.P50 <= 0 || got.P90 < got.P50 || got.P99 < got.P90 {
					t.Errorf("latencies %v, %v, %v, want them in ascending order", got.P50, got.P90, got.P99)
				}
			})
		}
	}
}

// TestFailures checks that each load counts wrong responses as failures.
func TestFailures(t *testing.T) {
	onLinux(t)
	o, addr := start(t)
	for _, kind := range caller.Kinds() {
		t.Run(kind, func(t *testing.T) {
			// The origin has no such path, and responds immediately.
			got, log := runUntil(t, caller.Options{Kind: kind, Target: o.URL("http", "/none/1024"), GRPC: addr, Open: 2, Warmup: 0.001, Seconds: 0.03},
				func(r caller.Result) bool { return r.Failed > 0 })
			if got.Failed == 0 || got.Failed < got.Fetches || got.P50 != 0 {
				t.Errorf("%+v, want only failures, and no latencies", got)
			}
			if !strings.Contains(log, "a fetch failed: ") {
				t.Errorf("the log is %q, want a reason", log)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	good := caller.Options{Kind: "net-http", Target: "http://127.0.0.1:1/b/1", Open: 1}
	for _, row := range []struct {
		name   string
		change func(*caller.Options)
		want   string
	}{
		{"an unknown kind", func(o *caller.Options) { o.Kind = "other" }, "engine, grpc-many"},
		{"nothing in flight", func(o *caller.Options) { o.Open = 0 }, "open 0"},
		{"a target without a length", func(o *caller.Options) { o.Target = "http://127.0.0.1:1/b" }, "last path segment"},
		{"an invalid target", func(o *caller.Options) { o.Target = "http://\x00" }, "target"},
		{"no service", func(o *caller.Options) { o.Kind = "grpc-unary" }, "HOST:PORT"},
		{"an engine with a host name", func(o *caller.Options) { o.Kind, o.Target = "engine", "http://name.example/b/1" }, "give an address"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := good
			row.change(&o)
			_, err := caller.Run(t.Context(), o, new(bytes.Buffer))
			if err == nil || !strings.Contains(fmt.Sprint(err), row.want) {
				t.Errorf("%+v: error %v, want one with %q", o, err, row.want)
			}
		})
	}
}

// TestCanceled cancels a load before its end.
func TestCanceled(t *testing.T) {
	onLinux(t)
	o, addr := start(t)
	for _, kind := range caller.Kinds() {
		t.Run(kind, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("canceled by the test")
			r, w := net.Pipe()
			go func() {
				_, _ = r.Read(make([]byte, 64)) // it measures
				cancel(why)
				r.Close()
			}()
			_, err := caller.Run(ctx, caller.Options{Kind: kind, Target: o.URL("http", "/b/1"), GRPC: addr, Open: 4, Seconds: 3600}, w)
			if !errors.Is(err, why) {
				t.Errorf("error %v, want %v", err, why)
			}
		})
	}
}

// TestHold checks that each method holds fetches until it is cancelled, at an origin that does not
// answer and at one that is busy.
func TestHold(t *testing.T) {
	for _, row := range []struct {
		name, kind, path string
		want             origin.State
	}{
		{"at the origin", "grpc-unary", "/w/1h/1024", origin.State{Waiting: 50}},
		{"in backoff", "grpc-stream", "/f/100/1024", origin.State{Busy: 50}},
		{"tasks in backoff", "grpc-many", "/f/100/1024", origin.State{Busy: 50}},
	} {
		t.Run(row.name, func(t *testing.T) {
			o, addr := start(t)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			r, w := net.Pipe()
			defer r.Close()
			go func() {
				_, err := caller.Run(ctx, caller.Options{Kind: row.kind, Target: o.URL("http", row.path), GRPC: addr, Open: 50, Hold: true}, w)
				ended <- err
			}()
			log := make([]byte, len("measuring\n"))
			if _, err := r.Read(log); err != nil || string(log) != "measuring\n" {
				t.Fatalf("the log is %q, %v", log, err)
			}
			for state := (origin.State{}); state != row.want; {
				var err error
				if state, err = origin.Ask(t.Context(), o.Addr("http")); err != nil {
					t.Fatal(err)
				}
				select {
				case err := <-ended:
					t.Fatalf("Run returned %v before it was canceled, at %+v", err, state)
				default:
				}
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run after cancel: %v", err)
			}
		})
	}
}

// TestHoldEnds checks that a held fetch that ends is an error.
func TestHoldEnds(t *testing.T) {
	o, addr := start(t)
	for _, kind := range []string{"grpc-unary", "grpc-stream", "grpc-many"} {
		_, err := caller.Run(t.Context(), caller.Options{Kind: kind, Target: o.URL("http", "/b/1"), GRPC: addr, Open: 3, Hold: true}, new(bytes.Buffer))
		if err == nil || !strings.Contains(fmt.Sprint(err), "ended") {
			t.Errorf("%s: error %v, want one that contains %q", kind, err, "ended")
		}
	}
}

// onLinux skips tests that read the clocks of processes.
func onLinux(t *testing.T) {
	t.Helper()
	need.Linux(t, "the CPU time and memory of a process are read only on Linux")
}
