package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/server/fetchdtest"
	"fetchd/test/rig"
)

// TestGetRecordOfServer checks that --record uses the stores of the service that --server names.
func TestGetRecordOfServer(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "stores.yaml")
	must(t, os.WriteFile(file, fmt.Appendf(nil, "stores: {crawl: {url: \"warc+file://%s\"}}\n", dir), 0o600))
	addr := fetchdtest.Start(t, fetchdtest.Options{Origin: o, StoresFile: file}).Addr
	got := fetchctl(t, "get", "--server", addr, "--record", "crawl", o.URL("http", "/s/page/200:body=hello"))
	if got.code != cli.ExitOK || got.out != "hello" || !strings.Contains(got.err, "\n  recorded in fetchd-") {
		t.Errorf("exit status %d, %q on standard output; want 0, the body and where the records are\n%s", got.code, got.out, got.err)
	}
	open, err := filepath.Glob(filepath.Join(dir, "*.warc.gz.open"))
	if err != nil || len(open) != 1 {
		t.Fatalf("files %q, %v; want one", open, err)
	}
	if got := fetchctl(t, "warc", "check", open[0]); got.out != "1 file  3 records: 1 warcinfo, 1 request, 1 response  0 problems\n" {
		t.Errorf("check: exit status %d\n%s%s", got.code, got.out, got.err)
	}
	for _, name := range []string{"other", "crawl"} {
		got := fetchctl(t, "get", "--server", startServer(t), "--record", name, o.URL("http", "/s/never/200"))
		if got.code != cli.ExitUsage || !strings.Contains(got.err, "record_policy.store: ") || len(o.Requests("never")) != 0 {
			t.Errorf("a server without store %s: exit status %d, want %d\n%s", name, got.code, cli.ExitUsage, got.err)
		}
	}
}

// TestRecordsLost checks that a command fails if its records cannot be kept.
func TestRecordsLost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		lost       bool
		code, want int
	}{
		{"kept", false, cli.ExitOK, cli.ExitOK},
		{"kept after a failure", false, cli.ExitTransient, cli.ExitTransient},
		{"lost", true, cli.ExitOK, cli.ExitOutput},
		{"lost after a failure", true, cli.ExitTransient, cli.ExitTransient},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o, dir := rig.Origin(t), filepath.Join(t.TempDir(), "dir")
			must(t, os.Mkdir(dir, 0o700))
			set, err := openWARC(filepath.Join(dir, "a.warc"))
			must(t, err)
			svc, err := connection{}.connect(set)
			must(t, err)
			_, err = svc.FetchUnary(t.Context(), &pb.FetchRequest{Url: o.URL("http", "/s/page/200"), RecordPolicy: &pb.RecordPolicy{Store: warcStore}})
			svc.Close()
			must(t, err)
			if tt.lost {
				must(t, os.RemoveAll(dir))
			}
			var printed strings.Builder
			a := &app{cli.Program{Name: "fetchctl", Streams: cli.Streams{Err: &printed}, Clean: cli.Escape}}
			if got := closeStores(t.Context(), a, set, tt.code); got != tt.want || (printed.Len() > 0) != tt.lost {
				t.Errorf("exit code %d, want %d; printed %q", got, tt.want, &printed)
			}
		})
	}
}
