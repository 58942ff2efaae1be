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
	"strings"
	"syscall"
	"testing"
	"unicode"

	"fetchd/cmd/fetchctl/download"
	"fetchd/internal/cli"
	"fetchd/server/fetchdtest"
	"fetchd/test/clitest"
	"fetchd/test/rig"
)

// TestWrongPort calls ports that are not the one for gRPC in plaintext.
func TestWrongPort(t *testing.T) {
	t.Parallel()
	s := fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true})
	_, http, _ := strings.Cut(s.URL, "://")
	for _, row := range []struct{ name, server, want string }{
		{"the HTTP port", http, "\n  At " + http + ", the server does not speak HTTP/2: if this is the HTTP port of fetchd (--http-addr, by default 8081), give the gRPC port (--grpc-addr, by default 8080).\n"},
		{"TLS at a plaintext port", "https://" + s.Addr, "\n  At https://" + s.Addr + ", the port does not use TLS: give http://HOST:PORT.\n"},
	} {
		for _, command := range [][]string{{"get", "http://origin.test/"}, {"explain", "--status", "200"}} {
			t.Run(row.name+", "+command[0], func(t *testing.T) {
				t.Parallel()
				if got := fetchctl.Run(t, append(command, "--server", row.server)...); got.Code != cli.ExitService || !strings.HasSuffix(got.Err, row.want) || strings.Count(got.Err, "\n") != 2 {
					t.Errorf("exit status %d, %q; want %d and %q", got.Code, got.Err, cli.ExitService, row.want)
				}
			})
		}
	}
}

// TestForbiddenRedirect checks that the target of a redirect that the egress policy forbids is named.
func TestForbiddenRedirect(t *testing.T) {
	t.Parallel()
	s := fetchdtest.Start(t, fetchdtest.Options{})
	page := s.Origin.URL("http", "/s/k/302:to=http%3A%2F%2F10.0.0.1%3A22%2Fa")
	for _, row := range []struct {
		name, want string
		args       []string
	}{
		{"get", "  the redirect leads to http://10.0.0.1:22/a\n", []string{"get", page}},
		{"download", "  the redirect leads to http://10.0.0.1:22/a\n", []string{"download", "-d", t.TempDir(), page}},
		{"download as JSON", "; the redirect leads to http://10.0.0.1:22/a\"", []string{"download", "-q", "--json", "-d", t.TempDir(), page}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if got := fetchctl.Run(t, append(row.args, "--server", s.Addr)...); got.Code != cli.ExitPermanent || !strings.Contains(got.Err+got.Out, row.want) {
				t.Errorf("exit status %d, %s%s; want %d and %q", got.Code, got.Out, got.Err, cli.ExitPermanent, row.want)
			}
		})
	}
}

// The built program does the same on a signal.
func TestSignals(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), "fetchctl", "get", "-o", filepath.Join(dir, "file"),
				o.URL("http", "/s/"+sig.String()+"/200:size=3000000,stall=1500000"))
			clitest.Must(t, cmd.Start())
			if _, err := o.Await(t.Context(), sig.String(), 1); err != nil {
				t.Fatal(err)
			}
			clitest.Must(t, cmd.Process.Signal(sig))
			err := cmd.Wait()
			if ended, ok := errors.AsType[*exec.ExitError](err); !ok || ended.ExitCode() != cli.ExitInterrupted {
				t.Errorf("after %v: %v, want exit status %d", sig, err, cli.ExitInterrupted)
			}
			clitest.Only(t, dir)
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
		if got := fetchctl(ctx, args, func(string) string { return "" }, cli.Streams{In: in, Out: &out, Err: &told}); got != cli.ExitInterrupted {
			t.Errorf("%v: exit status %d, want %d\n%s", args, got, cli.ExitInterrupted, told.String())
		}
	}
}

// An interrupt leaves parts that the next run continues, and says so.
func TestDownloadInterrupted(t *testing.T) {
	t.Parallel()
	const size, sent = 3_000_000, 1_500_000
	o, dir := rig.Origin(t), t.TempDir()
	url := o.URL("http", fmt.Sprintf("/s/k/200:size=%d,etag=%%22v%%22,range,stall=%d/200:size=%d,etag=%%22v%%22,range", size, sent, size))
	for _, sig := range []syscall.Signal{syscall.SIGINT} {
		cmd := exec.CommandContext(t.Context(), "fetchctl", "download", "-d", dir, "-")
		cmd.Stdin = strings.NewReader(url + " file\n")
		var told strings.Builder
		cmd.Stderr = &told
		clitest.Must(t, cmd.Start())
		rig.Until(t.Context(), t, "all that was sent", func() bool {
			info, err := os.Stat(filepath.Join(dir, "file.part"))
			return err == nil && info.Size() == sent
		})
		clitest.Must(t, cmd.Process.Signal(sig))
		_ = cmd.Wait() // its exit status is looked at
		if code := cmd.ProcessState.ExitCode(); code != cli.ExitInterrupted || !strings.Contains(told.String(), "file  interrupted  1.4 MiB kept for the next run") {
			t.Errorf("exit status %d\n%s", code, told.String())
		}
	}
	clitest.Only(t, dir, "file.part", "file.part.json")
	got := fetchctl.Run(t, "download", "-d", dir, "--json", url) // its name comes from the unfinished file
	var r download.Result
	if err := json.Unmarshal([]byte(got.Out), &r); err != nil || got.Code != cli.ExitOK {
		t.Fatalf("second run: exit status %d, %v\n%s", got.Code, err, got.Err)
	}
	if r.Name != "file" || r.ResumedAt != sent || r.FetchedBytes != size-sent || r.SizeBytes != size || r.Result != "completed" {
		t.Errorf("second run: %+v", r)
	}
	if requests := o.Requests("k"); len(requests) != 2 || requests[0].Header.Get("Range") != "" || requests[1].Header.Get("Range") != "bytes=1500000-" {
		t.Errorf("requests %v", requests)
	}
	clitest.File(t, filepath.Join(dir, "file"), o.Body(size))
}

// failingWriter is a standard output that is full.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestOutputFails(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	env := func(string) string { return "" }
	for _, args := range [][]string{
		{"get", o.URL("http", "/s/full/200:size=2000000")},
		{"get", "-i", o.URL("http", "/s/head/200")},
		{"get", "--json", "-o", os.DevNull, o.URL("http", "/s/json/200")},
		{"explain", "--status", "503"},
		{"explain", "--json", "--status", "503"},
	} {
		var told strings.Builder
		if got := fetchctl(t.Context(), args, env, cli.Streams{In: strings.NewReader(""), Out: failingWriter{}, Err: &told}); got != cli.ExitOutput {
			t.Errorf("%v: exit status %d, want %d\n%s", args, got, cli.ExitOutput, told.String())
		}
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
		{"download --json", []string{"download", "--json", "-q", "-d", t.TempDir(), o.URL + "/" + hostile}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := fetchctl.Run(t, row.args...)
			text := got.Out + got.Err
			if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }) {
				t.Errorf("fetchctl %q printed %q", row.args, text)
			}
			if !strings.HasPrefix(text, "{") {
				t.Fatalf("fetchctl %q printed no JSON: %s", row.args, text)
			}
			found := false
			for dec := json.NewDecoder(strings.NewReader(text)); dec.More(); {
				var v any
				clitest.Must(t, dec.Decode(&v))
				found = found || strings.Contains(fmt.Sprint(v), hostile)
			}
			if !found {
				t.Errorf("fetchctl %q: no value has %q:\n%s", row.args, hostile, text)
			}
		})
	}
}

// TestGetRecordOfServer checks that --record uses the stores of the service that --server names.
func TestGetRecordOfServer(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "stores.yaml")
	clitest.Must(t, os.WriteFile(file, fmt.Appendf(nil, "stores: {crawl: {url: \"warc+file://%s\"}}\n", dir), 0o600))
	addr := fetchdtest.Start(t, fetchdtest.Options{Origin: o, StoresFile: file}).Addr
	got := fetchctl.Run(t, "get", "--server", addr, "--record", "crawl", o.URL("http", "/s/page/200:body=hello"))
	if got.Code != cli.ExitOK || got.Out != "hello" || !strings.Contains(got.Err, "\n  recorded in fetchd-") {
		t.Errorf("exit status %d, %q on standard output; want 0, the body and where the records are\n%s", got.Code, got.Out, got.Err)
	}
	open, err := filepath.Glob(filepath.Join(dir, "*.warc.gz.open"))
	if err != nil || len(open) != 1 {
		t.Fatalf("files %q, %v; want one", open, err)
	}
	if got := fetchctl.Run(t, "warc", "check", open[0]); got.Out != "1 file  3 records: 1 warcinfo, 1 request, 1 response  0 problems\n" {
		t.Errorf("check: exit status %d\n%s%s", got.Code, got.Out, got.Err)
	}
	for _, name := range []string{"other", "crawl"} {
		got := fetchctl.Run(t, "get", "--server", clitest.Server(t), "--record", name, o.URL("http", "/s/never/200"))
		if got.Code != cli.ExitUsage || !strings.Contains(got.Err, "record_policy.store: ") || len(o.Requests("never")) != 0 {
			t.Errorf("a server without store %s: exit status %d, want %d\n%s", name, got.Code, cli.ExitUsage, got.Err)
		}
	}
}
