//go:build linux

package warc

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fetchd/client"
	"fetchd/cmd/frontier/site"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

// killing is a folder of records, and what was asked of the services that were killed.
type killing struct {
	*testing.T
	site *site.Site
	urls []string
	dir  string

	mu       sync.Mutex
	outcomes []*pb.FetchOutcome

	checked int              // outcomes of earlier services
	whole   map[string]int64 // lengths that .open files must have when they are closed
	torn    int              // .open files that ended inside a record
}

// TestKill kills fetchd again and again while it records. A record that an outcome has named must be
// in its file after each kill. The next start must make each .open file a closed one, with all its
// whole records and nothing more.
func TestKill(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, 10*time.Minute)
	kills, o := rig.Pick("FETCHD_WARC", 10, 50), rig.Site(t, site.Config{})
	k := &killing{T: t, site: o, urls: pages(o, 3000), dir: t.TempDir(), whole: make(map[string]int64)}
	archive := entry{URL: "warc+file://" + k.dir, MaxFileBytes: 300_000}
	for i := range kills {
		s := start(ctx, t, archive, resolving(o)...)
		wantRecovered(ctx, t, k.dir, k.whole)
		named := make(chan struct{}, 1)
		var callers sync.WaitGroup
		for caller := range 4 {
			callers.Go(func() { k.fetch(ctx, s, rand.New(rand.NewPCG(uint64(i), uint64(caller))), named) })
		}
		<-named
		wait.For(ctx, time.Duration(rand.IntN(500))*time.Millisecond) // any moment
		s.Signal(syscall.SIGKILL)
		<-s.Gone
		callers.Wait()
		k.look(i%3 == 0)
	}
	s := start(ctx, t, archive, resolving(o)...)
	wantRecovered(ctx, t, k.dir, k.whole)
	files := s.stopped(k.dir)
	records, faults := newChecker(t).run(ctx, t, append([]string{"--killed"}, files...)...)
	if faults != "" {
		t.Errorf("check.mjs: %.2000s", faults)
	}
	t.Logf("%d kills: %d files with %d records, %d named by outcomes; %d files ended inside a record",
		kills, len(files), len(records), k.wantAll(records), k.torn)
}

// fetch records pages until the service is killed. It sends to named when an outcome has arrived.
func (k *killing) fetch(ctx context.Context, s *service, random *rand.Rand, named chan<- struct{}) {
	all := func(yield func(*pb.FetchRequest) bool) {
		for n := 0; ; n++ {
			next := request(k.urls[random.IntN(len(k.urls))])
			if n%8 == 0 { // its record is written in many pieces
				next = request(k.site.URL("large", fmt.Sprintf("/s/large/200:size=%d", 4<<20)))
			}
			if !yield(next) {
				return
			}
		}
	}
	for result, err := range s.client.Many(ctx, all, client.ManyOptions{Open: 8}) {
		if result == nil || result.Outcome == nil {
			if err == nil {
				k.Error("no outcome and no error")
			}
			return // the service was killed
		}
		k.mu.Lock()
		k.outcomes = append(k.outcomes, result.Outcome)
		k.mu.Unlock()
		select {
		case named <- struct{}{}:
		default:
		}
	}
}

// look checks the files after a kill. If tearing, it appends a part of a record to each .open file.
func (k *killing) look(tearing bool) {
	k.Helper()
	for _, out := range k.outcomes[k.checked:] {
		for _, named := range out.GetRecords() {
			wantThere(k.T, k.dir, named)
		}
	}
	k.checked = len(k.outcomes)
	for _, file := range openFiles(k.T, k.dir) {
		if tearing {
			tear(k.T, file)
		}
		length, size := wholeMembers(k.T, file)
		k.whole[strings.TrimSuffix(file, ".open")] = length
		if length < size {
			k.torn++
		}
	}
}

// wantAll checks that every record that an outcome has named is where it says, and returns their
// number.
func (k *killing) wantAll(records []record) int {
	k.Helper()
	byID := make(map[string]record)
	for _, r := range records {
		byID[r.ID] = r
	}
	named := 0
	for _, out := range k.outcomes {
		for _, n := range out.GetRecords() {
			named++
			if r, ok := byID[n.GetRecordId()]; !ok {
				k.Errorf("the record %v is in no file", n)
			} else {
				wantPlace(k.T, n, r)
			}
		}
	}
	return named
}

// wantRecovered waits until the service has closed the files of the killed ones, and compares their
// lengths with those of their whole records.
func wantRecovered(ctx context.Context, t *testing.T, dir string, whole map[string]int64) {
	t.Helper()
	rig.Until(ctx, t, "the files of the killed service are closed", func() bool {
		return !slices.ContainsFunc(openFiles(t, dir), func(file string) bool {
			_, ok := whole[strings.TrimSuffix(file, ".open")]
			return ok
		})
	})
	for file, want := range whole {
		info, err := os.Stat(file)
		if want == 0 && errors.Is(err, fs.ErrNotExist) {
			continue // a file without records is removed
		}
		if err != nil {
			t.Error(err)
		} else if info.Size() != want {
			t.Errorf("%s has %d bytes, and its whole records had %d", file, info.Size(), want)
		}
	}
	clear(whole)
}

// wantThere checks that a record is where an outcome says, in a closed file or in an .open one.
func wantThere(t *testing.T, dir string, named *pb.WarcRecord) {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, named.GetFile()))
	if errors.Is(err, fs.ErrNotExist) {
		file, err = os.Open(filepath.Join(dir, named.GetFile()+".open"))
	}
	if err != nil {
		t.Error(err)
		return
	}
	defer file.Close()
	member := make([]byte, named.GetLengthBytes())
	if _, err := file.ReadAt(member, named.GetOffsetBytes()); err != nil {
		t.Errorf("%v: %v", named, err)
		return
	}
	texts := split(t, member)
	if len(texts) != 1 || !bytes.Contains(texts[0].text, []byte("\r\nWARC-Record-ID: <"+named.GetRecordId()+">\r\n")) {
		t.Errorf("%d members are at the place of %v", len(texts), named)
	}
}

// tear appends the beginning of a record to a file, as a loss of power may leave it.
func tear(t *testing.T, file string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	begin := make([]byte, 100)
	n, err := f.ReadAt(begin, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if _, err := f.Write(begin[:n]); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// wholeMembers returns the length of the whole members of a file, and the length of the file. It is 0
// if there is no record except warcinfo.
func wholeMembers(t *testing.T, file string) (whole, size int64) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in := bytes.NewReader(text) // an io.ByteReader, so gzip does not read more than a member
	members := 0
	for z := new(gzip.Reader); ; members++ {
		if err = z.Reset(in); err != nil {
			break
		}
		z.Multistream(false)
		if _, err = io.Copy(io.Discard, z); err != nil {
			break
		}
		whole = in.Size() - int64(in.Len())
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%s is damaged after %d bytes: %v", file, whole, err)
	}
	if members <= 1 {
		whole = 0
	}
	return whole, in.Size()
}
