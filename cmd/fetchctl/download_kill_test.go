package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"fetchd/conformance/origin"
	"fetchd/internal/cli"
	"fetchd/test/clitest"
	"fetchd/test/rig"
)

// countingOrigin is an origin that counts the body bytes that it wrote for each
// path, one number for each request, and the ranges that were asked for.
type countingOrigin struct {
	*origin.Origin
	url string

	mu     sync.Mutex
	counts map[string][]int64
	ranges map[string][]string
}

func startCounting(t *testing.T) *countingOrigin {
	t.Helper()
	o := &countingOrigin{Origin: origin.New(origin.Config{}), counts: make(map[string][]int64), ranges: make(map[string][]string)}
	srv := httptest.NewServer(o)
	o.url = srv.URL
	t.Cleanup(func() {
		_ = o.Close()
		srv.Close()
	})
	return o
}

// ServeHTTP implements http.Handler.
func (o *countingOrigin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.Split(r.URL.Path, "/")[2]
	o.mu.Lock()
	n := len(o.counts[key])
	o.counts[key] = append(o.counts[key], 0)
	o.ranges[key] = append(o.ranges[key], r.Header.Get("Range"))
	o.mu.Unlock()
	o.Origin.ServeHTTP(&countingWriter{w, func(wrote int) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.counts[key][n] += int64(wrote)
	}}, r)
}

// written is how many body bytes were written for a key in all requests.
func (o *countingOrigin) written(key string) (n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.counts[key] {
		n += c
	}
	return n
}

type countingWriter struct {
	http.ResponseWriter
	count func(int)
}

func (w *countingWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.count(n)
	return n, err
}

// Unwrap is what http.NewResponseController looks for.
func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A run that is killed in the middle of ten files is continued by the next: no
// file is fetched twice for more than 1 MiB, and all are right.
func TestDownloadKilled(t *testing.T) {
	t.Parallel()
	const (
		files = 10
		size  = 5 << 19
	)
	o, dir := startCounting(t), t.TempDir()
	want := o.Body(size)
	var list, sums strings.Builder
	for i := range files {
		fmt.Fprintf(&list, "%s/s/f%d/200:size=%d,etag=%%22v%%22,range,drip=16384@20ms f%d\n", o.url, i, size, i)
		fmt.Fprintf(&sums, "%s  f%d\n", fmt.Sprintf("%x", sha256.Sum256(want)), i)
	}
	listFile, sumsFile := filepath.Join(t.TempDir(), "list"), filepath.Join(t.TempDir(), "sums")
	for name, text := range map[string]string{listFile: list.String(), sumsFile: sums.String()} {
		clitest.Must(t, os.WriteFile(name, []byte(text), 0o600))
	}
	args := []string{"download", "-d", dir, "-j", "10", "-i", listFile, "--sha256sums", sumsFile}
	cmd := exec.CommandContext(t.Context(), "fetchctl", args...)
	clitest.Must(t, cmd.Start())
	rig.Until(t.Context(), t, "half of every file", func() bool {
		for i := range files {
			if o.written(fmt.Sprintf("f%d", i)) < size/2 {
				return false
			}
		}
		return true
	})
	clitest.Must(t, cmd.Process.Kill())
	err := cmd.Wait()
	if ended, ok := errors.AsType[*exec.ExitError](err); !ok || !ended.Sys().(syscall.WaitStatus).Signaled() { //nolint:errcheck // a test for Unix
		t.Fatalf("the first run was not killed: %v", err)
	}
	if done, _ := filepath.Glob(filepath.Join(dir, "f?")); len(done) > 0 {
		t.Fatalf("%v are there already: the test is too slow", done)
	}
	got := fetchctl.Run(t, args...)
	if got.Code != cli.ExitOK || !strings.Contains(got.Err, "10 completed, 0 failed") {
		t.Fatalf("second run: exit status %d\n%s", got.Code, got.Err)
	}
	var most int64
	for i := range files {
		key := fmt.Sprintf("f%d", i)
		clitest.File(t, filepath.Join(dir, key), want)
		twice := o.written(key) - size
		most = max(most, twice)
		if twice > 1<<20 {
			t.Errorf("%s: %d bytes were fetched twice (%v)", key, twice, o.ranges[key])
		}
	}
	t.Logf("at most %d bytes of a file were fetched twice", most)
	clitest.Only(t, dir, ".fetchctl-urls", "f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9")
}
