package stores

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"fetchd/internal/budget"
	"fetchd/stores/flock"
)

const (
	// fileMemory is charged for an upload to a directory in addition to its buffer.
	fileMemory = 8 << 10
	// blockSize is how much of a large object is written at once. Large writes of whole pages use
	// less than half of the CPU. An upload without a budget writes pieces.
	blockSize = 1 << 20
	cleanMost = 1000 // names read at once
)

// directory is a store in a directory.
type directory struct {
	store *Store
	path  string
	mu    sync.Mutex // held while tree is checked and replaced
	tree  *tree
}

// tree is a directory that is open. Objects are written to files in .incoming and renamed. The
// process that writes a file has it locked, so that others know that it is not a leftover.
type tree struct {
	root *os.Root
	info fs.FileInfo
	dirs sync.RWMutex // held for writing while directories are created and not yet synced
}

func openFile(s *Store, u *url.URL, c Config) (backend, error) {
	dir, err := filePath(u, c)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	t, err := openTree(dir)
	if err != nil {
		return nil, err
	}
	return &directory{store: s, path: dir, tree: t}, nil
}

func openTree(dir string) (_ *tree, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = root.Close()
		}
	}()
	t := &tree{root: root}
	if t.info, err = root.Stat("."); err != nil {
		return nil, err
	}
	if err := t.makeIncoming(); err != nil {
		return nil, err
	}
	if flock.Supported { // else a leftover cannot be distinguished from a file that another process writes
		if _, err := t.clean(context.Background(), time.Time{}); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// makeIncoming creates the directory of unfinished files, if it is missing.
func (t *tree) makeIncoming() error {
	if err := t.root.Mkdir(incoming, 0o755); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// isAt reports whether the path still leads to the tree. While the tree is open, no other one gets its inode.
func (t *tree) isAt(path string) bool {
	info, err := os.Stat(path)
	return err == nil && os.SameFile(info, t.info)
}

// current returns the tree to which the path leads now, and opens it if it is another one than before. A
// missing directory is not created: whoever is replacing it will do that. The garbage collector closes the
// tree before, when its last upload has ended.
func (d *directory) current() (*tree, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tree.isAt(d.path) {
		return d.tree, nil
	}
	t, err := openTree(d.path)
	if err != nil {
		return nil, d.fail("open directory", err)
	}
	d.tree = t
	return t, nil
}

func (d *directory) namesLate() bool { return true }
func (d *directory) maxSize() int64  { return math.MaxInt64 }
func (d *directory) close()          { _ = d.tree.root.Close() }

func (d *directory) fail(op string, err error) error {
	d.store.countError()
	return &Error{store: d.store.name, op: op, reason: ReasonError, down: !aboutKey(err), err: err, text: clean(fmt.Sprint(err), maxText)}
}

// errReplaced ends an upload whose object would not be where the store is now.
var errReplaced = errors.New("the directory was replaced during the upload")

// aboutKey reports whether an error is due to the key, or to this upload alone. Callers choose keys, and one of
// them must not close the store to others.
func aboutKey(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		return true // errReplaced, or os.Root: the path escapes through a symbolic link
	}
	return slices.Contains([]syscall.Errno{syscall.ENOTDIR, syscall.EISDIR, syscall.ENOTEMPTY, syscall.EEXIST,
		syscall.ENAMETOOLONG, syscall.ELOOP, syscall.EINVAL, syscall.EILSEQ}, errno)
}

func (d *directory) begin(_ string, o Object, memory *budget.Lease) (sink, error) {
	if !memory.Grow(budget.Body, fileMemory) {
		return nil, budget.ErrRefused
	}
	t, err := d.current()
	if err != nil {
		return nil, err
	}
	name, file, err := t.create()
	if err != nil {
		return nil, d.fail("create file", err)
	}
	return &fileSink{directory: d, tree: t, memory: memory, name: name, file: file, large: o.Memory != nil && (o.Size < 0 || o.Size > blockSize)}, nil
}

// create creates a locked file.
func (t *tree) create() (string, *os.File, error) {
	for {
		name := path.Join(incoming, rand.Text())
		file, err := t.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrNotExist) { // programs that tidy up remove empty directories
			if err = t.makeIncoming(); err == nil {
				continue
			}
		}
		if err != nil {
			return "", nil, err
		}
		// Another process may take the file for a leftover before it is locked. A file system without
		// locks is usable; there only Clean with an age removes leftovers.
		if !errors.Is(flock.Lock(file), flock.ErrLocked) && t.is(name, file) {
			return name, file, nil
		}
		_ = file.Close() // it is empty
	}
}

// is reports whether the file still has the name.
func (t *tree) is(name string, file *os.File) bool {
	a, err := file.Stat()
	if err != nil {
		return false
	}
	b, err := t.root.Lstat(name)
	return err == nil && os.SameFile(a, b)
}

func (d *directory) clean(ctx context.Context, _ string, before time.Time) (n int, err error) {
	t, err := d.current()
	if err != nil {
		return 0, err
	}
	if n, err = t.clean(ctx, before); err != nil && ctx.Err() == nil {
		err = d.fail("list files", err)
	}
	return n, err
}

// clean removes files in .incoming that no process has locked, and that were written before a
// time, unless it is zero.
func (t *tree) clean(ctx context.Context, before time.Time) (n int, err error) {
	dir, err := t.root.Open(incoming)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = dir.Close() }()
	for ctx.Err() == nil {
		names, err := dir.Readdirnames(cleanMost)
		for _, name := range names {
			if t.remove(path.Join(incoming, name), before) {
				n++
			}
		}
		if err != nil || len(names) == 0 {
			return n, nil // io.EOF
		}
	}
	return n, context.Cause(ctx)
}

// remove removes a leftover, and reports whether it did.
func (t *tree) remove(name string, before time.Time) bool {
	info, err := t.root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || !before.IsZero() && !info.ModTime().Before(before) {
		return false
	}
	file, err := t.root.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	err = flock.Lock(file)
	ours := err == nil || !before.IsZero() && !errors.Is(err, flock.ErrLocked)
	return ours && t.root.Remove(name) == nil
}

// makeDirs creates a directory and its parents. What it finds or creates will survive a crash of
// the machine.
func (t *tree) makeDirs(dir string) error {
	t.dirs.RLock()
	_, err := t.root.Lstat(dir)
	t.dirs.RUnlock()
	if err == nil {
		return nil
	}
	t.dirs.Lock()
	defer t.dirs.Unlock()
	return t.makeDirsLocked(dir)
}

func (t *tree) makeDirsLocked(dir string) error {
	err := t.root.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrNotExist) && dir != "." {
		if err := t.makeDirsLocked(path.Dir(dir)); err != nil {
			return err
		}
		err = t.root.Mkdir(dir, 0o755)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err
	}
	return t.sync(path.Dir(dir))
}

// sync writes the names in a directory to the disk.
func (t *tree) sync(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // it cannot
	}
	f, err := t.root.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return f.Sync()
}

// fileSink writes one file.
type fileSink struct {
	directory *directory
	tree      *tree
	memory    *budget.Lease
	name      string
	file      *os.File
	piece     *piece // for the first bytes, because most objects are small
	block     *block // replaces piece if the object may be large
	large     bool
	n         int           // bytes in it
	done      chan struct{} // closed when the commit has ended; nil before it begins
}

type block [blockSize]byte

var blocks = sync.Pool{New: func() any { return new(block) }}

// buffer returns the memory that is written at once.
func (f *fileSink) buffer() []byte {
	switch {
	case f.block != nil:
		return f.block[:]
	case f.piece != nil:
		return f.piece[:]
	}
	return nil
}

func (f *fileSink) space(context.Context) ([]byte, error) {
	switch {
	case f.n < len(f.buffer()):
	case f.piece == nil && f.block == nil:
		if !f.memory.Grow(budget.Body, pieceSize) {
			return nil, budget.ErrRefused
		}
		f.piece, _ = pieces.Get().(*piece)
	case f.block == nil && f.large && f.memory.Grow(budget.Body, blockSize): // if refused, the piece goes on
		f.block, _ = blocks.Get().(*block)
		copy(f.block[:], f.piece[:])
		f.freePiece()
	default:
		if err := f.flush(); err != nil {
			return nil, err
		}
	}
	return f.buffer()[f.n:], nil
}

func (f *fileSink) wrote(n int) { f.n += n }

func (f *fileSink) flush() error {
	if f.n == 0 {
		return nil
	}
	if _, err := f.file.Write(f.buffer()[:f.n]); err != nil {
		return f.directory.fail("write file", err)
	}
	f.n = 0
	return nil
}

func (f *fileSink) freePiece() {
	if f.piece != nil {
		pieces.Put(f.piece)
		f.piece = nil
		f.memory.Shrink(budget.Body, pieceSize)
	}
}

func (f *fileSink) free() {
	f.freePiece()
	if f.block != nil {
		blocks.Put(f.block)
		f.block = nil
		f.memory.Shrink(budget.Body, blockSize)
	}
}

// commit gives the file its name. A disk can take long and cannot be interrupted, so the bytes are
// synced in the background if ctx ends. After the file has its name, ctx has no effect.
func (f *fileSink) commit(ctx context.Context, key string) (Stored, error) {
	if err := f.flush(); err != nil {
		return Stored{}, err
	}
	f.free()
	f.done = make(chan struct{})
	var err error
	go func() {
		defer close(f.done)
		err = f.prepare(path.Dir(key))
	}()
	select {
	case <-f.done:
	case <-ctx.Done():
		return Stored{}, context.Cause(ctx)
	}
	if err != nil {
		return Stored{}, err
	}
	return Stored{}, f.rename(key)
}

// prepare writes the bytes to the disk, and creates the directory of the file.
func (f *fileSink) prepare(dir string) error {
	if err := f.file.Sync(); err != nil {
		return f.directory.fail("sync file", err)
	}
	if err := f.tree.makeDirs(dir); err != nil {
		return f.directory.fail("create directory", err)
	}
	return nil
}

func (f *fileSink) rename(key string) error {
	d := f.directory
	if !f.tree.isAt(d.path) {
		return d.fail("rename file", errReplaced)
	}
	if err := f.tree.root.Rename(f.name, key); err != nil {
		return d.fail("rename file", err)
	}
	f.name = ""
	if err := f.tree.sync(path.Dir(key)); err != nil {
		return d.fail("sync directory", err)
	}
	return nil
}

func (f *fileSink) busy() bool {
	if f.done == nil {
		return false
	}
	select {
	case <-f.done:
		return false
	default:
		return true
	}
}

func (f *fileSink) discard(context.Context) {
	if f.done != nil {
		<-f.done
	}
	f.free()
	if f.name != "" {
		_ = f.tree.root.Remove(f.name) // Clean removes what is left
	}
	_ = f.file.Close() // it is synced or removed
}
