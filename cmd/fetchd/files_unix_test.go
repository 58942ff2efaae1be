//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
)

// startWithFiles starts the command with a limit of open files, and returns its first log line and where
// that ends.
func startWithFiles(t *testing.T, limit int, args ...string) (cmd *exec.Cmd, log *output, line string, end int) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, limit), os.Args[0],
		"--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}, args...)...)
	log = new(output)
	cmd.Env, cmd.Stderr = append(os.Environ(), asProgram+"=1"), log
	must(t, cmd.Start())
	line, end = log.await(t, 0, `"msg":"serving"`)
	return cmd, log, line, end
}

// TestNoFiles checks that a process without descriptors ends fetches and lookups as INTERNAL, in one
// attempt, and that it says so: it is its own fault, and says nothing about the origin or its name.
func TestNoFiles(t *testing.T) {
	o := rig.Origin(t)
	const files, fetches = 96, 200
	cmd, log, line, end := startWithFiles(t, files, append(open(o), "--max-fetches", fmt.Sprint(fetches), "--max-connections", "8", "--drain-time", "0s")...)
	warning, _ := log.await(t, end, "a setting needs more files than the process may have open")
	if want := `"setting":"--max-fetches=200","remedy":"needs more files and sockets than the 96 that the process may have open: raise that limit to `; !strings.Contains(warning, want) {
		t.Errorf("warning %s, want %s", warning, want)
	}
	p := &service{T: t}
	p.grpc, _ = addresses(t, line)
	stream, err := p.dial(nil).FetchMany(t.Context())
	must(t, err)
	const held = 120 // more than there are descriptors
	send := func(tag, url string) {
		must(t, stream.Send(&pb.FetchManyRequest{Tasks: []*pb.Task{{Tag: tag, Request: &pb.FetchRequest{Url: url}}}}))
	}
	var unread []*pb.TaskEvent
	next := func() (string, *pb.FetchOutcome) {
		for {
			for len(unread) > 0 {
				a := unread[0]
				if unread = unread[1:]; a.GetEvent().GetOutcome() != nil {
					return a.GetTag(), a.GetEvent().GetOutcome()
				}
			}
			in, err := stream.Recv()
			must(t, err)
			unread = in.GetEvents()
		}
	}
	check := func(tag string, out *pb.FetchOutcome) {
		t.Helper()
		e := out.GetError()
		if e.GetErrorClass() != pb.ErrorClass_ERROR_CLASS_INTERNAL || e.GetReason() != "too_many_open_files" || !e.GetRetryable() || out.GetAttemptCount() != 1 || out.GetExchangeCount() != 0 {
			t.Fatalf("%s: %v, want INTERNAL, too_many_open_files, retryable, after one attempt", tag, out)
		}
	}
	for i := range held {
		send(fmt.Sprint("held ", i), o.URL("http", fmt.Sprintf("/s/held%d/silent", i)))
	}
	tag, out := next()
	check(tag, out) // the first that got no descriptor; those before it hold all
	send("name", "http://name.example/")
	for tag, out = next(); tag != "name"; tag, out = next() {
		check(tag, out)
	}
	check(tag, out)
	if !strings.Contains(out.GetError().GetDetail(), "name.example") {
		t.Errorf("detail %q, want the lookup", out.GetError().GetDetail())
	}
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait() // fetches outlast its drain time
}

// TestFilesLimitCapacity checks that the limits follow from the limit of open files, and that the first
// log line has them.
func TestFilesLimitCapacity(t *testing.T) {
	cmd, _, text, _ := startWithFiles(t, 1024)
	var line struct {
		Fetches     int `json:"max_fetches"`
		Connections int `json:"max_connections"`
		Idle        int `json:"max_idle_connections"`
		Files       int `json:"max_open_files"`
	}
	if err := json.Unmarshal([]byte(text), &line); err != nil || line.Fetches != 240 || line.Connections != 120 || line.Idle != 240 || line.Files != 1024 {
		t.Errorf("%v, line %s, want 240 fetches, 120 connections, 240 idle connections, 1024 files", err, text)
	}
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
