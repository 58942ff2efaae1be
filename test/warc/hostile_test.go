//go:build linux

package warc

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"fetchd/test/must"
	"fetchd/test/rig"
)

// evil are bytes that a terminal obeys, that hide text, or that are not text. Each is between two
// words.
var evil = map[string]string{
	"escape sequence":      "x\x1b[31mEVIL\x1b[0my",
	"title":                "x\x1b]0;EVIL\x07y",
	"NUL":                  "x\x00EVIL",
	"carriage return":      "x\rEVIL",
	"backspaces":           "x\b\b\bEVIL\x7f",
	"invalid UTF-8":        "x\xff\xfeEVIL\xc3",
	"C1 control":           "x\x9b31mEVIL\x85y",
	"C1 control in UTF-8":  "x\u009b31mEVIL",
	"direction of writing": "x\u202eEVIL\u2066y",
	"zero-width and tag":   "x\u200b\U000e0041EVIL",
	"line separators":      "x\u2028EVIL\u2029y",
}

// places are the parts of a response into which the bytes are put.
var places = map[string]string{
	"reason":       "HTTP/1.1 200 %s\r\nContent-Length: 2\r\n\r\nok",
	"failed":       "HTTP/1.1 500 %s\r\nContent-Length: 2\r\n\r\nno",
	"name":         "HTTP/1.1 200 OK\r\nX-%s: a\r\nContent-Length: 2\r\n\r\nok",
	"value":        "HTTP/1.1 200 OK\r\nX-A: %s\r\nContent-Length: 2\r\n\r\nok",
	"content type": "HTTP/1.1 200 OK\r\nContent-Type: text/%s; charset=%[1]s\r\nContent-Length: 2\r\n\r\nok",
	"location":     "HTTP/1.1 302 Found\r\nLocation: /%s\r\nContent-Length: 0\r\n\r\n",
	"etag":         "HTTP/1.1 200 OK\r\nETag: \"%s\"\r\nServer: %[1]s\r\nContent-Length: 2\r\n\r\nok",
	"body":         "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s",
	"failed body":  "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n%s",
	"chunk":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;%s\r\nx\r\n0\r\nX-T: %[1]s\r\n\r\n",
	"no HTTP":      "%s",
}

// startHostile starts an origin that answers each request with the response of its path, and returns its
// address and the paths.
func startHostile(t *testing.T) (address string, paths []string) {
	t.Helper()
	responses := make(map[string]string)
	for place, response := range places {
		for name, bytes := range evil {
			path := strings.ReplaceAll(fmt.Sprintf("/%s/%s", place, name), " ", "-")
			responses[path] = fmt.Sprintf(response, bytes)
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	var running sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				req, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				response, ok := responses[req.URL.Path]
				if !ok {
					response = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
				}
				_, _ = conn.Write([]byte(response)) // the client may leave
			})
		}
	})
	return l.Addr().String(), paths
}

// TestHostile fetches hostile bytes. They must be in the records, and never reach a log or a terminal
// as they are.
func TestHostile(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, 3*time.Minute)
	address, paths := startHostile(t)
	dir, work := t.TempDir(), t.TempDir()
	urls := make([]string, len(paths))
	for i, path := range paths {
		urls[i] = "http://" + address + path
	}
	s := start(ctx, t, entry{URL: "warc+file://" + dir}, "--egress-allow-port", portOf(t, address), "--log-level", "debug")
	s.fetchAll(ctx, urls)
	db, list := filepath.Join(work, "frontier.db"), filepath.Join(work, "urls")
	must.Succeed(t, os.WriteFile(list, []byte(strings.Join(urls, "\n")), 0o600))
	for _, args := range [][]string{
		{"add", "--db", db, "--input", list},
		{"crawl", "--db", db, "--server", s.GRPC, "--warc", "archive", "--outcomes", "-", "--delay", "1ms", "--accept", "any", "--max-url-retries", "0", "--ignore-robots",
			"--keep-header", "X-A", "--log-level", "debug"},
		{"export", "--db", db, "--what", "fetches"}, {"export", "--db", db},
		{"status", "--db", db, "--classes"}, {"why", "--db", db, urls[0]},
	} {
		wantClean(ctx, t, rig.Program("frontier"), args...)
	}
	for i, u := range urls {
		if i%rig.Pick("FETCHD_WARC", 7, 1) == 0 { // a process takes a moment
			wantClean(ctx, t, rig.Program("fetchctl"), "get", "--server", s.GRPC, "--record", "archive", u)
		}
	}
	files := s.stopped(dir)
	wantText(t, "fetchd's log", s.Logged.String(), "\n")
	records := newChecker(t).read(ctx, t, files...)
	wantClean(ctx, t, rig.Program("fetchctl"), append([]string{"warc", "check"}, files...)...)
	wantClean(ctx, t, rig.Program("fetchctl"), append([]string{"warc", "index"}, files...)...)
	wantRecorded(t, files)
	rig.AtLeast(t, "records", len(records), 2*len(urls))
}

// wantRecorded checks that the hostile bytes are in the records.
func wantRecorded(t *testing.T, files []string) {
	t.Helper()
	var all bytes.Buffer
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		for _, m := range split(t, text) {
			all.Write(m.text)
		}
	}
	for place, response := range places {
		for name, bytes := range evil {
			if !strings.Contains(all.String(), fmt.Sprintf(response, bytes)) {
				t.Errorf("no record has the %s in the %s", name, place)
			}
		}
	}
}

// wantClean runs a program with a terminal and without one, and checks what it writes. Its exit code does
// not matter.
func wantClean(ctx context.Context, t *testing.T, program string, args ...string) {
	t.Helper()
	what := filepath.Base(program) + " " + strings.Join(args[:min(2, len(args))], " ")
	out, faults, _ := run(ctx, t, program, args...)
	wantText(t, what+": standard error", faults, "\n")
	if args[0] != "get" { // the body, which is unchanged unless it goes to a terminal
		wantText(t, what, out, "\n")
	}
	if out == "" && faults == "" && args[0] != "add" {
		t.Errorf("%s writes nothing", what)
	}
	quoted := []string{"exec", program}
	for _, arg := range args {
		quoted = append(quoted, "'"+strings.ReplaceAll(arg, "'", `'\''`)+"'")
	}
	cmd := exec.CommandContext(ctx, "script", "--quiet", "--command", strings.Join(quoted, " "), "/dev/null")
	cmd.Env = append(os.Environ(), "TERM=dumb")
	shown, _ := cmd.CombinedOutput()                                                          // the exit code is that of script
	wantText(t, what+" on a terminal", strings.ReplaceAll(string(shown), "\r\n", "\n"), "\n") // a terminal adds carriage returns
}

// wantText fails the test if a text has bytes that are not printable, except for those of allowed.
func wantText(t *testing.T, what, text, allowed string) {
	t.Helper()
	for i, r := range text {
		bad := !unicode.IsPrint(r) && !strings.ContainsRune(allowed, r)
		if r == utf8.RuneError {
			_, size := utf8.DecodeRuneInString(text[i:])
			bad = size == 1
		}
		if bad {
			t.Errorf("%s has the bytes %q", what, text[max(0, i-60):min(len(text), i+30)])
			return
		}
	}
}
