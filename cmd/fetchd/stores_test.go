package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// TestStoresReload adds, breaks and removes stores while the service runs.
func TestStoresReload(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	const none, first = "stores: {}\n", "stores:\n  a: {url: 'file://DIR/a'}\n"
	write := func(f *folder, text string) string {
		return f.write("stores.yaml", []byte(strings.ReplaceAll(text, "DIR", f.dir)))
	}
	s := start(t, "--stores-file", write(f, none))
	c := s.dial(nil)
	for _, row := range []struct {
		name, text, log string
		code            codes.Code // of a fetch to store a; the egress policy then forbids its target
	}{
		{"a new store", first, `"reloaded","changed":["stores-file"]`, codes.OK},
		{"nothing", first, `"reloaded","changed":[]`, codes.OK},
		{"a broken file", "stores: [", "not reloaded", codes.OK},
		{"for others", strings.Replace(first, "a'}", "a', callers: [somebody]}", 1), `"changed":["stores-file"]`, codes.PermissionDenied},
		{"no store", none, `"changed":["stores-file"]`, codes.InvalidArgument},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := s.in(t)
			write(f.in(t), row.text)
			s.hangup <- nil
			if line := s.await("reloaded"); !strings.Contains(line, row.log) {
				t.Errorf("log line %s, want %s in it", line, row.log)
			}
			_, err := c.FetchUnary(t.Context(), &pb.FetchRequest{Url: "http://127.0.0.1/",
				BodyPolicy: &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Store{Store: &pb.StoreDelivery{Store: "a", Key: "k"}}}})
			if codeOf(err) != row.code {
				t.Errorf("%v, want code %s", err, row.code)
			}
		})
	}
}

// TestClean removes what a killed service left in a directory, and nothing else.
func TestClean(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	left, whole := filepath.Join(f.dir, "a", ".incoming", "left"), filepath.Join(f.dir, "a", "whole")
	for _, file := range []string{left, whole} {
		must(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must(t, os.WriteFile(file, []byte("body"), 0o600))
	}
	file := f.write("stores.yaml", []byte("stores:\n  a: {url: 'file://"+f.dir+"/a'}\n"))
	code, stdout, stderr := command(t, "clean", "--stores-file", file, "--older-than", "0s")
	if code != cli.ExitOK || !strings.Contains(stdout, "a: ") {
		t.Errorf("exit code %d, output %q, %q", code, stdout, stderr)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("%s: %v, want that it is gone", left, err)
	}
	if _, err := os.Stat(whole); err != nil {
		t.Error(err)
	}
	if code, _, stderr := command(t, "clean"); code != cli.ExitUsage || !strings.Contains(stderr, "--stores-file") {
		t.Errorf("without a file: exit code %d, %q", code, stderr)
	}
}

// TestArchives records in the archives of a file that changes. The files are whole when the service
// has stopped, those of an archive that was replaced included.
func TestArchives(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	text := "stores:\n  a: {url: 'warc+file://" + f.dir + "/a', operator: first}\n"
	file := f.write("stores.yaml", []byte(text))
	left := filepath.Join(f.dir, "a", "fetchd-1.warc.gz.open")
	must(t, os.MkdirAll(filepath.Dir(left), 0o700))
	f.write("a/fetchd-1.warc.gz.open", nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	t.Cleanup(server.Close)
	s := start(t, "--stores-file", file, "--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-port", strings.Split(server.URL, ":")[2])
	c := s.dial(nil)
	recorded := func() *pb.WarcRecord {
		out, err := c.FetchUnary(t.Context(), &pb.FetchRequest{Url: server.URL, RecordPolicy: &pb.RecordPolicy{Store: "a"}})
		if err != nil || len(out.GetOutcome().GetRecords()) != 2 {
			t.Fatal(out, err)
		}
		return out.GetOutcome().GetRecords()[1]
	}
	first, again := recorded(), recorded()
	f.write("stores.yaml", []byte(strings.Replace(text, "first", "second", 1)))
	s.hangup <- nil
	s.await(`"reloaded","changed":["stores-file"]`)
	second := recorded()
	if first.GetFile() != again.GetFile() || first.GetFile() == second.GetFile() {
		t.Errorf("files %s, %s, and %s after the change", first.GetFile(), again.GetFile(), second.GetFile())
	}
	s.stop()
	for _, r := range []*pb.WarcRecord{again, second} {
		info, err := os.Stat(filepath.Join(f.dir, "a", r.GetFile()))
		if err != nil || info.Size() != r.GetOffsetBytes()+r.GetLengthBytes() {
			t.Errorf("%s: %v, %v, want that it ends with the record", r.GetFile(), info, err)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(f.dir, "a")); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v, want two files", entries, err)
	}
}
