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
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/wait"
	"fetchd/test/rig"
)

// TestKill kills fetchd again and again while it records. A record that an outcome has named must be
// in its file after each kill. The next start must make each .open file a closed one, with all its
// whole records and nothing more.
func TestKill(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, 10*time.Minute)
	kills, o, dir := pick(10, 50), startSite(t), t.TempDir()
	urls := pages(o, 3000)
	var (
		mu       sync.Mutex
		outcomes []*pb.FetchOutcome
		checked  int                      // outcomes of earlier processes
		torn     int                      // .open files that ended inside a record
		whole    = make(map[string]int64) // lengths that .open files must have when they are closed
	)
	for i := range kills {
		s := start(ctx, t, entry{URL: "warc+file://" + dir, MaxFileBytes: 300_000}, resolving(o)...)
		wantRecovered(ctx, t, dir, whole)
		named := make(chan struct{}, 1)
		var callers sync.WaitGroup
		for caller := range 4 {
			callers.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), uint64(caller)))
				all := func(yield func(*pb.FetchRequest) bool) {
					for n := 0; ; n++ {
						next := request(urls[random.IntN(len(urls))])
						if n%8 == 0 { // its record is written in many pieces
							next = request(o.URL("large", fmt.Sprintf("/s/large/200:size=%d", 4<<20)))
						}
						if !yield(next) {
							return // the service was killed
						}
					}
				}
				for result, err := range s.client.Many(ctx, all, client.ManyOptions{Open: 8}) {
					if result == nil || result.Outcome == nil {
						if err == nil {
							t.Error("no outcome and no error")
						}
						return // the service was killed
					}
					mu.Lock()
					outcomes = append(outcomes, result.Outcome)
					mu.Unlock()
					select {
					case named <- struct{}{}:
					default:
					}
				}
			})
		}
		<-named
		wait.For(ctx, time.Duration(rand.IntN(500))*time.Millisecond) // any moment
		s.Signal(syscall.SIGKILL)
		<-s.Gone
		callers.Wait()
		for _, out := range outcomes[checked:] {
			for _, named := range out.GetRecords() {
				wantThere(t, dir, named)
			}
		}
		checked = len(outcomes)
		for _, file := range openFiles(t, dir) {
			if i%3 == 0 {
				tear(t, file)
			}
			length, size := wholeMembers(t, file)
			whole[strings.TrimSuffix(file, ".open")] = length
			if length < size {
				torn++
			}
		}
	}
	s := start(ctx, t, entry{URL: "warc+file://" + dir, MaxFileBytes: 300_000}, resolving(o)...)
	wantRecovered(ctx, t, dir, whole)
	files := s.stopped(dir)
	records, faults := newChecker(t).run(ctx, t, append([]string{"--killed"}, files...)...)
	if faults != "" {
		t.Errorf("check.mjs: %.2000s", faults)
	}
	byID := make(map[string]record)
	for _, r := range records {
		byID[r.ID] = r
	}
	named := 0
	for _, out := range outcomes {
		for _, n := range out.GetRecords() {
			named++
			if r, ok := byID[n.GetRecordId()]; !ok {
				t.Errorf("the record %v is in no file", n)
			} else {
				wantPlace(t, n, r)
			}
		}
	}
	t.Logf("%d kills: %d files with %d records, %d named by outcomes; %d files ended inside a record", kills, len(files), len(records), named, torn)
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

// wholeMembers returns the length of the whole members of a file, and the length of the file.
func wholeMembers(t *testing.T, file string) (whole, size int64) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in := bytes.NewReader(text) // an io.ByteReader, so gzip does not read more than a member
	for z := new(gzip.Reader); ; {
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
	return whole, in.Size()
}
