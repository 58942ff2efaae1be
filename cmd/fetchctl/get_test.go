package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	pb "fetchd/gen/fetchd/v1"
)

// The same through a service on the network as through the one inside, its
// address from a flag or from the environment.
func TestServer(t *testing.T) {
	t.Parallel()
	o, addr := startOrigin(t), startServer(t)
	for _, tt := range []struct {
		name string
		env  map[string]string
		args []string
	}{
		{name: "inside"},
		{name: "flag", args: []string{"--server", addr}},
		{name: "environment", env: map[string]string{"FETCHD_SERVER": addr}},
		{name: "the flag wins", env: map[string]string{"FETCHD_SERVER": o.Addr("refused")}, args: []string{"--server", addr}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			key := strings.ReplaceAll(t.Name(), "/", "-")
			args := append([]string{"get", o.URL("http", "/s/"+key+"/503/200:size=700000")}, tt.args...)
			got := runWith(t.Context(), "", tt.env, args...)
			if got.code != exitOK || got.out != string(o.Body(700_000)) {
				t.Errorf("get: exit status %d, %d bytes; want 0 and the origin's 700000\n%s", got.code, len(got.out), got.err)
			}
			if n := len(o.Requests(key)); n != 2 {
				t.Errorf("the origin saw %d requests, want 2", n)
			}
		})
	}
}

// A run that is cancelled leaves no file and ends with 130, in every phase.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	o := startOrigin(t)
	for _, tt := range []struct{ name, script string }{
		{"before the head", "silent"},
		{"in the body", "200:size=3000000,stall=1500000"},
		{"while it waits", "429:retry-after=20/200"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, key := t.TempDir(), strings.ReplaceAll(t.Name(), "/", "-")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan result, 1)
			go func() {
				ended <- runWith(ctx, "", nil, "get", "-o", filepath.Join(dir, "file"), o.URL("http", "/s/"+key+"/"+tt.script))
			}()
			if _, err := o.Await(t.Context(), key, 1); err != nil {
				t.Fatal(err)
			}
			cancel()
			if got := <-ended; got.code != exitInterrupted || !strings.Contains(got.err, "interrupted") {
				t.Errorf("exit status %d, %q; want %d", got.code, got.err, exitInterrupted)
			}
			empty(t, dir)
		})
	}
}

// The built program does the same on a signal.
func TestSignals(t *testing.T) {
	t.Parallel()
	o := startOrigin(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), "fetchctl", "get", "-o", filepath.Join(dir, "file"),
				o.URL("http", "/s/"+sig.String()+"/200:size=3000000,stall=1500000"))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := o.Await(t.Context(), sig.String(), 1); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			err := cmd.Wait()
			if ended, ok := errors.AsType[*exec.ExitError](err); !ok || ended.ExitCode() != exitInterrupted {
				t.Errorf("after %v: %v, want exit status %d", sig, err, exitInterrupted)
			}
			empty(t, dir)
		})
	}
}

// Standard input that never ends does not hold up an interrupt.
func TestInterruptedReadingInput(t *testing.T) {
	t.Parallel()
	in, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{{"get", "-d", "@-", "http://origin.test/"}, {"explain", "-"}} {
		var out, told strings.Builder
		if got := run(ctx, args, func(string) string { return "" }, streams{in, &out, &told}); got != exitInterrupted {
			t.Errorf("%v: exit status %d, want %d\n%s", args, got, exitInterrupted, told.String())
		}
	}
}

func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s is left behind", e.Name())
	}
}

// Every time-out of the call is later than the fetch's own, so the outcome is
// what the user gets.
func TestTimeoutIsAnOutcome(t *testing.T) {
	t.Parallel()
	o := startOrigin(t)
	got := cli(t, "get", "--timeout", "200ms", o.URL("http", "/s/timeout/silent"))
	if got.code != exitTransient || !strings.Contains(got.err, "deadline (P3") {
		t.Errorf("get --timeout: exit status %d, %q; want %d and P3", got.code, got.err, exitTransient)
	}
}

// failingWriter is a standard output that is full.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestOutputFails(t *testing.T) {
	t.Parallel()
	o := startOrigin(t)
	env := func(string) string { return "" }
	for _, args := range [][]string{
		{"get", o.URL("http", "/s/full/200:size=2000000")},
		{"get", "-i", o.URL("http", "/s/head/200")},
		{"get", "--json", "-o", os.DevNull, o.URL("http", "/s/json/200")},
		{"explain", "--status", "503"},
		{"explain", "--json", "--status", "503"},
		{"demo", "--list"},
	} {
		var told strings.Builder
		if got := run(t.Context(), args, env, streams{strings.NewReader(""), failingWriter{}, &told}); got != exitOutput {
			t.Errorf("%v: exit status %d, want %d\n%s", args, got, exitOutput, told.String())
		}
	}
}

// A body arrives while it is still being sent, not at its end.
func TestBodyStreams(t *testing.T) {
	t.Parallel()
	o := startOrigin(t)
	r, w := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended := make(chan int, 1)
	go func() {
		var told strings.Builder
		code := run(ctx, []string{"get", o.URL("http", "/s/stream/200:size=3000000,stall=1500000")},
			func(string) string { return "" }, streams{strings.NewReader(""), w, &told})
		_ = w.Close()
		ended <- code
	}()
	first := make([]byte, 600<<10) // more than the hold-back, less than the origin sends
	if _, err := io.ReadFull(r, first); err != nil {
		t.Fatal(err)
	}
	if string(first) != string(o.Body(int64(len(first)))) {
		t.Error("the first bytes are not the origin's")
	}
	cancel()
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Fatal(err)
	}
	if code := <-ended; code != exitInterrupted {
		t.Errorf("exit status %d, want %d", code, exitInterrupted)
	}
}

// Each line of --json is a message of the contract, and they are all of them.
func TestJSONLines(t *testing.T) {
	t.Parallel()
	o := startOrigin(t)
	got := cli(t, "get", "--json", "-v", "-o", filepath.Join(t.TempDir(), "file"), o.URL("http", "/r/json/302/1/503/200:size=700000"))
	var kinds []string
	for i, line := range strings.Split(strings.TrimSuffix(got.out, "\n"), "\n") {
		m := new(pb.FetchResponse)
		if err := protojson.Unmarshal([]byte(line), m); err != nil {
			t.Fatalf("line %d: %v\n%s", i+1, err, line)
		}
		if m.GetSequence() != int64(i+1) || len(m.GetBodyChunk().GetData()) > 0 {
			t.Errorf("line %d has sequence %d and %d bytes of body", i+1, m.GetSequence(), len(m.GetBodyChunk().GetData()))
		}
		event := m.ProtoReflect().WhichOneof(m.ProtoReflect().Descriptor().Oneofs().ByName("event"))
		if n := len(kinds); n == 0 || kinds[n-1] != string(event.Name()) {
			kinds = append(kinds, string(event.Name()))
		}
	}
	attempt := []string{"attempt_started", "redirect_followed", "response_started"}
	want := slices.Concat([]string{"admitted"}, attempt, []string{"attempt_finished"}, attempt, []string{"body_chunk", "attempt_finished", "outcome"})
	if diff := cmp.Diff(want, kinds); diff != "" || got.code != exitOK {
		t.Errorf("exit status %d, events (-want +got):\n%s", got.code, diff)
	}
}

// TestJSONIsPlain checks that JSON cannot control a terminal, whatever the origin sends,
// and that its values are unchanged.
func TestJSONIsPlain(t *testing.T) {
	t.Parallel()
	const hostile = "a\u009b31m\u202eb\u2066c\U000e0041"
	o := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-Hostile"] = []string{hostile}
		w.Header()["Location"] = []string{"/" + hostile}
	}))
	t.Cleanup(o.Close)
	for _, row := range []struct {
		name string
		args []string
	}{
		{"get --json", []string{"get", "--json", "-o", os.DevNull, o.URL}},
		{"get --json, next to the body", []string{"get", "--json", o.URL}},
		{"get --har", []string{"get", "--har", "-", "-o", os.DevNull, "-q", o.URL}},
		{"download --json", []string{"download", "--json", "-q", "-d", t.TempDir(), o.URL + "/" + hostile}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := cli(t, row.args...)
			text := got.out + got.err
			if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }) {
				t.Errorf("fetchctl %q printed %q", row.args, text)
			}
			if !strings.HasPrefix(text, "{") {
				t.Fatalf("fetchctl %q printed no JSON: %s", row.args, text)
			}
			found := false
			for dec := json.NewDecoder(strings.NewReader(text)); dec.More(); {
				var v any
				if err := dec.Decode(&v); err != nil {
					t.Fatal(err)
				}
				found = found || strings.Contains(fmt.Sprint(v), hostile)
			}
			if !found {
				t.Errorf("fetchctl %q: no value has %q:\n%s", row.args, hostile, text)
			}
		})
	}
}
