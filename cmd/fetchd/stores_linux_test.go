package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "fetchd/gen/fetchd/v1"
)

// descriptors returns how many directories below a folder this process has open.
func (f *folder) descriptors() (n int) {
	f.Helper()
	const fds = "/proc/self/fd"
	all, err := os.ReadDir(fds)
	must(f, err)
	for _, fd := range all {
		if at, err := os.Readlink(filepath.Join(fds, fd.Name())); err == nil && strings.HasPrefix(at, f.dir+"/") && filepath.Ext(at) == "" {
			n++
		}
	}
	return n
}

// awaitDescriptors looks at the files 20 times, in at least 90 ms, or until want descriptors are open.
// After a long time, the garbage collector would have closed what was forgotten.
func (s *service) awaitDescriptors(f *folder, want int) {
	s.Helper()
	every := time.NewTicker(5 * time.Millisecond)
	defer every.Stop()
	for range 20 {
		if f.descriptors() == want {
			return
		}
		<-every.C
		s.look <- time.Time{}
	}
	s.Fatalf("%d descriptors are open, want %d", f.descriptors(), want)
}

// TestStoresReloadCloses replaces and breaks stores many times. The old ones are closed when the
// longest fetch has ended.
func TestStoresReloadCloses(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	write := func(text string) string {
		return f.write("stores.yaml", []byte("stores:\n"+strings.ReplaceAll(text, "DIR", f.dir)))
	}
	const kept = "  kept: {url: 'file://DIR/kept'}\n"
	s := start(t, "--max-total-timeout", "10ms", "--stores-file", write(kept))
	for i := range 10 {
		a := fmt.Sprintf("  a: {url: 'file://DIR/a', prefix: p%d}\n", i)
		write(kept + a)
		s.reload(`"reloaded"`)
		write(a + "  b: {}\n")
		s.reload("not reloaded")
	}
	s.awaitDescriptors(f, 2)
	write(kept)
	s.reload(`"reloaded"`)
	s.awaitDescriptors(f, 1)
	s.stop()
	if n := f.descriptors(); n != 0 {
		t.Errorf("%d descriptors are open after the end", n)
	}
}

// TestStoreRemovedInFlight removes a store while a fetch waits for its origin. The fetch still stores
// its body, and the end of the service closes the store.
func TestStoreRemovedInFlight(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}), make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		_, _ = w.Write([]byte("body"))
	}))
	defer origin.Close()
	at, err := url.Parse(origin.URL)
	must(t, err)
	f := newFolder(t)
	file := f.write("stores.yaml", []byte("stores:\n  a: {url: 'file://"+f.dir+"/a'}\n"))
	s := start(t, "--stores-file", file, "--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-port", at.Port())
	c := s.dial(nil)
	done := make(chan error, 1)
	go func() {
		out, err := c.FetchUnary(t.Context(), &pb.FetchRequest{Url: origin.URL,
			BodyPolicy: &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Store{Store: &pb.StoreDelivery{Store: "a", Key: "k"}}}})
		if err == nil && out.GetOutcome().GetStoredObject().GetKey() != "k" {
			err = fmt.Errorf("the outcome is %v", out.GetOutcome())
		}
		done <- err
	}()
	<-asked
	f.write("stores.yaml", nil)
	s.look <- time.Time{}
	s.await(`"reloaded"`)
	s.look <- time.Time{}
	close(answer)
	if err := <-done; err != nil {
		t.Error(err)
	}
	s.stop()
	if n := f.descriptors(); n != 0 {
		t.Errorf("%d descriptors are open after the end", n)
	}
}
