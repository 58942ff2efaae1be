package stores_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fetchd/internal/budget"
	"fetchd/stores"
)

// files returns the names of all files below dir, without those of directories.
func files(t testing.TB, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, err = filepath.Rel(dir, name)
			names = append(names, filepath.ToSlash(name))
		}
		return err
	})
	must(t, err)
	return names
}

func wantFiles(t testing.TB, dir string, want ...string) {
	t.Helper()
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("the files are %q, want %q", got, want)
	}
}

// TestFile checks that a file has its name when it is complete, and not before.
func TestFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a b", "c")
	little, memory := budget.New(128<<10), budget.New(2<<20) // little: the larger buffer is refused
	s := open(t, stores.Config{URL: "file://" + filepath.ToSlash(dir), Prefix: "crawl"})
	for _, row := range []struct {
		name, key string
		size      int
		want      string
	}{
		{"large", "a/large", 1_000_000, "crawl/a/large"},
		{"with little memory", "a/large", 1_000_001, "crawl/a/large"},
		{"with a key", "a/b/c.html", 100_000, "crawl/a/b/c.html"},
		{"again", "a/b/c.html", 100, "crawl/a/b/c.html"},
		{"empty", "a/empty", 0, "crawl/a/empty"},
		{"named by its digest", "", 4, "crawl/sha256/" + digest(random(4))[:2] + "/" + digest(random(4))},
	} {
		if row.name == "with little memory" {
			memory, little = little, memory
		}
		lease := memory.Lease("caller")
		before, body := files(t, dir), random(row.size)
		u, err := s.Begin(t.Context(), stores.Object{Key: row.key, Size: -1, Memory: lease})
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		if n, err := u.Write(body); n != len(body) || err != nil {
			t.Fatalf("%s: Write = %d, %v", row.name, n, err)
		}
		if now := slices.DeleteFunc(files(t, dir), func(name string) bool { return strings.HasPrefix(name, ".incoming/") }); !slices.Equal(before, now) {
			t.Errorf("%s: %q before Commit, want %q", row.name, now, before)
		}
		got, err := u.Commit(digest(body))
		want := stores.Stored{Key: strings.TrimPrefix(row.want, "crawl/"), Size: int64(row.size), SHA256: digest(body)}
		if got != want || err != nil {
			t.Errorf("%s: Commit = %+v, %v, want %+v", row.name, got, err, want)
		}
		name := filepath.Join(dir, filepath.FromSlash(row.want))
		if there, err := os.ReadFile(name); !bytes.Equal(there, body) || err != nil {
			t.Errorf("%s: the file has %d bytes, %v, want %d", row.name, len(there), err, len(body))
		}
		lease.Close()
	}
	wantFiles(t, dir, "crawl/a/b/c.html", "crawl/a/empty", "crawl/a/large", "crawl/sha256/"+digest(random(4))[:2]+"/"+digest(random(4)))
	if got, want := s.Stats(), (stores.Stats{Up: true, Committed: 6, Bytes: 2_100_105}); got != want || memory.Usage().Total() != 0 {
		t.Errorf("Stats = %+v, want %+v; %d bytes are charged", got, want, memory.Usage().Total())
	}
}

// TestMode checks the permissions of files and directories. It is not parallel, because the umask is
// that of the process.
func TestMode(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o027))
	dir := filepath.Join(t.TempDir(), "dir")
	s := open(t, stores.Config{URL: "file://" + dir})
	if _, err := upload(t.Context(), s, stores.Object{Key: "a/b", Size: -1}, nil, 1); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{".": 0o750, "a": 0o750, "a/b": 0o640} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has the mode %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
}

// TestFileNotCommitted checks that an upload that does not end well leaves nothing, and that its
// faults are not those of the store.
func TestFileNotCommitted(t *testing.T) {
	t.Parallel()
	const body = "hello"
	for _, row := range []struct {
		name   string
		object stores.Object
		digest string
		want   error // nil: any
	}{
		{"another digest than announced", stores.Object{Size: -1, SHA256: digest("other")}, digest(body), nil},
		{"no digest", stores.Object{Size: -1}, "", nil},
		{"a digest that is a path", stores.Object{Size: -1}, "../../../" + digest(body)[9:], nil},
		{"shorter than announced", stores.Object{Size: 6}, digest(body), nil},
		{"longer than announced", stores.Object{Size: 4}, digest(body), nil},
		{"too large, announced", stores.Object{Size: 11}, digest(body), stores.ErrTooLarge},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, stores.Config{URL: "file://" + dir, MaxObjectBytes: 10})
			memory := budget.New(128 << 10)
			row.object.Memory = memory.Lease("caller")
			defer row.object.Memory.Close()
			u, err := s.Begin(t.Context(), row.object)
			if err == nil {
				if _, err = u.Write([]byte(body)); err == nil {
					_, err = u.Commit(row.digest)
				}
				u.Abort()
			}
			if err == nil || row.want != nil && !errors.Is(err, row.want) {
				t.Errorf("Commit = %v, want an error", err)
			}
			wantFiles(t, dir)
			if stats := s.Stats(); stats.Failed != 0 || stats.Committed != 0 || memory.Usage().Total() != 0 {
				t.Errorf("%+v, with %d bytes charged", stats, memory.Usage().Total())
			}
		})
	}
}

// TestTooLarge checks the size limit of a store at its byte.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, stores.Config{URL: "file://" + dir, MaxObjectBytes: 10})
	if got := s.MaxObjectBytes(); got != 10 {
		t.Errorf("MaxObjectBytes = %d, want 10", got)
	}
	if got := open(t, s3Config()).MaxObjectBytes(); got != 10_000*part {
		t.Errorf("MaxObjectBytes of S3 = %d, want 10,000 parts", got)
	}
	if _, err := upload(t.Context(), s, stores.Object{Key: "fits", Size: -1}, random(10), 3); err != nil {
		t.Errorf("10 bytes: %v", err)
	}
	if _, err := upload(t.Context(), s, stores.Object{Key: "large", Size: -1}, random(11), 3); !errors.Is(err, stores.ErrTooLarge) {
		t.Errorf("11 bytes: %v, want ErrTooLarge", err)
	}
	wantFiles(t, dir, "fits")
}

// TestFileCancel ends the context before each step.
func TestFileCancel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, stores.Config{URL: "file://" + dir})
	why := errors.New("the caller hung up")
	for step := range 3 {
		ctx, cancel := context.WithCancelCause(t.Context())
		end := func(n int) {
			if n == step {
				cancel(why)
			}
		}
		end(0)
		u, err := s.Begin(ctx, stores.Object{Key: "a", Size: -1})
		if err == nil {
			end(1)
			if _, err = u.Write([]byte("a")); err == nil {
				end(2)
				_, err = u.Commit(digest("a"))
			}
			u.Abort()
		}
		if !errors.Is(err, why) {
			t.Errorf("the context ends before step %d: %v, want its cause", step, err)
		}
	}
	must(t, s.Close(t.Context()))
	wantFiles(t, dir)
}

// TestFileRefused checks keys that the file system rejects: the caller chose them, so the store stays
// up.
func TestFileRefused(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir := filepath.Join(base, "dir")
	s := open(t, stores.Config{URL: "file://" + dir})
	outside := filepath.Join(base, "outside")
	theirs := filepath.Join(outside, "theirs")
	if err := errors.Join(os.Mkdir(outside, 0o755), os.Symlink("../outside", filepath.Join(dir, "link")), os.Symlink(outside, filepath.Join(dir, "absolute")),
		os.Symlink("loop", filepath.Join(dir, "loop")), os.WriteFile(theirs, nil, 0o600), os.Symlink(theirs, filepath.Join(dir, "replaced"))); err != nil {
		t.Fatal(err)
	}
	if _, err := upload(t.Context(), s, stores.Object{Key: "file", Size: -1}, nil, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := upload(t.Context(), s, stores.Object{Key: "dir/file", Size: -1}, nil, 1); err != nil {
		t.Fatal(err)
	}
	for round := range 3 { // a breaker would open
		for _, key := range []string{"file/below", "dir", "link/a", "absolute/a", "link/b/c", "loop/a", "replaced/a"} {
			_, err := upload(t.Context(), s, stores.Object{Key: key, Size: -1}, []byte("body"), 4)
			failure, ok := errors.AsType[*stores.Error](err)
			if !ok || failure.Reason() != stores.ReasonError || strings.Contains(failure.Detail(), base) {
				t.Errorf("round %d: %s = %v, want store_error without the path in its detail", round, key, err)
				continue
			}
			if strings.Contains(failure.Detail(), "no valid response") {
				t.Errorf("round %d: %s: detail %q, want what the file system says", round, key, failure.Detail())
			}
		}
	}
	if err := s.Ready(); err != nil {
		t.Errorf("Ready = %v: a caller closed the store to others", err)
	}
	if _, err := upload(t.Context(), s, stores.Object{Key: "replaced", Size: -1}, []byte("body"), 4); err != nil {
		t.Errorf("a key that is a link to a file: %v, want that it replaces the link", err)
	}
	if text, err := os.ReadFile(theirs); err != nil || len(text) > 0 {
		t.Errorf("a file outside of the store has %q, %v", text, err)
	}
	wantFiles(t, dir, "absolute", "dir/file", "file", "link", "loop", "replaced")
	wantFiles(t, outside, "theirs")
}

// TestReservedThroughLink checks that no key leads to .incoming through a link to the root, which the
// file system would follow.
func TestReservedThroughLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, stores.Config{URL: "file://" + dir, Prefix: "crawl"})
	must(t, errors.Join(os.Mkdir(filepath.Join(dir, "crawl"), 0o755), os.Symlink("..", filepath.Join(dir, "crawl", "up"))))
	for _, key := range []string{"up/.incoming/x", "up/.INCOMING/x", "up/.incoming"} {
		if _, err := upload(t.Context(), s, stores.Object{Key: key, Size: -1}, []byte("body"), 4); err == nil {
			t.Errorf("%s was written, want it refused", key)
		}
	}
	if _, err := upload(t.Context(), s, stores.Object{Key: "up/other/x", Size: -1}, []byte("body"), 4); err != nil {
		t.Errorf("another directory behind the link: %v", err)
	}
	wantFiles(t, dir, "crawl/up", "other/x")
}

// TestReplacedDirectory replaces the directory of a store. The next object is in the new one.
func TestReplacedDirectory(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		replace func(t *testing.T, dir string, put func() error)
	}{
		{"by a new one", func(t *testing.T, dir string, _ func() error) {
			must(t, errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o755)))
		}},
		{"removed and created", func(t *testing.T, dir string, _ func() error) {
			must(t, errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)))
		}},
		{"by a link", func(t *testing.T, dir string, _ func() error) {
			must(t, errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir+".new", 0o755), os.Symlink(dir+".new", dir)))
		}},
		{"missing for a while", func(t *testing.T, dir string, put func() error) {
			must(t, os.Rename(dir, dir+".old"))
			if err := put(); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("without a directory: %v, want that it is missing", err)
			}
			must(t, os.Mkdir(dir, 0o755)) // no other process has created it
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "dir")
			s := open(t, stores.Config{URL: "file://" + dir})
			put := func(key string) error {
				_, err := upload(t.Context(), s, stores.Object{Key: key, Size: -1}, []byte("body"), 4)
				return err
			}
			must(t, put("before"))
			late, err := s.Begin(t.Context(), stores.Object{Key: "late", Size: -1})
			must(t, err)
			row.replace(t, dir, func() error { return put("nowhere") })
			if _, err := late.Commit(digest("")); err == nil {
				t.Error("an upload ended well that was in flight: its object is not in the store")
			}
			late.Abort()
			must(t, put("a/after"))
			if n, err := s.Clean(t.Context(), 0); n != 0 || err != nil {
				t.Errorf("Clean = %d, %v, want 0", n, err)
			}
			if target, err := filepath.EvalSymlinks(dir); err != nil {
				t.Error(err)
			} else {
				wantFiles(t, target, "a/after")
			}
		})
	}
}

// TestIncomingRemoved has another program remove the directory of unfinished files, as those do that remove
// empty directories.
func TestIncomingRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, stores.Config{URL: "file://" + dir})
	remove := func() { must(t, os.Remove(filepath.Join(dir, ".incoming"))) }
	remove()
	if n, err := s.Clean(t.Context(), 0); n != 0 || err != nil {
		t.Errorf("Clean = %d, %v, want 0", n, err)
	}
	for _, key := range []string{"a", "b"} {
		if _, err := upload(t.Context(), s, stores.Object{Key: key, Size: -1}, []byte("body"), 4); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		remove()
	}
	wantFiles(t, dir, "a", "b")
}

// TestLeftovers checks that Open removes files of dead processes, and not those that are being
// written.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := stores.Config{URL: "file://" + dir}
	first := open(t, c)
	u, err := first.Begin(t.Context(), stores.Object{Key: "a", Size: -1})
	must(t, err)
	if _, err := u.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	alive := files(t, dir)
	for i := range 3 {
		must(t, os.WriteFile(filepath.Join(dir, ".incoming", fmt.Sprint("dead", i)), []byte("half"), 0o644))
	}
	second := open(t, c)
	wantFiles(t, dir, alive...)
	dead := filepath.Join(dir, ".incoming", "dead")
	must(t, os.WriteFile(dead, nil, 0o644))
	if n, err := second.Clean(t.Context(), time.Hour); n != 0 || err != nil {
		t.Errorf("Clean of young files = %d, %v, want 0", n, err)
	}
	if n, err := second.Clean(t.Context(), -time.Hour); n != 1 || err != nil {
		t.Errorf("Clean = %d, %v, want 1", n, err)
	}
	wantFiles(t, dir, alive...)
	if _, err := u.Commit(digest("a")); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, dir, "a")
}

// TestFileConcurrent writes the same keys from many goroutines, while others open and clean the same
// directory. Each object is whole.
func TestFileConcurrent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, stores.Config{URL: "file://" + dir})
	var all, cleaners sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		cleaners.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				other, err := stores.Open("other", stores.Config{URL: "file://" + dir})
				if err != nil {
					t.Errorf("Open = %v", err)
					return
				}
				if _, err := other.Clean(t.Context(), -time.Hour); err != nil {
					t.Errorf("Clean = %v", err)
				}
				other.Close(t.Context())
			}
		})
	}
	for i := range 8 {
		all.Go(func() {
			for j := range 20 {
				body := bytes.Repeat([]byte{byte('a' + i)}, 1000+i)
				if _, err := upload(t.Context(), s, stores.Object{Key: fmt.Sprintf("a/%d/b", j), Size: -1}, body, 100); err != nil {
					t.Errorf("upload = %v", err)
				}
			}
		})
	}
	all.Wait()
	close(stop)
	cleaners.Wait()
	for j := range 20 {
		body, err := os.ReadFile(filepath.Join(dir, "a", fmt.Sprint(j), "b"))
		if err != nil || len(body) < 1000 || len(body) != 1000+int(body[0]-'a') || !bytes.Equal(body, bytes.Repeat(body[:1], len(body))) {
			t.Errorf("object %d has %d bytes, %v", j, len(body), err)
		}
	}
}

// TestFileCancelled ends the context of commits at any time. A commit that fails leaves nothing.
func TestFileCancelled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, stores.Config{URL: "file://" + filepath.ToSlash(dir)})
	failed := 0
	for i := range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		key := fmt.Sprintf("%d/%d", i%7, i)
		u, err := s.Begin(ctx, stores.Object{Key: key, Size: -1})
		must(t, err)
		if _, err := u.Write([]byte("a")); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(time.Duration(i)*10*time.Microsecond, cancel)
		_, err = u.Commit(digest([]byte("a")))
		timer.Stop()
		cancel()
		_, there := os.Stat(filepath.Join(dir, filepath.FromSlash(key)))
		if err != nil {
			failed++
		}
		if (err == nil) != (there == nil) {
			t.Errorf("Commit = %v, the file: %v", err, there)
		}
	}
	t.Logf("%d of 300 commits were cancelled", failed)
}
