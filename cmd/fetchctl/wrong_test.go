package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/server/fetchdtest"
	testrig "fetchd/test/rig"
)

// TestWrongAnswers runs the commands with a service whose answers lack one field or event, or have a wrong one. Each
// ends, none takes a part of a file for all of it, and nothing is printed that a terminal obeys.
func TestWrongAnswers(t *testing.T) {
	t.Parallel()
	real := fetchdtest.Start(t, fetchdtest.Options{})
	body := string(real.Origin.Body(2000))
	script, names := new(testrig.Script), []string{}
	for _, path := range []string{"/s/wrong1/503/302:to=%2Fs%2Fwrong2%2F200:size=2000", "/s/wrong3/404:body=gone"} {
		r := &pb.FetchRequest{Url: real.Origin.URL("http", path), EventLevel: pb.EventLevel_EVENT_LEVEL_ALL}
		for name, events := range testrig.Wrong(testrig.Record(t, real.Client, r)) {
			script.Events, names = append(script.Events, events), append(names, path+": "+name)
		}
	}
	addr := fetchdtest.Start(t, fetchdtest.Options{Fake: script}).Addr
	commands := [][]string{
		{"get", "-o", "FILE"}, {"get", "-v", "-o", "FILE"}, {"get", "-i", "-v"}, {"get", "--json", "-o", "FILE"},
		{"download", "-r", "0", "-d", "FOLDER"}, {"download", "--json", "-r", "0", "-d", "FOLDER"},
	}
	try := func(n int, args []string) {
		folder, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			t.Error(err)
			return
		}
		file := filepath.Join(folder, "file")
		args = strings.Split(strings.NewReplacer("FILE", file, "FOLDER", folder).Replace(strings.Join(args, "\n")), "\n")
		got := fetchctl.With(t.Context(), "", nil, append(args, "--server", addr, script.URL(n))...)
		if args[1] == "-i" {
			got.Out = strings.TrimSuffix(got.Out, testrig.Hostile) // the body is printed as it is
		}
		if strings.ContainsAny(got.Err+got.Out, "\x00\x1b\x07\u202e\u2028") {
			t.Errorf("%s, %s: prints %q", args[:3], names[n], got.Err+got.Out)
		}
		if got.Code != cli.ExitOK {
			return
		}
		if args[0] == "download" {
			file = filepath.Join(folder, fmt.Sprint(n))
		}
		saved, err := os.ReadFile(file)
		if right := err == nil && string(saved) == body || args[1] == "-i" && strings.HasSuffix(got.Out, body); !right {
			t.Errorf("%s, %s: exit status 0 and %d bytes, %v\n%s", args[:3], names[n], len(saved), err, got.Err)
		}
	}
	began, next := time.Now(), make(chan int)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for n := range next {
				try(n, commands[n%len(commands)])
				if strings.Contains(names[n], ".outcome.") || strings.Contains(names[n], ".response_started.") {
					try(n, []string{"download", "-r", "0", "-d", "FOLDER"})
				}
			}
		})
	}
	for n := range names {
		next <- n
	}
	close(next)
	workers.Wait()
	t.Logf("%d wrong answers in %v", len(names), time.Since(began))
}

// TestHeartbeatsOnly: a service that sends nothing else meets --timeout.
func TestHeartbeatsOnly(t *testing.T) {
	t.Parallel()
	addr := fetchdtest.Start(t, fetchdtest.Options{Fake: new(testrig.Script)}).Addr
	if got := fetchctl.Run(t, "get", "--server", addr, "--timeout", "100ms", "http://script.test/endless"); got.Code != cli.ExitService {
		t.Errorf("exit status %d, want %d\n%s", got.Code, cli.ExitService, got.Err)
	}
}
